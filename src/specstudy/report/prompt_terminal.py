"""One prompt drawn in the terminal: sinks, the answer by entropy, every speculative round."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

from specstudy.report.prompt_view import DARKEST_BITS, ENTROPY_LEVELS, AnswerToken, PromptToken, PromptView, Round
from specstudy.report.style import number, readable_token, visible_token

# From calm blue to hot red; tokens are also readable without colour, by the table of surest and least sure ones.
_SHADES = ("default", "sky_blue3", "cyan3", "green3", "yellow3", "gold3", "orange1", "dark_orange", "red1")
_FATES = {
    "accepted": "green",
    "rejected": "red strike",
    "untested": "dim",
    "correction": "bold yellow",
    "bonus": "bold cyan",
}
# What a round is without colour.
_MARKS = {"accepted": "", "rejected": "✗", "untested": "?", "correction": "→", "bonus": "+"}
_LISTED = 8


def draw_prompt(view: PromptView, condition: str, console: Console) -> None:
    """Prints everything measured on one prompt; parts that were not measured are left out."""
    console.print()
    console.print(Text(view.prompt_id + (f" ({view.category})" if view.category else ""), style="bold"))
    for failure in view.failures:
        console.print(Text(failure, style="bold red"))
    if view.prompt:
        console.print(Rule("prompt: template dim, sinks underlined", align="left"))
        console.print(_prompt_text(view.prompt))
        for note in view.notes:
            console.print(Text(note, style="dim italic"))
        console.print(_sink_table("Structural sinks", [t for t in view.prompt if t.is_sink and t.structural_role]))
        console.print(_sink_table("Anomalous sinks", [t for t in view.prompt if t.is_anomalous]))
    if view.answer:
        console.print(Rule("answer of the verifier alone, by entropy", align="left"))
        console.print(_scale())
        console.print(_answer_text(view.answer))
        console.print(_hesitations(view.answer))
    if view.rounds:
        console.print(Rule(f"speculative rounds, {condition}", align="left"))
        console.print(_fate_legend())
        for round_ in view.rounds:
            console.print(_round_line(round_))
    console.print(Rule("summary", align="left"))
    console.print(_summary(view))


def _prompt_text(tokens: tuple[PromptToken, ...]) -> Text:
    text = Text()
    for token in tokens:
        style = "dim" if token.structural_role else ""
        if token.is_sink:
            style += " underline bold red" if token.is_anomalous else " underline"
        text.append(_running(token.text), style.strip())
    return text


def _running(token: str) -> str:
    return readable_token(token).replace("↵", "")


def _sink_table(title: str, sinks: list[PromptToken]) -> Table | Text:
    if not sinks:
        return Text(f"{title}: none")
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("position", justify="right")
    table.add_column("token", no_wrap=True, max_width=20, overflow="ellipsis")
    table.add_column("part")
    table.add_column("z", justify="right")
    table.add_column("z, last positions", justify="right")
    for token in sorted(sinks, key=lambda t: -(t.z_score or 0))[:_LISTED]:
        part = (token.structural_role or "content").replace("_", " ")
        z_scores = number(token.z_score, 1), number(token.z_window, 1)
        table.add_row(str(token.position), Text(visible_token(token.text)), part, *z_scores)
    return table


def _scale() -> Text:
    text = Text("0 ")
    for level in range(ENTROPY_LEVELS + 1):
        text.append("██", _SHADES[level])
    return text.append(f" {DARKEST_BITS:g} bits and more")


def _answer_text(tokens: tuple[AnswerToken, ...]) -> Text:
    text = Text()
    for token in tokens:
        text.append(_running(token.text), _SHADES[token.level])
    return text


def _hesitations(tokens: tuple[AnswerToken, ...]) -> Table:
    """The tokens at which the model was least sure, with what else it considered."""
    title = "Least sure (entropy of verifier and draft in bits, expected acceptance)"
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("step", justify="right")
    table.add_column("token", no_wrap=True, max_width=14, overflow="ellipsis")
    for name in ("bits", "draft", "accept"):
        table.add_column(name, justify="right")
    table.add_column("candidates", overflow="fold")
    for token in sorted(tokens, key=lambda t: -t.entropy_bits)[:_LISTED]:
        candidates = ", ".join(f"{visible_token(text)} {p:.2f}" for text, p in token.candidates[:3])
        measures = (token.entropy_bits, token.draft_entropy_bits, token.expected_accept)
        table.add_row(
            str(token.step), Text(visible_token(token.text)), *(number(m) for m in measures), Text(candidates)
        )
    return table


def _fate_legend() -> Text:
    text = Text()
    for fate, style in _FATES.items():
        text.append(f"{_MARKS[fate]}{fate}", style)
        text.append("  ")
    return text


def _round_line(round_: Round) -> Text:
    text = Text(f"{round_.number:>3}  {round_.n_accepted}/{round_.n_proposed}  ", style="")
    for token in round_.tokens:
        text.append(f"{_MARKS[token.fate]}{visible_token(token.text)}", _FATES[token.fate])
        text.append(" ")
    return text


def _summary(view: PromptView) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column()
    for name, value in _summary_rows(view):
        table.add_row(name, Text(value))
    return table


def _summary_rows(view: PromptView) -> list[tuple[str, str]]:
    rows = []
    if view.prompt:
        content = [t for t in view.prompt if t.structural_role is None]
        sinks = f"{sum(t.is_sink for t in view.prompt) - sum(t.is_anomalous for t in content)} structural"
        rows.append(("prompt", f"{len(view.prompt)} tokens, {len(content)} of content"))
        rows.append(("sinks", f"{sinks}, {sum(t.is_anomalous for t in content)} anomalous"))
    if view.health is not None:
        rows.append(("context health", f"{number(view.health)} (soft, 0 to 10)"))
    if view.answer:
        mean = sum(t.entropy_bits for t in view.answer) / len(view.answer)
        rows.append(("answer", f"{len(view.answer)} tokens, mean entropy {number(mean)} bits"))
    if view.rounds:
        fates = [token.fate for round_ in view.rounds for token in round_.tokens]
        accepted, proposed = fates.count("accepted"), sum(r.n_proposed for r in view.rounds)
        tested = accepted + fates.count("rejected")
        alpha = number(accepted / tested if tested else None)
        rate = number(accepted / proposed if proposed else None)
        rows.append(("rounds", f"{len(view.rounds)}: {proposed} proposed, {tested} tested, {accepted} accepted"))
        rows.append(("acceptance", f"alpha {alpha}, accepted / proposed {rate}"))
    if view.speedup is not None:
        rows.append(("speedup", f"{number(view.speedup)} (verifier alone = 1)"))
    return rows
