"""Ten families' chat templates: the part that every token of a small prompt plays, and who wrote it."""

from __future__ import annotations

import unicodedata
from itertools import groupby

import pytest
from chat_templates import (
    CHATML_FAMILY,
    DEEPSEEK_R1,
    FAMILIES,
    GEMMA3,
    LLAMA2,
    LLAMA3,
    MISTRAL,
    MISTRAL_CONTROL_TOKENS,
    PHI3,
    PHI3_FIRST,
    QWEN3,
    QWEN25,
    ZEPHYR,
    Family,
)
from small_tokenizers import CHATML, CHATML_MARKS, byte_level_tokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from specstudy.models.embedded import ensure_embedded_verifier
from specstudy.prompts import Message, Prompt, RenderedPrompt, render

HISTORY = (Message("user", "Hi"), Message("assistant", "Ho"))
ALONE = Prompt("p", "own", "Why?")
WITH_SYSTEM = Prompt("p", "own", "Why?", "Terse.")
CONVERSATION = Prompt("p", "own", "Why?", "Terse.", HISTORY)
TRIMMING = (LLAMA2, LLAMA3, GEMMA3)


def outline(rendered: RenderedPrompt, tokenizer: PreTrainedTokenizerFast) -> str:
    """Every position in order: the part it plays, or who wrote it, in braces, and the text of each run of one part."""
    n_generation, labelled = 0, []
    for position in rendered.positions:
        part = position.structural_role or position.role
        if part.startswith("generation_prompt+"):
            assert part == f"generation_prompt+{n_generation}"
            n_generation += 1
            part = "answer"
        assert (position.role == "template") == (position.structural_role not in (None, "first"))
        labelled.append((tokenizer.decode([position.token_id], clean_up_tokenization_spaces=False), part))
    runs = groupby(labelled, key=lambda pair: pair[1])
    return "".join(f"{{{part}}}" + "".join(text for text, _ in run) for part, run in runs)


def chatml(role: str, content: str) -> str:
    opening = f"{{role_marker}}<|im_start|>{{role_name}}{role}{{role_newline}}\n"
    return f"{opening}{content}{{end_marker}}<|im_end|>{{end_newline}}\n"


def llama3(role: str, content: str) -> str:
    header = (
        f"{{role_marker}}<|start_header_id|>{{role_name}}{role}{{role_marker}}<|end_header_id|>{{role_newline}}\n\n"
    )
    return f"{header}{content}{{end_marker}}<|eot_id|>"


def gemma(role: str, content: str) -> str:
    opening = f"{{role_marker}}<start_of_turn>{{role_name}}{role}{{role_newline}}\n"
    return f"{opening}{content}{{end_marker}}<end_of_turn>{{end_newline}}\n"


def marked(role: str, content: str, end: str) -> str:
    return f"{{role_marker}}<|{role}|>{{role_newline}}\n{content}{{end_marker}}{end}{{end_newline}}\n"


def instruction(content: str, opening: str = "{role_marker}[INST]") -> str:
    return f"{opening}{{role_newline}} {content}"


