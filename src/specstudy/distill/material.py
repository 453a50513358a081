"""Words, sentence patterns and code skeletons from which the distillation prompts are built.

A pattern holds slots in braces: ``{place}`` draws a fresh filler, ``{place1}`` is remembered within one
prompt, ``{^place}`` is capitalised, and ``{price:3-20}`` is a remembered whole number.  The number slot
called ``n`` is drawn afresh every time.
"""


def _items(text: str) -> tuple[str, ...]:
    """Split a bar-separated text into items, with line breaks folded into single spaces."""
    return tuple(" ".join(item.split()) for item in text.split("|"))


def _listings(text: str) -> tuple[str, ...]:
    """Split a text into code listings at the lines that hold only four percent signs."""
    return tuple(listing.strip("\n") for listing in text.split("%%%%"))


FILLERS: dict[str, tuple[str, ...]] = {
    "topic": _items("""photosynthesis | plate tectonics | the water cycle | black holes | vaccination |
    inflation in an economy | the greenhouse effect | natural selection | the French Revolution | the Silk
    Road | tidal energy | nuclear fusion | the human immune system | bread fermentation | the Maillard
    reaction | soap making | the offside rule in football | the decimal system | jazz harmony | the circle
    of fifths | the Roman road network | the printing press | the bicycle | glass making | steam power | the
    telegraph | satellite navigation | battery storage | touch screens | optical fibre | the refrigerator |
    the microwave oven | composting | crop rotation | bee colonies | bird migration | coral reefs | mangrove
    forests | glaciers | volcanoes | earthquakes | hurricanes | the jet stream | ocean currents | the Moon's
    phases | solar eclipses | comets | the asteroid belt | gravity | friction | magnetism | static
    electricity | sound waves | the Doppler effect | rainbows | lenses | the periodic table | acids and
    bases | rusting | combustion | crystals | plastics recycling | antibiotics | blood circulation | human
    digestion | sleep | long-term memory | colour vision | the inner ear | bone growth | muscle fatigue |
    allergies | DNA replication | cell division | viruses | fungi | seed dispersal | pollination |
    hibernation | camouflage in animals | whale communication | spider silk | the life cycle of frogs | ant
    colonies | wolves in Yellowstone | the Amazon basin | the Sahara desert | the Himalayas | the Nile | the
    Baltic Sea | the Panama Canal | the Dutch polders | Antarctica | Iceland's geothermal energy | river
    deltas | urban heat islands | supply and demand | central banks | compound interest | international
    trade | income tax | insurance | the stock market | unemployment | monopolies | minimum wages |
    copyright | patents | trial by jury | contract law | constitutional courts | consumer protection | the
    Magna Carta | the Industrial Revolution | the Black Death | the Renaissance | the Ottoman Empire | the
    Han dynasty | ancient Athens | the Inca road system | the Hanseatic League | the Cold War | women's
    suffrage | decolonisation | the space race | the Olympic Games | marathon running | the rules of cricket
    | chess openings | tennis scoring | altitude training | Formula One tyres | musical scales | rhythm and
    metre | the symphony orchestra | the pipe organ | opera | the blues | folk dancing | cheese ripening |
    chocolate tempering | coffee roasting | pickling | caramelisation | emulsions such as mayonnaise | tea
    processing | yeast | pressure cooking | the metric system | time zones | leap years | calendars |
    cartography | photography | the compass | the lighthouse | suspension bridges | tunnels | elevators |
    jet engines | sailing boats | electric cars | railway signals | bar codes | public key encryption | the
    domain name system | search engines | spam filters | wireless networks | machine translation | weather
    forecasting | water treatment | sewage systems | paper making | weaving | ceramics | cement | steel
    production | wind turbines | solar panels | heat pumps | LED lighting | smoke detectors | postal
    services | public libraries | sign languages | writing systems | proverbs | the Gothic cathedral |
    perspective in painting | Impressionism | cinema sound | radio broadcasting"""),
    "business": _items("""bicycle workshop | bakery | flower shop | language school | tea house | hair salon
    | bookshop | print shop | garden centre | climbing hall | toy shop | guest house | music school |
    tailor's shop | cinema"""),
    "pair": _items("""weather and climate | cats and dogs as pets | butter and margarine | alligators and
    crocodiles | a virus and a bacterium | a fruit and a vegetable | mitosis and meiosis | speed and
    velocity | mass and weight | a comet and an asteroid | civil law and common law | a recession and a
    depression | stocks and bonds | debit and credit cards | a violin and a viola | major and minor keys |
    football and rugby | sprinting and distance running | baking soda and baking powder | green tea and
    black tea | renewable and fossil energy | trains and buses | petrol and electric cars | renting and
    buying a home | the Arctic and the Antarctic | a lake and a lagoon | monarchies and republics | the
    Roman and the Greek gods | paper books and e-readers | frogs and toads | moths and butterflies |
    concrete and cement | copper and aluminium wiring | email and letters | hard drives and solid-state
    drives | direct and alternating current | igneous and sedimentary rock | arteries and veins | empathy
    and sympathy | inflation and deflation | a patent and a trademark | hardwood and softwood | conifers and
    broadleaved trees | novels and short stories | gas and induction hobs | telescopes and microscopes"""),
    "audience": _items("""a ten-year-old | a curious teenager | a busy adult | a first-year student | my
    grandmother | someone who has never heard of it | a visitor to a museum | a new colleague | a school
    class | a beginner"""),
    "format": _items("""in three bullet points | in one paragraph | step by step | in two sentences | in
    about 100 words | with one everyday example | as a short list | in plain language | with a short
    introduction and a conclusion | in five numbered points | without technical terms | in no more than 150
    words | with a simple comparison | as questions and answers | as a small table | in detail | briefly |
    with the key terms explained"""),
    "aspect": _items("""causes | effects | advantages | limits | stages | parts | uses | misunderstandings |
    open questions | historical roots | practical benefits | risks | economic consequences | key people and
    events"""),
    "person": _items("""Anna | Bilal | Chloe | Daniel | Elif | Farah | George | Hana | Ivan | Julia | Kofi |
    Lena | Marco | Nadia | Omar | Priya | Quentin | Rosa | Samuel | Tomoko | Ulla | Victor | Wanda | Yusuf |
    Zoe | Amara | Bruno"""),
    "surname": _items("""Ms Alvarez | Mr Brandt | Dr Chen | Mrs Dubois | Mr Eriksen | Ms Farouk | Dr Grant |
    Mr Horvat | Mrs Ito | Ms Jansen | Mr Kowalski | Dr Lindgren | Mrs Moreau | Mr Novak | Ms Okafor | Dr
    Patel | Mr Quinn"""),
    "town": _items("""Ashford | Bellmere | Carrow Hill | Dunwick | Eastleigh | Fernbrook | Glenmoor |
    Harrowgate | Ivyton | Kingsport | Larkfield | Millhaven | Northwell | Oakridge | Pinewater | Quarry Bay
    | Rosedale | Stonebridge"""),
    "day": _items("Monday | Tuesday | Wednesday | Thursday | Friday | Saturday | Sunday"),
    "month": _items("""January | February | March | April | May | June | July | August | September | October
    | November | December"""),
    "character": _items("""a retired clockmaker | a shy lighthouse keeper | a young baker | a night bus
    driver | an old librarian | a homesick astronaut | a stubborn gardener | a travelling piano tuner | a
    curious robot | a clever crow | a tired nurse | a ferry captain | a lost tourist | a failed magician | a
    mountain guide | a street musician | a mapmaker | an apprentice blacksmith | a talking cat | a deep-sea
    diver | a school caretaker | a beekeeper | a village postwoman | a nervous dragon | a chess champion | a
    forgetful inventor | a young queen | a patient fisherman | a weather forecaster | a museum guard | a
    runaway puppet | a tailor with cold hands"""),
    "place": _items("""an abandoned railway station | a harbour town in winter | a crowded night market | a
    house on stilts | a space station | a library under the sea | a quiet mountain village | a rooftop
    garden | a desert inn | a small island without trees | an old theatre | a bakery at dawn | a snowed-in
    airport | a floating city | a hospital corridor | a foggy forest | a circus tent after the show | a
    canal boat | a castle kitchen | a laundrette at midnight | an observatory | a broken-down train | a
    museum of lost things | a vineyard in autumn"""),
    "object": _items("""a brass key | a letter without a name | a cracked violin | a red umbrella | a pocket
    watch that runs backwards | a jar of seeds | an unfinished map | a glass marble | a music box | a wooden
    boat | a blue suitcase | a lantern | an old photograph | a single glove | a recipe book | a broken radio
    | a silver coin | a snow globe | a kite | a locked drawer | a paper crane | a bell that nobody can hear
    | a chipped teacup"""),
    "mood": _items("""hopeful | melancholy | funny | mysterious | tender | tense | dreamy | playful | quiet
    | bittersweet | adventurous | warm | eerie but gentle | ironic | joyful | nostalgic"""),
    "theme": _items("""friendship | growing older | leaving home | forgiveness | the first snow | courage |
    a secret | lost time | the sea | rivalry | an unexpected gift | homesickness | silence | curiosity | a
    promise | spring"""),
    "constraint": _items("""Use no dialogue | End with a question | Keep it simple | Write in the present
    tense | Use the first person | Include a surprising turn | Mention the smell of rain | Use short
    sentences only | Tell it backwards in time | Begin with a sound | Let the last line echo the first | Use
    exactly three characters | Avoid the word "love" | Include a line of dialogue in each paragraph | Let it
    take place in a single hour"""),
    "product": _items("""a folding bicycle | a solar lamp | a noise-free kettle | handmade soap | an oat
    drink | a language course | a neighbourhood bakery | a repair café | running shoes | a rain jacket | a
    wooden toy train | a houseplant subscription | a travel pillow | an alarm clock for heavy sleepers | a
    reusable bottle | a tea shop"""),
    "occasion": _items("""a birthday | a farewell party at work | the opening of a small shop | a school
    reunion | a wedding of two friends | a long-awaited graduation | the end of a hard year | a new
    neighbour's arrival"""),
    "letter_aim": _items("""apologise for a missed meeting | ask for advice about moving abroad | thank a
    former teacher | return something borrowed years ago | explain a sudden departure | invite an old friend
    to visit | describe an unusual journey | confess a harmless lie | say goodbye to a beloved house |
    report a strange discovery"""),
    "language": _items("Python | JavaScript | Python | C | TypeScript | Python | Java | Go | Rust"),
    "task": _items("""reverses the words in a sentence | checks whether a string is a palindrome | merges
    two sorted lists | counts how often each word occurs in a text | finds the second largest number in a
    list | removes duplicates while keeping the order | converts a Roman numeral to an integer | returns the
    first n prime numbers | rotates a list by k places | flattens a nested list | validates an email address
    | groups a list of words by their first letter | finds the longest common prefix of several strings |
    computes a moving average | transposes a matrix | parses a line of CSV with quoted fields | finds all
    anagrams in a list of words | converts seconds to hours, minutes and seconds | checks whether brackets
    are balanced | performs a binary search | computes the greatest common divisor | generates all
    permutations of a string | encodes a string with run-length encoding | splits a list into chunks of a
    given size | finds the missing number in a sequence | computes the median of a list | sorts records by
    two keys | computes the edit distance of two words | draws a text histogram | masks all but the last
    four digits of a card number | converts Celsius to Fahrenheit for a whole list | counts the vowels in a
    text | finds the most frequent element | adds two numbers given as strings | checks whether a year is a
    leap year | computes the day of the week of a date | limits how often another function may be called |
    caches the results of a slow computation | walks through a binary tree level by level | finds the
    shortest path in a grid | computes the intersection of two intervals | turns a title into a URL slug |
    wraps text at a given width | simulates rolling several dice | converts a decimal number to binary |
    picks a random item by weight"""),
    "code_extra": _items("""Include type hints where the language has them | Add a short docstring or
    comment | Handle empty input | Do not use any library | Explain the running time | Give one example call
    | Keep it under 20 lines | Raise an error for invalid input | Add three test cases | Use a loop, not
    recursion | Use recursion | Explain each step | Use clear variable names | Show a second, shorter
    version | Say which edge cases you considered"""),
    "shell_task": _items("""renames all .jpeg files in a folder to .jpg | prints the ten largest files below
    a folder | counts the lines of all Python files | deletes log files older than a week | backs up a
    folder into a dated archive | checks every minute whether a website answers | replaces a word in all
    text files | lists all users that are logged in | warns when a disk is more than 90 percent full | sorts
    a file and removes repeated lines | downloads every address listed in a file | prints the columns two
    and five of a CSV file"""),
    "sql_task": _items("""lists the five customers with the highest total | finds all rows without a
    matching order | counts the orders per month | returns the newest entry of each customer | finds
    duplicate email addresses | computes the average amount per city | updates the status of all unpaid
    orders older than 30 days | shows the running total per day | lists products that were never sold |
    ranks employees by salary within their department"""),
    "pattern_task": _items("""dates such as 2024-03-09 | times such as 17:45 | hexadecimal colours such as
    #1fa2c9 | phone numbers with an optional country code | words that start and end with the same letter |
    prices such as 12.50 EUR | file names that end in .csv or .tsv | IPv4 addresses | lines without any
    digit | hashtags in a short message | version numbers such as 2.10.3 | numbers with thousands separators
    | quoted strings | repeated words"""),
    "code_concept": _items("""recursion | a hash table | a race condition | unit testing | a closure | a
    generator | object inheritance | a linked list | memoisation | garbage collection | exception handling |
    asynchronous code | a database index | a stack and a queue | immutable data | version control branches |
    a REST API | type inference | dependency injection | a binary heap | pass by reference | integer
    overflow | floating-point rounding"""),
    "func": _items("""process | compute_total | collect | update_scores | summarise | find_best |
    load_values | select_items | merge_records | count_matches | build_index | filter_rows | average_of |
    next_step | check_limits | scan"""),
    "list": _items("""values | items | scores | prices | readings | orders | names | weights | samples |
    rows | points | tickets | entries | lengths | results | temperatures"""),
    "one": _items("value | item | current | element | entry | candidate | record | unit | part"),
    "acc": _items("total | result | best | answer | output | found | summary | state"),
    "class": _items("""Inventory | Account | Timer | Garden | Library | Playlist | Parking | Ledger |
    Thermostat | Queue | Basket | Schedule | Roster | Catalogue"""),
    "field": _items("""amount | price | score | level | count | size | weight | duration | distance |
    quantity"""),
    "table": _items("""orders | customers | products | employees | invoices | visits | bookings | shipments
    | lessons"""),
    "city": _items("""Lisbon | Oslo | Prague | Dublin | Vienna | Kyoto | Nairobi | Lima | Toronto | Hanoi |
    Athens | Warsaw | Montevideo | Rabat | Tallinn | Porto | Bergen | Seville"""),
    "good": _items("""apples | notebooks | candles | tickets | bottles of juice | pencils | muffins | bags
    of rice | light bulbs | postcards | jars of honey | T-shirts | batteries | chairs | bunches of flowers |
    tiles"""),
    "mathformat": _items("""Show each step. | Explain your reasoning. | Give only the final number and one
    line of working. | Solve it step by step. | Check your answer at the end. | Write the equation first. |
    Explain it as to a twelve-year-old. | Round to two decimal places where needed. | State any assumption
    you make. | Use a table if that helps. | Give the answer in a full sentence."""),
    "proof": _items("""the sum of two odd numbers is even | the square of an even number is even | the
    square root of 2 is irrational | there are infinitely many primes | the angles of a triangle add up to
    180 degrees | a number is divisible by 3 if its digit sum is | the sum of the first n odd numbers is n
    squared | the product of three consecutive integers is divisible by 6 | a tree with n vertices has n
    minus 1 edges | the diagonals of a rectangle have equal length | two different lines meet in at most one
    point | among 13 people two share a birth month | every prime above 3 is one more or one less than a
    multiple of 6 | 0.999... equals 1"""),
    "concept": _items("""a prime number | the mean and the median | a logarithm | a vector | the slope of a
    line | a derivative | conditional probability | standard deviation | a geometric series | modular
    arithmetic | a quadratic equation | Pythagoras' theorem | a permutation | scientific notation | a
    fraction | similar triangles"""),
    "dilemma": _items("""take the new job or stay | wait or act now | tell them or keep quiet | move to the
    city or stay here | repair it or buy a new one | go alone or with the group | study longer or start
    working | say yes or ask for more time | keep the old plan or start again | rent or buy | answer today
    or sleep on it | lend the money or refuse"""),
    "question": _items("""Can something be fair and still feel wrong | Is it better to wait when nothing
    seems to change | Does a place remember the people who lived there | What makes a life interesting | Is
    doing nothing ever the right choice | Can you miss something you never had | When is a thing finished |
    Do we own our memories | Is honesty always kind | Why do people keep things they never use | Is luck the
    same as chance | Can a machine be bored | Would you call a copy of a painting art | How much is enough |
    Is it possible to be too careful | Who decides what is normal | Are rules made to be followed or to be
    questioned | Is a promise to oneself still a promise | Why does time pass faster as we get older | Is
    silence an answer | Does progress always make us happier | What do we owe to strangers | Is it wrong to
    enjoy being alone | Can a good reason lead to a bad decision | Is the journey really more important than
    the goal | Do we choose our friends or do they just happen"""),
    "lens": _items("""Please give me your honest view | Answer in one paragraph | Name two sides of it | I
    am not sure what I am really asking | Use an example from daily life | Keep it short | Take a position
    and defend it | Answer with a small story | Tell me what you would ask back | Say what it depends on |
    Do not be diplomatic | Think aloud first | Answer as a friend would | Give three possible readings |
    Imagine that you disagree with me"""),
    "thing": _items("""the box | the letter | the plan | the room upstairs | the other one | the meeting |
    the key | the dog | the old car | the list | the noise | the garden | the money | the report | the trip
    | the colour | the neighbour | the appointment | the present | the photograph | the bill | the door |
    the second version | the form"""),
    "feeling": _items("""a little worried | confused | curious | relieved | tired of it | torn | annoyed |
    excited | unsure | uneasy | stuck | oddly calm | impatient | hopeful"""),
    "vague": _items("""What should I do about it | Is that normal | What do you make of this | Should I say
    something | Was that a mistake | How would you handle it | Where do I even start | Does this make sense
    | Am I overthinking this | What would be a good next step | Is there something I am missing | Is it too
    late | What did they mean by that"""),
    "colour": _items("red | green | blue | yellow | white | black | grey | orange | purple | brown"),
    "craft": _items("""bronze casting | bookbinding | shipbuilding | glass blowing | basket weaving |
    watchmaking | wool dyeing | pottery | stone carving | paper making | harp making | sail making"""),
    "habitat": _items("""wet meadows | rocky coasts | pine forests | slow rivers | dry grassland | mountain
    streams | salt marshes | old orchards | dense reed beds | sandy heaths"""),
    "animal": _items("""silver reed warbler | spotted hill toad | long-tailed marsh mouse | black-footed
    heron | golden bank beetle | small stone marten | blue ridge lizard | striped river crab | northern cave
    bat | red-capped finch"""),
    "food": _items("""beetles | small fish | berries | seeds | snails | worms | moths | young shoots | water
    insects | roots"""),
    "meal": _items("""a bowl of lentil soup | grilled fish with lemon | a plate of dumplings | flatbread
    with cheese | rice with vegetables | a slice of plum cake | noodles in broth"""),
    "sight": _items("""the old harbour | the covered market | the botanical garden | the city wall | the
    tram museum | the cathedral tower | the river promenade | the castle hill | the puppet theatre | the
    fish market"""),
    "project": _items("""the cycle path along the canal | the new roof of the sports hall | the repair of
    the town clock | the extension of the library | the playground in the park | the weekly market | the
    lighting of the underpass | the bus shelter near the school | the flood barrier by the mill"""),
    "sky": _items("""clear | overcast | partly cloudy | foggy | hazy | bright with high clouds"""),
    "office": _items("""the kitchen on the second floor | the meeting rooms | the car park | the print room
    | the reception desk | the storage area | the shared calendar | the canteen | the bicycle shed"""),
    "shop": _items("""the swimming pool | the town library | the garden centre | the repair workshop | the
    climbing hall | the village shop | the county archive | the ice rink"""),
    "device": _items("""Lumo lamp | Aero fan | Breeze heater | Pico speaker | Terra kettle | Nova scale |
    Orbit clock | Vela camera | Moss humidifier | Quill printer | Delta toaster | Halo monitor"""),
}

