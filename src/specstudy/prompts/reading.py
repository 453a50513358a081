"""Prompts from files: what each row has to hold, and the one line that says what is wrong with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from specstudy.errors import UserError, one_line
from specstudy.prompts.columns import NO_COLUMN, Columns, is_empty
from specstudy.prompts.conversation import Talk, read_conversation
from specstudy.prompts.fields import MAX_NAME_CHARACTERS, name_of, text_of
from specstudy.prompts.files import Row, plain_name, read_rows
from specstudy.prompts.prompt import Prompt
from specstudy.records import SUBSETS

DEFAULT_CATEGORY = "own"
DEFAULT_COLUMNS = Columns()
BEFORE_CONTEXT = "\n\n"


def read_prompts(path: Path, columns: Columns = DEFAULT_COLUMNS) -> list[Prompt]:
    """Prompts of a JSON, JSONL, CSV, TSV, Parquet or TXT file (one prompt a line), in file order.

    A row holds a text, or messages (a list of {role, content} or {from, value}; JSON and Parquet), and in any case a
    system text if there is one. Of a conversation the last message of the user gets answered, of `turns` the first.
    Prompts without an id get one from the file's name and the line. Raises UserError in one line.
    """
    return read_prompt_file(path, columns)[0]


def read_prompt_file(path: Path, columns: Columns = DEFAULT_COLUMNS) -> tuple[list[Prompt], list[str]]:
    """The prompts of a file, and a line on each thing in it that was left out of them."""
    reader = _Reader(path, columns)
    prompts: dict[str, Prompt] = {}
    for row in read_rows(path, columns.text):
        prompt = reader.prompt(row)
        if prompt.prompt_id in prompts:
            shown = one_line(prompt.prompt_id, 60)
            raise UserError(f"{row.place}: {columns.prompt_id} {shown!r} occurs twice; ids must be unique")
        prompts[prompt.prompt_id] = prompt
    if not prompts:
        raise UserError(f"{path} holds no prompts")
    columns.refuse_absent(reader.seen, str(path))
    return list(prompts.values()), reader.notes(len(prompts))


def select(prompts: Sequence[Prompt], categories: Sequence[str] | None, per_category: int | None) -> list[Prompt]:
    """The prompts of these categories in their order, `per_category` of each, spread over its lengths (None: all).

    Raises UserError for a category that no prompt has.
    """
    known = list(dict.fromkeys(p.category for p in prompts))
    for category in categories or ():
        if category not in known:
            raise UserError(
                f"prompts.categories: no prompt of category {category!r}; there are {one_line(', '.join(known))}"
            )
    wanted = [p for p in prompts if categories is None or p.category in categories]
    if per_category is None:
        return wanted
    members: dict[str, list[Prompt]] = {}
    for prompt in wanted:
        members.setdefault(prompt.category, []).append(prompt)
    chosen = {prompt_id for group in members.values() for prompt_id in _spread_over_lengths(group, per_category)}
    return [p for p in wanted if p.prompt_id in chosen]


def _spread_over_lengths(prompts: Sequence[Prompt], n: int) -> list[str]:
    """Ids of n prompts at even steps of rank by length, the shortest and the longest among them; one: the shortest."""
    by_length = sorted((p.n_characters, p.prompt_id) for p in prompts)
    n = min(n, len(by_length))
    return [by_length[round(i * (len(by_length) - 1) / max(n - 1, 1))][1] for i in range(n)]


@dataclass
class _Reader:
    """Makes prompts of rows, and keeps in mind what of them was used."""

    path: Path
    columns: Columns
    seen: dict[str, bool] = field(default_factory=dict)  # whether a column holds anything in any row
    used: set[str] = field(default_factory=set)
    left_out: Counter[str] = field(default_factory=Counter)

    def prompt(self, row: Row) -> Prompt:
        c, place = self.columns, row.place
        values = {name: value for name, value in row.values.items() if name != NO_COLUMN}
        column = c.of_the_prompt(values, place)
        self.used |= {column, c.prompt_id, c.category, c.system, c.context, c.group}.difference({NO_COLUMN})
        for name, value in row.values.items():
            self.seen[name] = self.seen.get(name, False) or not is_empty(value)
        talk = self._talk(values[column], column, place)
        system = text_of(values.get(c.system), c.system, place, may_be_blank=True)
        if talk.system is not None and system and system.strip():
            raise UserError(f"{place} has both {c.system} and a system message; give one of them")
        context = text_of(values.get(c.context), c.context, place)
        category = name_of(values.get(c.category), c.category, place) or DEFAULT_CATEGORY
        if category in SUBSETS:
            raise UserError(
                f"{place}: {c.category} {category!r} is what the tables call a subset of the prompts; "
                "rename it, or prompts.category_column=none reads none"
            )
        return Prompt(
            prompt_id=name_of(values.get(c.prompt_id), c.prompt_id, place) or f"{_stem(self.path)}-{row.number:04d}",
            category=category,
            text=talk.text if context is None else talk.text + BEFORE_CONTEXT + context,
            system=system if talk.system is None else talk.system,
            history=talk.history,
            group=name_of(values.get(c.group), c.group, place),
        )

    def _talk(self, value: object, column: str, place: str) -> Talk:
        if self.columns.are_messages(column):
            talk = read_conversation(value, column, place)
            self.left_out["end in an answer: the last message of the user gets answered"] += talk.was_answered
            return talk
        if isinstance(value, list) and self.columns.may_be_turns(column) and isinstance(value[0], str):
            self.left_out["have several turns: the first is the prompt"] += len(value) > 1
            value = value[0]
        elif isinstance(value, list) and isinstance(value[0], Mapping):
            raise UserError(f"{place}: {column} is no text; prompts.messages_column={column} reads a conversation")
        text = text_of(value, column, place)
        if text is None:
            raise UserError(f"{place}: the first of {column} is empty")
        return Talk(None, (), text, False)

    def notes(self, n_prompts: int) -> list[str]:
        """A line on each thing that was left out."""
        notes = [f"{n} of {n_prompts} prompts {what}" for what, n in self.left_out.items() if n]
        unused = self.columns.unused([name for name, holds in self.seen.items() if holds], self.used)
        return [f"{self.path}: {note}" for note in (*notes, unused) if note]


def _stem(path: Path) -> str:
    """The file's name without its endings, as part of an id."""
    return one_line(plain_name(path).stem.encode(errors="replace").decode(), MAX_NAME_CHARACTERS // 2)