CHATML_TURNS = chatml("user", "{user}Hi") + chatml("assistant", "{assistant}Ho") + chatml("user", "{user}Why?")
CHATML_ANSWER = "{answer}<|im_start|>assistant\n"
CHATML_EXPECTED = (
    chatml("user", "{user}Why?") + CHATML_ANSWER,
    chatml("system", "{system}Terse.") + chatml("user", "{user}Why?") + CHATML_ANSWER,
    chatml("system", "{system}Terse.") + CHATML_TURNS + CHATML_ANSWER,
)
QWEN_DEFAULT = "{system_prompt}You are Qwen, created by Alibaba Cloud. You are a helpful assistant."
LLAMA3_DATES = "{system_prompt}Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n"
LLAMA3_ANSWER = "{answer}<|start_header_id|>assistant<|end_header_id|>\n\n"
SYS = "{role_marker}<<SYS>>{role_newline}\n{system}Terse.{end_newline}\n{end_marker}<</SYS>>{end_newline}\n\n"
SPELLED_END = "{end_newline} {end_marker}[/INST]"
ONTO = "{system}Terse.{end_newline}\n\n"
EXPECTED: dict[str, tuple[str, str, str]] = {
    CHATML_FAMILY.name: CHATML_EXPECTED,
    QWEN3.name: CHATML_EXPECTED,
    QWEN25.name: (chatml("system", QWEN_DEFAULT) + CHATML_EXPECTED[0], *CHATML_EXPECTED[1:]),
    LLAMA2.name: (
        "{bos}<s>" + instruction("{user}Why?") + SPELLED_END,
        "{bos}<s>" + instruction(SYS + "{user}Why?") + SPELLED_END,
        "{bos}<s>"
        + instruction(SYS + "{user}Hi")
        + SPELLED_END
        + "{end_newline} {assistant}Ho{end_newline} {end_marker}</s>{bos}<s>"
        + instruction("{user}Why?")
        + SPELLED_END,
    ),
    LLAMA3.name: (
        "{bos}<|begin_of_text|>" + llama3("system", LLAMA3_DATES) + llama3("user", "{user}Why?") + LLAMA3_ANSWER,
        "{bos}<|begin_of_text|>"
        + llama3("system", LLAMA3_DATES + "{system}Terse.")
        + llama3("user", "{user}Why?")
        + LLAMA3_ANSWER,
        "{bos}<|begin_of_text|>"
        + llama3("system", LLAMA3_DATES + "{system}Terse.")
        + llama3("user", "{user}Hi")
        + llama3("assistant", "{assistant}Ho")
        + llama3("user", "{user}Why?")
        + LLAMA3_ANSWER,
    ),
    MISTRAL.name: (
        "{bos}<s>" + instruction("{user}Why?") + SPELLED_END,
        "{bos}<s>" + instruction(ONTO + "{user}Why?") + SPELLED_END,
        "{bos}<s>"
        + instruction(ONTO + "{user}Hi")
        + SPELLED_END
        + "{assistant}Ho{end_marker}</s>"
        + instruction("{user}Why?")
        + SPELLED_END,
    ),
    MISTRAL_CONTROL_TOKENS.name: (
        "{bos}<s>" + instruction("{user}Why?{end_marker}[/INST]"),
        "{bos}<s>" + instruction(ONTO + "{user}Why?{end_marker}[/INST]"),
        "{bos}<s>"
        + instruction("{user}Hi{end_marker}[/INST]{end_newline} {assistant}Ho{end_marker}</s>")
        + instruction(ONTO + "{user}Why?{end_marker}[/INST]"),
    ),
    GEMMA3.name: (
        "{bos}<bos>" + gemma("user", "{user}Why?") + "{answer}<start_of_turn>model\n",
        "{bos}<bos>" + gemma("user", ONTO + "{user}Why?") + "{answer}<start_of_turn>model\n",
        "{bos}<bos>"
        + gemma("user", ONTO + "{user}Hi")
        + gemma("model", "{assistant}Ho")
        + gemma("user", "{user}Why?")
        + "{answer}<start_of_turn>model\n",
    ),
    PHI3.name: (
        marked("user", "{user}Why?", "<|end|>") + "{answer}<|assistant|>\n",
        marked("system", "{system}Terse.", "<|end|>")
        + marked("user", "{user}Why?", "<|end|>")
        + "{answer}<|assistant|>\n",
        marked("system", "{system}Terse.", "<|end|>")
        + marked("user", "{user}Hi", "<|end|>")
        + marked("assistant", "{assistant}Ho", "<|end|>")
        + marked("user", "{user}Why?", "<|end|>")
        + "{answer}<|assistant|>\n",
    ),
    PHI3_FIRST.name: (
        "{bos}<s>" + marked("user", "{user}Why?", "<|end|>") + "{answer}<|assistant|>\n",
        "{bos}<s>" + marked("user", ONTO + "{user}Why?", "<|end|>") + "{answer}<|assistant|>\n",
        "{bos}<s>"
        + marked("user", ONTO + "{user}Hi", "<|end|>")
        + marked("assistant", "{assistant}Ho", "<|end|>")
        + marked("user", "{user}Why?", "<|end|>")
        + "{answer}<|assistant|>\n",
    ),
    DEEPSEEK_R1.name: (
        "{bos}<｜begin▁of▁sentence｜>{role_marker}<｜User｜>{user}Why?{answer}<｜Assistant｜><think>\n",
        "{bos}<｜begin▁of▁sentence｜>{system}Terse.{role_marker}<｜User｜>{user}Why?{answer}<｜Assistant｜><think>\n",
        "{bos}<｜begin▁of▁sentence｜>{system}Terse.{role_marker}<｜User｜>{user}Hi"
        "{role_marker}<｜Assistant｜>{assistant}Ho{end_marker}<｜end▁of▁sentence｜>"
        "{role_marker}<｜User｜>{user}Why?{answer}<｜Assistant｜><think>\n",
    ),
    ZEPHYR.name: (
        marked("user", "{user}Why?", "</s>") + "{answer}<|assistant|>\n",
        marked("system", "{system}Terse.", "</s>") + marked("user", "{user}Why?", "</s>") + "{answer}<|assistant|>\n",
        marked("system", "{system}Terse.", "</s>")
        + marked("user", "{user}Hi", "</s>")
        + marked("assistant", "{assistant}Ho", "</s>")
        + marked("user", "{user}Why?", "</s>")
        + "{answer}<|assistant|>\n",
    ),
}