# Sentences of a passage share their remembered slots, so that a passage stays about one thing.
PASSAGES: dict[str, tuple[str, ...]] = {
    "museum notice": _items("""The {town1} Museum opens a new exhibition on {craft1} on {n:2-28} {month1}. |
    It shows {pieces:40-260} objects, the oldest of which is about {age:300-2800} years old. | The
    exhibition was prepared by {surname1}, who has studied {craft1} for {n:6-30} years. | Most of the
    objects come from a private collection in {city1}. | Visitors may touch {n:3-12} of the objects, which
    are marked with a {colour} dot. | A guided tour starts every {day1} at {n:10-16} o'clock and lasts
    {n:40-90} minutes. | Tickets cost {n:6-18} euros for adults and {n:2-5} euros for children. | In the
    last room, {person1} demonstrates how the tools were used. | The workshop for schools is limited to
    {n:12-28} children and must be booked in advance. | {^object} found in {n:1880-1975} is one of the
    favourites of the staff. | Photography is allowed, but without flash. | Because of the low light in the
    second hall, large bags must be left at the entrance. | The museum café offers {meal} at lunchtime. |
    The exhibition closes after {n:8-30} weeks and then travels to {city2}. | Part of the income is set
    aside for the restoration of the building. | An audio guide is available in {n:3-9} languages. | The
    curators admit that the purpose of some objects is still unknown."""),
    "council minutes": _items("""The council of {town1} met on {day1}, {n:2-28} {month1}, with {n:7-21}
    members present. | {surname1} chaired the meeting and {surname2} took the minutes. | The first item was
    {project1}. | The estimated cost has risen from {n:20-90} to {n:95-240} thousand euros. | {surname2}
    asked why the price had gone up so much. | The engineer named higher wages and the price of timber as
    the main reasons. | A vote was postponed until the figures have been checked. | The second item was
    {project2}, which was approved by {n:8-14} votes to {n:2-6}. | {surname3} declared an interest and left
    the room during the debate. | Residents had sent {n:9-140} letters, most of them in favour. | Several
    residents complained about noise after {n:8-11} in the evening. | The council agreed to plant {n:12-90}
    trees along the main road. | The budget for snow clearing was used up by {month2}. | {person1}, a pupil
    of the local school, presented a petition for a safer crossing. | The mayor thanked the volunteers who
    had cleaned the river bank. | The next meeting will take place in the town hall on {day2}. | No decision
    was made on the parking fees. | The meeting closed at {n:8-11} o'clock in the evening."""),
    "weather log": _items("""Weather log of the station at {town1}, kept by {person1} in {month1}. | On
    {day1} the sky was {sky} in the morning and the temperature reached {n:9-27} degrees. | Rain began at
    {n:2-6} in the afternoon and brought {n:3-38} millimetres by night. | The wind turned from west to north
    and blew at {n:15-70} kilometres per hour. | On the following day it was {sky} until noon. | The lowest
    temperature of the week, {n:2-8} degrees, was measured shortly before sunrise. | Fog covered the valley
    for {n:2-9} hours. | Two branches fell onto the fence, but the instruments were not damaged. | The
    pressure dropped by {n:4-18} units within a day. | {person2} read the rain gauge on {day2} because
    {person1} was ill. | The reading of {day2} may be too high, since the gauge had not been emptied. | A
    short hailstorm was heard but not measured. | The river rose by {n:10-85} centimetres and stayed below
    the warning mark. | The last day was {sky} and almost without wind. | Compared with last year, the month
    was {n:2-4} degrees warmer. | Swallows were seen for the first time on {day}. | The battery of the
    second sensor was changed in the evening."""),
    "species description": _items("""The {animal1} lives in {habitat1} and, less often, in {habitat2}. | An
    adult weighs about {n:20-900} grams. | Its back is {colour1}, while the belly is {colour2}. | It feeds
    mainly on {food1}, and in winter on {food2}. | The female raises {n:2-9} young each year. | The young
    leave the nest after {n:3-8} weeks. | It is active at dusk and rests during the day. | Its call, a short
    double note, can be heard from {n:50-400} metres away. | The species was first described in
    {n:1790-1925} by a schoolteacher from {city1}. | Numbers have fallen by {n:10-60} percent in the last
    {n:10-40} years. | The loss of {habitat1} is thought to be the main reason. | Road traffic also plays a
    part, although it is hard to measure. | A count in {month1} found {n:120-4800} animals in {n:5-60}
    places. | In captivity the species reaches an age of {n:6-24} years. | It is often confused with a close
    relative, which has a {colour} mark on the head. | Volunteers near {town1} build shelters from stones
    and old wood. | The males defend a territory of about {n:2-30} hectares. | Nobody knows yet where the
    animals of the northern group spend the winter."""),
    "travel itinerary": _items("""Day one: the group arrives in {city1} at {n:8-11} in the morning and walks
    to {sight1}. | Lunch is {meal}, and the afternoon is free. | {person1} leads the tour and carries the
    tickets. | On the second day a train leaves for {city2} at {n:7-10} o'clock. | The ride takes {n:2-6}
    hours and includes one change. | The hotel is {n:5-25} minutes on foot from {sight2}. | Breakfast is
    served from {n:6-8} to 10. | The visit to {sight3} costs an extra {n:5-25} euros per person. | On {day1}
    the shops are closed, so bring something to eat. | If it rains, the boat trip is replaced by a visit to
    {sight4}. | The group consists of {n:9-28} people, {n:2-6} of whom are children. | Each traveller may
    bring one suitcase of up to {n:15-25} kilograms. | {person2} joins the group in {city2} and leaves it
    two days later. | A deposit of {n:50-300} euros is due by {n:2-28} {month1}. | The evening before
    departure there is a shared dinner with {meal}. | The return flight lands at {n:6-11} in the evening. |
    Passports must be valid for at least six months. | Anyone who wants a single room should tell {person1}
    in time."""),
    "company memo": _items("""To all staff: from {n:2-28} {month1}, {office1} will be closed for {n:2-8}
    weeks. | During this time please use {office2} instead. | {surname1} is responsible for the move and
    answers questions every {day1}. | The reason is a leak that was found in {month2}. | The work is
    expected to cost {n:4-60} thousand euros. | Teams with more than {n:6-15} people should book their rooms
    a week ahead. | Working from home is possible on up to {n:2-3} days a week. | Please take all personal
    things with you by {day2}. | Anything left behind will be stored for {n:10-60} days. | Deliveries will
    be accepted until {n:2-5} in the afternoon only. | {surname2} has asked for volunteers to label the
    boxes. | The yearly review has been moved to the week after. | Visitors still have to sign in at the
    entrance. | Last quarter we received {n:120-980} orders, {n:4-30} percent more than the year before. |
    Complaints about late answers have nevertheless increased. | A short survey will be sent to everyone at
    the end of the month. | Thank you for your patience and for keeping {office3} tidy."""),
    "opening hours": _items("""From {month1} on, {shop1} in {town1} has new opening hours. | From Monday to
    Thursday it is open from {n:8-10} to {n:17-19}. | On Friday it stays open until {n:20-22}. | On Saturday
    it opens an hour later than during the week. | On Sunday it is closed, except on the first Sunday of the
    month. | Entry costs {n:3-12} euros, and a yearly pass costs {n:60-220} euros. | Children under {n:4-12}
    enter free of charge. | People over {n:60-67} pay half. | Groups of more than {n:8-20} should call two
    days ahead. | The quietest time is {day1} morning. | The last entry is {n:30-60} minutes before closing.
    | In {month2} the building is closed for {n:5-20} days for cleaning. | Lost property is kept by
    {surname1} for {n:2-8} weeks. | Dogs are not allowed inside, but there is water at the gate. | Parking
    is free for the first {n:2-3} hours. | Bus number {n:2-48} stops at the door every {n:10-30} minutes. |
    On public holidays the Sunday rule applies. | Courses for beginners take place every {day2} evening. |
    The lift is out of order, and a replacement has been promised for {month3}."""),
}