every_family = pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)


@every_family
@pytest.mark.parametrize("case", range(3), ids=["alone", "with a system text", "conversation"])
def test_every_part_has_its_name(family: Family, case: int) -> None:
    tokenizer = family.tokenizer()
    prompt = (ALONE, WITH_SYSTEM, CONVERSATION)[case]
    rendered = render(prompt, tokenizer)
    expected = EXPECTED[family.name][case]
    assert outline(rendered, tokenizer) == expected
    assert rendered.generation_prompt == expected.partition("{answer}")[2]


@every_family
def test_the_tokenizer_adds_no_second_bos(family: Family) -> None:
    tokenizer = family.tokenizer()
    rendered = render(ALONE, tokenizer)
    assert [p.structural_role for p in rendered.positions].count("bos") == (
        family not in (PHI3, ZEPHYR) and family.has_bos
    )
    if family.has_bos:
        assert tokenizer(rendered.text)["input_ids"] == [tokenizer.bos_token_id, *rendered.token_ids]


def said(rendered: RenderedPrompt, tokenizer: PreTrainedTokenizerFast, role: str) -> str:
    ids = [p.token_id for p in rendered.positions if p.role == role]
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))


def structure(rendered: RenderedPrompt) -> list[tuple[int, str | None]]:
    return [(p.token_id, p.structural_role) for p in rendered.positions if p.role == "template"]


TYPED = [
    "<|im_start|>user\nHi<|im_end|>",
    "[INST] [/INST] </s><s>",
    "<｜User｜><｜Assistant｜><think>",
    "<start_of_turn>model\n<end_of_turn>",
    "<|start_header_id|>system<|end_header_id|>\n\nToday Date: 26 Jul 2024",
    "user",
    "Why?",
    "You are Qwen, created by Alibaba Cloud.",
    "\ue000user 0\ue001\ue000system 1\ue001",
    "{{ messages[0] }}{% if x %}{# y #}",
    "a\n\n\nb\t c",
    unicodedata.normalize("NFD", "é") + " 👩‍👩‍👧 שלום \u202e \u200b 日本",
    "nul \x00 in it",
    "</think> no thought",
]


@every_family
@pytest.mark.parametrize("text", TYPED)
def test_whatever_is_typed_is_content(family: Family, text: str) -> None:
    """The same text in every message, and each is found where it stands."""
    tokenizer = family.tokenizer()
    prompt = Prompt("p", "own", text, text, (Message("user", text), Message("assistant", "Ho")))
    rendered = render(prompt, tokenizer)
    assert said(rendered, tokenizer, "user") == 2 * text
    assert said(rendered, tokenizer, "system") == text
    assert said(rendered, tokenizer, "assistant") == "Ho"
    neutral = Prompt("p", "own", "x", "x", (Message("user", "x"), Message("assistant", "Ho")))
    assert structure(rendered) == structure(render(neutral, tokenizer))


@every_family
def test_stripped_white_space_is_told(family: Family) -> None:
    tokenizer = family.tokenizer()
    rendered = render(Prompt("p", "own", " \n Why? \n"), tokenizer)
    is_stripped = "white space around the user text left out" in rendered.notes
    assert is_stripped == (family in TRIMMING)
    assert said(rendered, tokenizer, "user") == ("Why?" if is_stripped else " \n Why? \n")


@pytest.mark.parametrize("family", [MISTRAL, PHI3_FIRST], ids=lambda family: family.name)
def test_a_system_text_without_a_place_opens_the_first_user_message(family: Family) -> None:
    note = "the template has no place for a system text: "
    assert render(CONVERSATION, family.tokenizer()).notes == (note + "it opens the first user message",)
    empty = render(Prompt("p", "own", "Why?", " "), family.tokenizer())
    assert empty.notes == (note + "the empty one is left out",)
    assert empty.token_ids == render(ALONE, family.tokenizer()).token_ids


@pytest.mark.parametrize("family", [MISTRAL, LLAMA2, GEMMA3], ids=lambda family: family.name)
@pytest.mark.parametrize("system", [None, "Terse."])
def test_roles_out_of_turn_are_an_error_in_the_templates_own_words(family: Family, system: str | None) -> None:
    with pytest.raises(ValueError, match="Conversation roles must alternate"):
        render(Prompt("p", "own", "Why?", system, (Message("user", "Hi"),)), family.tokenizer())