PASSAGE_REQUESTS: tuple[str, ...] = _items("""Summarise this {genre} {format}. | Read the {genre} below and
    list the most important facts {format}. | Which numbers in this {genre} matter most, and why? | Rewrite
    this {genre} for {audience}. | What are the three most important points of the {genre} below? | Turn the
    following {genre} into a short news item. | Using only the text, say what happens when, and who is
    involved. | Write five questions that can be answered from this {genre}, with the answers. | What does
    the following {genre} leave open or unclear? | Extract all dates, days and numbers from this {genre} as
    a list. | Could you please shorten this {genre} to about {n:40-80} words? | Give the {genre} a title and
    explain it {format}. | What would a reader have to do or know after reading this {genre}? Answer
    {format}. | Explain the main message of this {genre} to {audience}.""")

FACTUAL_SHORT: tuple[str, ...] = _items("""Explain the basics of {topic} to {audience}, {format}. | What are
    the main {aspect} of {topic}? Please answer {format}. | Give me a short history of {topic}, {format}. |
    Could you describe {topic} {format}? | What is the difference between {pair}? Answer {format}. | Compare
    {pair} {format}. | Why does {topic} matter today? Explain {format}. | I have to give a talk about
    {topic}. Which {aspect} should I mention? | List the most important {aspect} of {topic} and explain each
    {format}. | What do most people get wrong about {topic}? Tell me {format}. | Please tell {audience} what
    is known about {topic}, {format}. | Write a short encyclopedia entry on {topic} that covers its
    {aspect}. | How would you explain the difference between {pair} to {audience}? | Name {n:3-7}
    interesting facts about {topic} and say why they matter. | Describe the {aspect} of {topic} {format}. |
    What is the connection between {topic1} and {topic2}, if there is any? | Help me understand {topic}:
    start with the {aspect}, then give an example. | In simple words, what should {audience} know about
    {topic}? | Write {n:3-6} quiz questions about {topic}, with answers. | Can you explain {pair} and how to
    tell them apart, {format}?""")

CREATIVE_SHORT: tuple[str, ...] = _items("""Write a {mood} story about {character} in {place}. {constraint}.
    | Write a {mood} poem about {theme} and {object}. | Tell me a bedtime story about {character} who finds
    {object}. | Write a letter in which {character} tries to {letter_aim}. {constraint}. | Write a short
    dialogue between {character1} and {character2} about {theme}. | Describe {place} through the eyes of
    {character}, {mood} in tone. | Invent {n:3-8} slogans for {product}. They should sound {mood}. | Could
    you write a {mood} scene in {place}, in which {object} plays a part? | Write a speech for {occasion}
    that mentions {object}. | Give me {n:3-6} ideas for a story about {theme} set in {place}. | Write the
    first paragraph of a {mood} novel about {character}. {constraint}. | Please write a haiku and a limerick
    about {object}. | {^character} and {character1} meet in {place}. What happens next? {constraint}. | Make
    up a legend that explains how {object} came to {place}. | Write a diary entry by {character} after a day
    in {place}. | Write a {mood} song about {theme} with {n:2-4} verses and a chorus. | Write an
    advertisement for {product}, spoken by {character}. | Retell a day of {character} as a {mood} newspaper
    report. {constraint}.""")

STORY: tuple[str, ...] = _items("""Nobody had expected visitors so late in {month1}. | On the table lay
    {object1}, just where {person1} had left it. | "You should not have kept it," said {person2}, without
    turning around. | Outside, the wind pulled at the shutters. | There was a smell of rain and burnt sugar
    in the air. | Somewhere below, a clock struck {n:3-11} times, although it was not yet evening. |
    {person1} counted the steps, as always, and reached {n:14-90}. | It had been {n:3-30} years since they
    had last spoken. | The lamp flickered, and for a moment the whole room seemed to hold its breath. | "I
    only want to know what happened that {day1}," {person1} said. | {person2} laughed, but it was not an
    unfriendly laugh. | Behind the second door there was {object2}, wrapped in {colour} paper. | The old
    stories about {theme1} had never mentioned that. | A dog barked twice and then was silent. | {person1}
    thought of {city1}, of the long summer and the empty streets. | The floor was cold and slightly wet. |
    Someone had written a name on the window, and it was slowly disappearing. | "Listen," whispered
    {person2}, "it is starting again." | They sat down on the stairs and shared the last of the bread. | Far
    away, a train passed without stopping. | It would have been easy to leave then. | But the key was
    already in the lock. | {person2} took a deep breath and began to explain. | The explanation took a long
    time, and not all of it was true.""")