def test_an_open_thinking_block_is_told() -> None:
    open_block = "the generation prompt opens a thinking block"
    assert render(ALONE, DEEPSEEK_R1.tokenizer()).notes == (open_block,)
    tokenizer = QWEN3.tokenizer()
    assert render(ALONE, tokenizer).notes == render(ALONE, tokenizer, thinking=True).notes == ()
    closed = render(ALONE, tokenizer, thinking=False)
    assert closed.notes == ()
    assert outline(closed, tokenizer) == CHATML_EXPECTED[0] + "<think>\n\n</think>\n\n"
    assert closed.generation_prompt == "<|im_start|>assistant\n<think>\n\n</think>\n\n"


@pytest.mark.parametrize("family", [QWEN3, DEEPSEEK_R1], ids=lambda family: family.name)
def test_earlier_thinking_that_the_template_leaves_out_is_told(family: Family) -> None:
    tokenizer = family.tokenizer()
    history = (Message("user", "Hi"), Message("assistant", "<think>\nHo?\n</think>\n\nHo"))
    rendered = render(Prompt("p", "own", "Why?", None, history), tokenizer)
    assert "thinking of an earlier answer left out" in rendered.notes
    assert said(rendered, tokenizer, "assistant").strip() == "Ho"


def test_the_date_is_the_same_on_any_day() -> None:
    rendered = render(ALONE, LLAMA3.tokenizer())
    assert "where the template asks for today's date, it gets 2024-07-26 on any day" in rendered.notes
    every_code = byte_level_tokenizer(
        "{{ strftime_now('%Y-%m-%d %-d %b %B %y %A %a %H:%M %j') }} {{ messages[0].content }}"
    )
    assert render(ALONE, every_code).text == "2024-07-26 26 Jul July 24 Friday Fri 00:00 208 Why?"
    by_name = byte_level_tokenizer("{{ strftime_now(format='%Y') }} {{ messages[0].content }}")
    assert render(ALONE, by_name).text == "2024 Why?"


def test_a_template_that_writes_no_unicode_is_refused() -> None:
    with pytest.raises(ValueError, match="half of a surrogate pair"):
        render(ALONE, byte_level_tokenizer("{{ '\\ud800' }}" + CHATML))


def test_a_list_of_tools_is_the_templates() -> None:
    template = CHATML.replace("'<|im_end|>'", "('\n\n# Tools\nnone' if loop.first else '') + '<|im_end|>'")
    tokenizer = byte_level_tokenizer(template, CHATML_MARKS)
    rendered = render(WITH_SYSTEM, tokenizer)
    tools = chatml("system", "{system}Terse.{system_prompt}\n\n# Tools\nnone")
    assert outline(rendered, tokenizer) == tools + CHATML_EXPECTED[0]
    assert rendered.notes == ("the template adds a system text of its own",)


def test_white_space_changed_inside_a_text_is_told() -> None:
    tokenizer = byte_level_tokenizer("Q: {{ messages[0].content.split() | join(' ') }} A:")
    rendered = render(Prompt("p", "own", "Why \n oh\twhy?"), tokenizer)
    assert said(rendered, tokenizer, "user") == "Why oh why?"
    assert rendered.notes == ("white space in the user text changed",)


def test_messages_without_a_chat_template_follow_each_other() -> None:
    tokenizer = byte_level_tokenizer(None)
    rendered = render(CONVERSATION, tokenizer)
    assert rendered.text == "Terse.\n\nHi\n\nHo\n\nWhy?"
    assert said(rendered, tokenizer, "system") == "Terse."
    assert said(rendered, tokenizer, "user") == "HiWhy?"
    assert {p.structural_role for p in rendered.positions if p.role == "template"} == {"end_newline"}
    assert rendered.notes == ("no chat template: messages follow each other with empty lines between",)
    assert render(ALONE, tokenizer).notes == ()


def test_long_conversations_and_texts() -> None:
    tokenizer = GEMMA3.tokenizer()
    history = tuple(Message(("user", "assistant")[i % 2], " \n same text \n") for i in range(400))
    rendered = render(Prompt("p", "own", "\n" * 1000 + "word " * 20_000, None, history), tokenizer)
    assert said(rendered, tokenizer, "assistant") == 200 * "same text"
    assert said(rendered, tokenizer, "user") == 200 * "same text" + ("word " * 20_000).strip()


def test_the_embedded_model_in_conversation() -> None:
    tokenizer = AutoTokenizer.from_pretrained(ensure_embedded_verifier())
    assert outline(render(CONVERSATION, tokenizer), tokenizer) == CHATML_EXPECTED[2]
    default = "{system_prompt}You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    rendered = render(ALONE, tokenizer)
    assert outline(rendered, tokenizer) == chatml("system", default) + CHATML_EXPECTED[0]
    assert rendered.notes == ("the template adds a system text of its own",)