STORY_REQUESTS: tuple[str, ...] = _items("""Continue this story in a {mood} tone. {constraint}. | Write the
    ending of this story. {constraint}. | Here is the opening of a story. Please write the next {n:2-4}
    paragraphs and bring in {character}. | Rewrite this opening so that it becomes {mood}. | Retell the
    following scene from the point of view of {character}. | Suggest {n:3-5} titles for this text and then
    continue it with one more scene. | Turn this opening into a {mood} poem. | Turn the following scene into
    a stage dialogue. {constraint}. | What could happen next? Sketch {n:2-4} different continuations. | Edit
    this draft: improve the style, keep the plot, and finish it.""")

CREATIVE_MEDIUM: tuple[str, ...] = _items("""I am planning a short story and need your help. The main
    character is {character1}, who lives in {place1} and never talks about {theme1}. One {day}, {character2}
    arrives with {object1} and asks for a favour. The tone should be {mood}, and the reader should guess the
    secret only at the end. Please write the first scene, about {n:150-300} words. {constraint}. It would be
    good if {object2} appeared somewhere in the background. | For {occasion} I would like to read out a text
    that I have not managed to write myself. The person we celebrate is called {person1}, loves {theme1},
    once lost {object1} during a trip to {city1}, and still tells everyone about it. Please write a {mood}
    text of about {n:120-250} words that can be read aloud in two minutes. {constraint}. Do not make fun of
    anybody, and end with a sentence everyone can say together. | Our small company sells {product1}. We are
    based in {city1}, there are {n:3-9} of us, and we have almost no money for advertising. Our customers
    are mostly people who value quality and a little humour. Please write {n:3-5} slogans, a product text of
    about {n:60-120} words and one short {mood} story in which {character1} uses our product in {place1}.
    {constraint}. Avoid big promises, because we do not like them. | Write a scene for two actors.
    {^character1} and {character2} are stuck in {place1}. One of them holds {object1}, the other knows where
    it came from. They begin by talking about {theme1}, politely, then less politely, and at last they
    laugh. The mood is {mood}. Give stage directions in brackets, keep each line short, and let the scene
    last about two pages. {constraint}. The audience should never learn what is in {object2}, although both
    mention it.""")

AMBIGUOUS_SHORT: tuple[str, ...] = _items("""{question}? {lens}. | {^thing} again, and I am {feeling}.
    {vague}? {lens}. | Should I {dilemma}? {lens}. | {person} asked me about {thing}, and I said maybe.
    {vague}? | I cannot decide whether to {dilemma}. {lens}. | What should I do about {thing}? {lens}. | It
    is about {thing} and {thing1}. {vague}? {lens}. | Everyone says it is fine, but I am {feeling} about
    {thing}. {vague}? | {person} wants {thing} by {day}, I think. {vague}? | Can you make {thing} better? I
    am {feeling} and have until {day}. | {question}? {person} says no, and I am {feeling} now. | My friend
    {person} is {feeling} because of {thing}. {vague}? | Help me with {thing}. It has to be ready by {day}.
    {lens}. | We talked about {thing}, then {person} left. {vague}? {lens}. | {question}? Does it depend on
    {theme}, do you think? | Write something about {thing} for {person}, not too long. {lens}.""")

AMBIGUOUS_CONTEXT: tuple[str, ...] = _items("""Since then I have been {feeling}. | {person2} sees it
    differently, of course. | We had agreed to decide together, but nothing was written down. | It was never
    really about {thing2}. | I have {n:3-20} days left, perhaps fewer. | When I asked again, the answer was
    just a smile. | At work nobody knows about it. | My sister would say that I should {dilemma1}, but she
    is not here. | I tried to ignore it for {n:2-9} weeks. | Yesterday there was a note about {thing3},
    without a name. | {person1} has always been kind to me, so I do not want to be unfair. | On the other
    hand, it cost {n:40-900} euros, and somebody has to pay. | Sometimes I think it would be easier to start
    again in {city1}. | It may be only my impression. | The last time something like this happened, I waited
    too long. | {person2} sounded {feeling} on the phone. | We still have the photographs, and the other
    thing. | Everybody gives a different answer. | I do not need a solution, or maybe I do. | The neighbours
    have noticed as well. | It used to be simple. | If I say no, {person3} will have to do it. | If I say
    yes, I will lose at least one free {day2} a week. | I keep making lists and losing them. | There is also
    the question of {theme1}, which nobody mentions. | Part of me finds it almost funny.""")

MESSAGES: tuple[str, ...] = _items("""yes, why | no reason | ok but what about {day1} | I thought we said
    {day2} | {person1} said it was fine | which one do you mean | the {colour} one, obviously | not again |
    I will be there at {n:5-10} or maybe later | can you bring {object2} | I already did | then who has it
    now | ask {person2} | {person2} is not answering | it does not matter any more | are you angry | no,
    just tired | we should talk about it, but not here | sure | how much was it in the end | {n:20-400}, I
    think, or a bit more | that is more than last time | you said you would handle it | I did, in a way |
    let us wait until {month1} | fine with me, but tell {person1} | I thought you had told {person1} |
    forget it | sorry, wrong person | anyway, are you coming | depends on the weather and on {thing3} |
    please do not mention it to the others | too late | well, at least now we know | know what exactly | you
    will see | I have a feeling this is about the trip | maybe we are talking about different things | could
    be | let me call you in {n:5-50} minutes""")

AMBIGUOUS_REQUESTS: tuple[str, ...] = _items("""{vague}? {lens}. | What is really going on here? {lens}. |
    How would you answer in my place? {lens}. | Which questions would you need to ask before giving advice?
    | Please tell me what you think, {format}. | Give me two or three readings of this situation, {format}.
    | Write the reply that I should send, and say why. | Should I {dilemma}? {lens}. | What would {person7}
    say to this, if {person7} were wise? | Help me sort this out {format}. {vague}?""")

MATH_SHORT: tuple[str, ...] = _items("""{person1} buys {a:3-19} {good} at {b:2-15} euros each and pays with
    {c:3-9} notes of 100 euros. How much change is there? {mathformat} | Solve {a:2-19}x + {b:3-60} =
    {c:61-300} for x. {mathformat} | A train covers {a:90-640} kilometres in {b:2-8} hours. What is its
    average speed, and how far does it get in {c:9-14} hours? {mathformat} | What is {a:3-48} percent of
    {b:120-9800}? {mathformat} | A rectangle is {a:3-45} metres long and {b:2-30} metres wide. Find its
    area, perimeter and diagonal. {mathformat} | A bag holds {a:3-15} red and {b:2-15} blue marbles. Two are
    drawn without replacement. What is the probability that both are red? {mathformat} | Convert {a:3-250}
    miles to kilometres and {b:20-110} degrees Fahrenheit to Celsius. {mathformat} | Find the next three
    terms of the sequence that starts with {a:2-9} and always adds {b:3-17}, and then its {c:20-90}th term.
    {mathformat} | Prove in simple words that {proof}. {mathformat} | Explain {concept} with an example that
    uses the number {a:5-120}. {mathformat} | Solve the system x + y = {a:20-90} and x - y = {b:2-18}.
    {mathformat} | A price of {a:40-900} euros is first raised by {b:5-40} percent and then lowered by
    {c:5-40} percent. What is it now? {mathformat} | Calculate {a:23-989} times {b:12-97} without a
    calculator. {mathformat} | How much is {a:500-9000} euros worth after {b:2-12} years at {c:2-7} percent
    compound interest? {mathformat} | A circle has a radius of {a:2-60} centimetres. Find the area and the
    circumference. {mathformat} | In how many ways can {b:2-4} people be chosen from a group of {a:6-14}?
    {mathformat} | {person1} is {a:3-18} years older than {person2}, and together they are {b:40-98} years
    old. How old is each of them? {mathformat} | Find the roots of x^2 - {a:5-20}x + {b:2-24} = 0, if there
    are any. {mathformat} | Find the mean, median and range of {n:2-60}, {n:2-60}, {n:2-60}, {n:2-60},
    {n:2-60} and {n:2-60}. {mathformat} | If {a:3-9} workers need {b:6-30} days for a job, how long do
    {c:10-20} workers need? {mathformat}""")

MATH_MEDIUM: tuple[str, ...] = _items("""{person1} runs a small stall at the market in {town1}. On {day1}
    the stall sells {a:20-80} {good1} at {b:2-9} euros each and {c:15-60} {good2} at {d:3-12} euros each.
    The rent for the stall is {e:30-90} euros a day, and the goods cost {f:2-3} euros apiece on average. On
    the next day, sales of the first product rise by {g:10-50} percent, while those of the second fall by
    half. First find the profit of each day. Then say which product brings in more money. {mathformat} | A
    water tank in the shape of a box is {a:2-6} metres long, {b:2-4} metres wide and {c:2-5} metres high. It
    is filled through a pipe that delivers {d:40-220} litres per minute, and at the same time {e:5-35}
    litres per minute leak out. (a) How many litres fit into the tank? (b) How long does it take to fill it?
    (c) How high is the water after {f:30-90} minutes? (d) What changes if the leak is repaired halfway?
    Remember that one cubic metre is 1000 litres. {mathformat} | In a class of {a:24-36} pupils, {b:9-14}
    play an instrument, {c:8-15} do sports in a club, and {d:2-6} do both. (a) How many do neither? (b) If
    one pupil is chosen at random, what is the probability that this pupil plays an instrument but does no
    sports? (c) Two different pupils are chosen at random. How likely is it that both do both? {person1}
    claims that the two activities are independent. (d) Check whether the numbers support this claim and
    explain in words what it means. {mathformat} | {person1} and {person2} cycle towards each other from
    {town1} and {town2}, which are {a:40-160} kilometres apart. {person1} starts at 8 o'clock and rides at
    {b:12-19} kilometres per hour. {person2} starts {c:10-55} minutes later and rides at {d:20-28}
    kilometres per hour. (a) When do they meet? (b) How far has each of them cycled by then? (c) How would
    the meeting point change if {person1} took a break of {e:10-30} minutes after the first hour? Define
    your variables before you use them. {mathformat} | {person1} wants to save for a trip to {city1} that
    costs {a:900-4800} euros. At the moment there are {b:50-600} euros in the account. Each month {c:60-250}
    euros are added, and once a year the bank pays {d:1-4} percent interest on the balance. In {month1} a
    repair costs {e:80-400} euros. (a) How many months are needed without interest? (b) Does the interest
    make a difference of more than a month? (c) How much should be saved each month to be ready within a
    year? {mathformat}""")

CODE_SHORT: tuple[str, ...] = _items("""Write a {language} function that {task}. {code_extra}. | Please
    write a {language} function called {func} that {task}. {code_extra}. | How would you write code in
    {language} that {task}? {code_extra}. | Write a bash script that {shell_task}. {code_extra}. | Give me a
    shell command that {shell_task}, and explain each option. | Write an SQL query on the table {table1}
    that {sql_task}. Assume sensible column names. | Write a regular expression that matches {pattern_task},
    and explain it {format}. | Explain {code_concept} {format}, with a short example in {language}. | Write
    unit tests for a {language} function that {task}. {code_extra}. | I need a {language} program that
    {task} and prints the result. {code_extra}. | What is the difference between a {language} solution with
    a loop and one with recursion for code that {task}? | Can you show me {code_concept} in {language}?
    Please explain it to {audience}. | Write a {language} class named {class} with methods to add, remove
    and list entries. {code_extra}. | Sketch an algorithm in pseudocode that {task}, then give the
    {language} code. | My {language} function {task}, but it is slow. How can I make it faster?
    {code_extra}.""")

CODE_MEDIUM: tuple[str, ...] = _items("""I am writing a small {language1} tool for a club in {town1}. It
    reads a text file in which each line holds a name, a date and the {field1}, separated by semicolons.
    Some lines are empty, and some have a missing {field1}. Please write a function called {func1} that
    reads the file, skips broken lines, adds up the {field1} per name and returns the names sorted by it,
    largest first. A second function should print the result as a table with aligned columns. {code_extra}.
    Tell me also how you would test it. | Design a {language1} class called {class1}. It keeps a list of
    {list1}, each of which has a name and a {field1}. It needs methods to add one, to remove one by name, to
    return the largest, and to report the average {field1}. Adding the same name twice should raise an
    error. Removing an unknown name should do nothing. After the class, write a short main program that adds
    {n:3-6} of them, removes one and prints a summary. {code_extra}. Please explain your choices {format}. |
    We have two database tables. The table {table1} has the columns id, name, city and created_at. The table
    {table2} has the columns id, {table1}_id, {field1} and status, where the status is open, paid or
    cancelled. Write an SQL query that {sql_task}, as far as the columns allow it. Then write a second query
    that shows for each city the sum of the {field1} of all paid rows above {n:10-900}. {code_extra}.
    Mention which index would help, and why. | Two colleagues disagree. {person1} wants a {language1}
    function that {task}, written as one compact expression. {person2} prefers several small functions with
    names such as {func1} and {func2}, even if that takes {n:20-60} lines. The code will be read by
    beginners and called about {n:100-9000} times an hour. Please write both versions, compare them with
    regard to clarity, speed and testing, and say whose side you are on. {code_extra}. Answer {format}.""")

CODE_REQUESTS: tuple[str, ...] = _items("""Explain what this code does, {format}. | Find the bug in the
    following code, if there is one, and fix it. | Refactor this code so that it is easier to read.
    {code_extra}. | Write unit tests for the code below. {code_extra}. | Translate the following code to
    {language} and explain the differences. | What is the running time of this code, and could it be
    improved? | Review this code as a strict but friendly colleague would. | Add error handling and comments
    to the following code. | Rewrite the code below with better names and explain each change. | What
    happens in this code if the input is empty or very large? Answer {format}. | Explain the following code
    line by line to {audience}.""")

LISTINGS: tuple[str, ...] = _listings("""
def {func1}({list1}):
    {acc1} = 0
    for i in range(1, len({list1})):
        {acc1} += {list1}[i]
    return {acc1} / len({list1})
%%%%
def {func1}({list1}, limit={limit:5-90}):
    {acc1} = []
    for {one1} in {list1}:
        if {one1} > limit:
            {acc1}.append({one1} - limit)
        elif {one1} == limit:
            continue
        else:
            {acc1}.append(0)
    return {acc1}
%%%%
def {func1}({list1}):
    {acc1} = dict()
    for {one1} in {list1}:
        key = {one1}["{field1}"] // {step:5-50}
        if key not in {acc1}:
            {acc1}[key] = []
        {acc1}[key].append({one1}["name"])
    for key in sorted({acc1}):
        print(key, len({acc1}[key]))
    return {acc1}
%%%%
class {class1}:
    def __init__(self, {list1}=[]):
        self.{list1} = {list1}
        self.{field1} = {start:0-40}

    def add(self, name, {field1}):
        self.{list1}.append((name, {field1}))
        self.{field1} += {field1}

    def remove(self, name):
        for {one1} in self.{list1}:
            if {one1}[0] == name:
                self.{list1}.remove({one1})

    def average(self):
        return self.{field1} / len(self.{list1})
%%%%
function {func1}({list1}) {
  let {acc1} = null;
  for (let i = 0; i <= {list1}.length; i++) {
    const {one1} = {list1}[i];
    if ({acc1} === null || {one1}.{field1} > {acc1}.{field1}) {
      {acc1} = {one1};
    }
  }
  return {acc1};
}
%%%%
const {acc1} = {list1}
  .filter(({one1}) => {one1}.{field1} >= {limit:3-80})
  .map(({one1}) => ({ name: {one1}.name, {field1}: {one1}.{field1} * {factor:2-9} }))
  .sort((first, second) => second.{field1} - first.{field1})
  .slice(0, {top:3-12});

console.log({acc1}.length);
%%%%
int {func1}(int *{list1}, int size) {
    int low = 0;
    int high = size - 1;
    while (low < high) {
        int {one1} = {list1}[low];
        {list1}[low] = {list1}[high];
        {list1}[high] = {one1};
        low++;
        high--;
    }
    return size > {limit:2-60} ? {list1}[0] : -1;
}
%%%%
SELECT c.name, SUM(o.{field1}) AS {acc1}
FROM {table1} AS c
LEFT JOIN {table2} AS o ON o.{table1}_id = c.id
WHERE o.{field1} > {limit:10-500} AND c.city = '{city1}'
GROUP BY c.name
HAVING COUNT(*) >= {least:2-9}
ORDER BY {acc1} DESC
LIMIT {top:3-30};
%%%%
#!/bin/bash
for file in {list1}/*.txt; do
    lines=$(wc -l < "$file")
    if [ "$lines" -gt {limit:10-900} ]; then
        echo "$file has $lines lines"
        mv $file archive/{field1}/
    fi
done
%%%%
def {func1}(number, {acc1}=None):
    if {acc1} is None:
        {acc1} = []
    if number < {base:2-9}:
        return {acc1} + [number]
    return {func1}(number // {base:2-9}, [number % {base:2-9}] + {acc1})
%%%%
def {func1}(path):
    {acc1} = []
    with open(path) as handle:
        next(handle)
        for line in handle:
            name, {field1}, city = line.strip().split(",")
            if city == "{city1}":
                {acc1}.append((name, int({field1})))
    {acc1}.sort(key=lambda {one1}: {one1}[1])
    return {acc1}[:{top:2-20}]
%%%%
def {func1}({list1}, target):
    low, high = 0, len({list1})
    while low < high:
        middle = (low + high) // 2
        if {list1}[middle] < target:
            low = middle
        else:
            high = middle
    return low
%%%%
def {func1}({list1}, {field1}={start:2-40}):
    {acc1} = sorted({list1}, key=len)
    while {acc1} and len({acc1}[0]) < {field1}:
        {acc1}.pop(0)
    try:
        return {acc1}[-1].upper()
    except IndexError:
        return "{city1}"
%%%%
struct {class1} {
    char name[{size:8-64}];
    int {field1};
};

int {func1}(struct {class1} *{list1}, int count) {
    int {acc1} = 0;
    for (int i = 0; i < count; i++) {
        if ({list1}[i].{field1} % {step:2-9} == 0)
            {acc1} += {list1}[i].{field1};
    }
    return {acc1} / count;
}
%%%%
async function {func1}(address, attempts = {tries:2-9}) {
  for (let i = 0; i < attempts; i++) {
    const response = await fetch(address + "/{list1}?{field1}=" + {start:1-90});
    if (response.ok) {
      const {acc1} = response.json();
      return {acc1}.{list1};
    }
  }
  throw new Error("no answer for {list1}");
}
%%%%
@dataclass
class {class1}:
    name: str
    {field1}: float = {start:0-60}.0

    def __eq__(self, other):
        return self.name == other.name


def {func1}({list1}: list[{class1}]) -> float:
    {acc1} = set({list1})
    return max({one1}.{field1} for {one1} in {acc1}) - {limit:1-25}
%%%%
UPDATE {table1}
SET {field1} = {field1} * 1.{rate:1-9}, status = 'open'
WHERE city = '{city1}'
   OR id IN (SELECT {table1}_id FROM {table2} WHERE {field1} < {limit:5-400})
   AND status <> 'closed';
""")

CODE_PART_INTRODUCTIONS: tuple[str, ...] = _items("""I inherited these pieces of code from {person}, who
    used them for {n:2-9} years at a shop in {city}. | The listings belong to three different programs that
    a student handed in. | These snippets come from our code review on {day}. | I found three old fragments
    while cleaning up a project.""")

DATA_REQUESTS: tuple[str, ...] = _items("""Write a {language} program that reads the following CSV data and
    prints the sum and the average per city. {code_extra}. | The following records come from a club in
    {town}. Write {language} code that groups them by month and finds the largest entry of each group.
    {code_extra}. | Turn the CSV data below into JSON, grouped by city, and show the {language} code that
    would do it. | Write an SQL table definition and insert statements for the first {n:3-8} records below,
    and a query that {sql_task}, as far as this is possible. | Using the following data, write {language}
    code that finds names that occur more than once and adds up their numbers. {code_extra}. | Check the
    records below for anything suspicious and write a {language} function that would find such rows.
    {code_extra}.""")

TABLE_REQUESTS: tuple[str, ...] = _items("""Summarise the product table and the notes below {format}. |
    Which product in the table below should the shop stop selling, and why? Answer {format}. | Recommend one
    product from the table below to {audience}, using the notes. | Sort the products below by rating and say
    which of them will soon be out of stock. | Compare the three most expensive products below {format}. |
    Write a short report on the sales shown below for {surname}.""")

TABLE_NOTES: tuple[str, ...] = _items("""Notes for the shop in {town1}: the prices are valid until {n:2-28}
    {month1}. | Delivery takes {n:2-9} days and costs {n:3-9} euros, but is free above {n:60-150} euros. |
    Products with a rating below 2.5 are tested again by {person1}. | The supplier in {city1} can send new
    stock only once a month. | Members of the club receive {n:5-15} percent off. | The {colour} models were
    returned more often than the others. | {surname1} would like to reduce the range to six products. |
    Every product carries a warranty of {n:2-4} years. | The ratings come from {n:40-900} customers, not all
    of whom bought something. | Next season a larger version of one product will appear. | The numbers of
    the last week are still missing. | The shop closes on {day1} for the yearly count.""")

MATH_STORY: tuple[str, ...] = _items("""{person1} would like to plan the next year. | The rent of the rooms,
    {n:300-900} euros a month, is already included in the costs. | {person2} helps out and earns
    {wage:12-24} euros per hour. | Last year the total profit was {n:4000-19000} euros. | Serving a customer
    takes {n:5-40} minutes on average. | The bank offers a loan of {loan:5000-30000} euros at {n:2-7}
    percent interest a year. | In {month1} the road in front of the door was closed for {n:5-20} days, so
    fewer people came. | A new machine would cost {n:1500-8000} euros and save {n:5-30} hours of work a
    month. | About {n:10-45} percent of the customers come back within the same year. | {person1} would like
    to know whether the business is doing better than it seems. | The table shows the records so far, with
    the hours of both people added together. | Taxes of {tax:15-30} percent have to be paid on the profit. |
    Of every ten customers, {n:2-6} pay by card, which costs {n:1-3} percent of the amount. | A rival in
    {town2} attracts customers with prices lower by {n:5-20} percent.""")

MATH_QUESTIONS: tuple[str, ...] = _items("""Find the profit of each month and the best month. | What is the
    average income per customer over the whole period? | By how many percent did the income change from the
    first month to the last? | Find the mean and the median of the number of customers. | In which month was
    the income per working hour highest? | How large would the total profit be if all costs rose by {n:3-25}
    percent? | If a customer is picked at random, how likely is it that the visit was in the first two
    months? | Estimate the income of the next month and explain your method. | How many more customers would
    have been needed for a total income of {n:40-95} thousand euros? | Which numbers in the table look
    unusual, and why? | What share of the total costs falls on the most expensive month? | What would
    {person3}, who is paid {n:13-26} euros per hour, have earned for one quarter of all hours?""")

STORY_OPENINGS: tuple[str, ...] = _items("""{^character1} had come to {place1} only for one night. | When
    {character1} opened the door, {place1} was not at all as expected. | It began on a {day} in {place1},
    with {object3}. | For {n:3-40} years {character1} had avoided {place1}. | "That is {object3}," said
    {character1}, "and it does not belong to you." | In {town1} people still tell of {character1} and of
    {object3}. | {person1} was {n:9-60} years old when the letter from {city1} arrived. | There are {n:3-12}
    ways to reach {place1}, and {character1} knew the worst of them. | On the morning of the {n:4-20}th of
    {month1}, {character1} decided not to go home. | Every evening, {character1} looked at {object3} and
    said nothing. | The first thing that {person1} noticed in {place1} was the silence. | Before it all went
    wrong, {person1} and {person2} had been best friends. | {^place1} is no place for {character1}, or so
    everybody thought.""")

MESSAGE_OPENINGS: tuple[str, ...] = _items("""did you see {thing1}? | so, about {thing1} | hey, quick
    question about {day1} | I changed my mind | {person1} just called | is {thing1} still with you? | we
    have a small problem | good news, more or less | do you remember what I said in {month}? | are you at
    home? it is about {thing1} | please do not laugh | what was that on {day1}? | I think {person1} knows |
    can we move it to {day1}? | never mind {thing1}, this is better""")

AMBIGUOUS_OPENINGS: tuple[str, ...] = _items("""Last {day1} {person1} told me that {thing1} was no longer
    important. | It started with {thing1}, as usual. | {person1} and I have known each other for {n:3-30}
    years. | I found {thing1} again, after all this time. | For {n:2-11} months now I have been thinking
    about {thing1}. | There is something about {thing1} that I cannot explain. | This may sound strange, but
    {person1} has changed. | I was asked to decide by {day1}. | We moved to {town1} in {month1}, and then
    everything went quickly. | {person1} has made me an offer, although I would not call it that. | My plan
    for {month1} was clear until {person1} called. | Some people would call it luck, I call it {thing1}.""")

MATH_OPENINGS: tuple[str, ...] = _items("""{person1} owns a small {business1} in {town1} and keeps a record
    of every month. | A {business1} in {city1} has asked {person1} to look through its books. | After
    {n:2-9} years as an employee, {person1} opened a {business1} in {town1}. | The figures below come from
    the {business1} that {person1} runs with a friend. | {person1} took over a {business1} in {town1} from
    {surname1} and compares the months. | For a school project, a class studies the records of the
    {business1} of {person1}.""")
