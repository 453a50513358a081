"""Prompts: read them, render them with the chat template, and tell what the user wrote from what the template added."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specstudy.errors import UserError

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

DEFAULT_CATEGORY = "own"


@dataclass(frozen=True)
class Prompt:
    """What the user wants answered, and an optional system text."""

    prompt_id: str
    category: str
    text: str
    system: str | None = None


@dataclass(frozen=True)
class Position:
    """A token of a rendered prompt. `structural_role` is None for content."""

    token_id: int
    role: str
    structural_role: str | None

    @property
    def is_structural(self) -> bool:
        return self.structural_role is not None


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt as the model sees it."""

    prompt: Prompt
    text: str
    positions: tuple[Position, ...]

    @property
    def token_ids(self) -> list[int]:
        return [p.token_id for p in self.positions]


@dataclass(frozen=True)
class Columns:
    """Where a prompt file keeps what: `text` is needed, the others may be missing."""

    text: str = "text"
    prompt_id: str = "prompt_id"
    category: str = "category"
    system: str = "system"


DEFAULT_COLUMNS = Columns()


def read_prompts(path: Path, columns: Columns = DEFAULT_COLUMNS) -> list[Prompt]:
    """Prompts of a JSONL, CSV, Parquet or TXT file (one prompt a line), in file order.

    Prompts without an id get one from the file's name and the line. Raises UserError in one line.
    """
    readers = {".jsonl": _jsonl_rows, ".csv": _csv_rows, ".parquet": _parquet_rows, ".txt": _txt_rows}
    if path.is_dir():
        raise UserError(f"prompts.path={path} is a directory; name a {', '.join(readers)} file")
    if not path.exists():
        raise UserError(f"prompts.path={path}: no such file")
    if path.suffix.lower() not in readers:
        raise UserError(f"prompts.path={path}: unknown kind of file; name a {', '.join(readers)} file")
    try:
        rows = list(readers[path.suffix.lower()](path))
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}") from error
    prompts = [_prompt(row, number, path, columns) for number, row in rows]
    if not prompts:
        raise UserError(f"{path} holds no prompts")
    _refuse_duplicates([p.prompt_id for p in prompts], path)
    return prompts


def _jsonl_rows(path: Path) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise UserError(f"{path} line {number} is not JSON: {error.msg}") from error
        if not isinstance(row, dict):
            raise UserError(f"{path} line {number} is not a JSON object with a text")
        yield number, row


def _csv_rows(path: Path) -> Iterable[tuple[int, Mapping[str, Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file)
        for row in reader:
            yield reader.line_num, {k: v for k, v in row.items() if k is not None and v not in (None, "")}


def _parquet_rows(path: Path) -> Iterable[tuple[int, Mapping[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        rows = pq.read_table(path).to_pylist()
    except pa.ArrowInvalid as error:
        raise UserError(f"{path} is not a Parquet file: {error}") from error
    for number, row in enumerate(rows, start=1):
        yield number, {k: v for k, v in row.items() if v is not None}


def _txt_rows(path: Path) -> Iterable[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(path.read_text(encoding="utf-8-sig").splitlines(), start=1):
        if line.strip():
            yield number, {"text": line.strip()}


def _prompt(row: Mapping[str, Any], number: int, path: Path, columns: Columns) -> Prompt:
    def field(name: str) -> str | None:
        value = row.get(name)
        if value is None:
            return None
        if name == columns.prompt_id and isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"{path} line {number}: {name} must be a text that is not empty")
        return value

    text = field(columns.text)
    if text is None:
        raise UserError(f"{path} line {number} has no {columns.text}; every prompt needs one (prompts.text_column)")
    return Prompt(
        prompt_id=field(columns.prompt_id) or f"{path.stem}-{number:04d}",
        category=field(columns.category) or DEFAULT_CATEGORY,
        text=text,
        system=field(columns.system),
    )


def _refuse_duplicates(ids: Sequence[str], path: Path) -> None:
    seen: set[str] = set()
    for prompt_id in ids:
        if prompt_id in seen:
            raise UserError(f"{path}: prompt_id {prompt_id!r} occurs twice; ids must be unique")
        seen.add(prompt_id)


def select(prompts: Sequence[Prompt], categories: Sequence[str] | None, per_category: int | None) -> list[Prompt]:
    """The prompts of these categories, at most the first `per_category` of each."""
    known = list(dict.fromkeys(p.category for p in prompts))
    for category in categories or ():
        if category not in known:
            raise UserError(f"prompts.categories: no prompt of category {category!r}; there are {', '.join(known)}")
    taken: dict[str, int] = {}
    chosen = []
    for prompt in prompts:
        taken[prompt.category] = taken.get(prompt.category, 0) + 1
        if (categories is None or prompt.category in categories) and (
            per_category is None or taken[prompt.category] <= per_category
        ):
            chosen.append(prompt)
    return chosen


def render(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> RenderedPrompt:
    """Render with the chat template, or as raw text where the tokenizer has none; label every position by span.

    Raises ValueError where the template refuses the prompt or loses what the user wrote.
    """
    spans, text = _content_spans(prompt, tokenizer)
    # A template writes its own BOS; raw text gets the one that the tokenizer adds.
    encoded = tokenizer(text, add_special_tokens=not tokenizer.chat_template, return_offsets_mapping=True)
    starts_of_generation = _generation_prompt_start(prompt, tokenizer, text)
    roles = _structural_roles(text, spans, starts_of_generation, tokenizer)
    positions = []
    n_generation = 0
    for index, (token_id, (start, stop)) in enumerate(zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)):
        owner = next((role for role, low, high in spans if low < stop and start < high), None)
        role, structural = (owner, None) if owner and stop > start else ("template", roles(start, stop, token_id))
        if structural == "generation_prompt":
            structural = f"generation_prompt+{n_generation}"
            n_generation += 1
        if index == 0 and structural is None:
            structural = "first"
        positions.append(Position(token_id, role, structural))
    return RenderedPrompt(prompt, text, tuple(positions))


def _messages(prompt: Prompt, user: str, system: str | None) -> list[dict[str, str]]:
    return ([{"role": "system", "content": system}] if system is not None else []) + [{"role": "user", "content": user}]


def _apply(tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, str]], generation: bool = True) -> str:
    try:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=generation))
    except Exception as error:  # templates raise jinja2 errors and whatever their own raise_exception gives
        raise ValueError(f"the chat template refuses this prompt: {' '.join(str(error).split())}") from error


def _content_spans(prompt: Prompt, tokenizer: PreTrainedTokenizerBase) -> tuple[list[tuple[str, int, int]], str]:
    """(role, start, stop) of each message content in the rendered text, found by rendering markers in their place.

    The text between the markers is the template's own, whatever the user typed; the real rendering must be exactly
    that text with the contents (perhaps stripped of outer white space) in between.
    """
    if not tokenizer.chat_template:
        return [("user", 0, len(prompt.text))], prompt.text
    contents = ([("system", prompt.system)] if prompt.system is not None else []) + [("user", prompt.text)]
    markers = [f"\ue000{role}\ue001" for role, _ in contents]
    skeleton = _apply(tokenizer, _messages(prompt, markers[-1], markers[0] if prompt.system is not None else None))
    text = _apply(tokenizer, _messages(prompt, prompt.text, prompt.system))
    spans = []
    offset = 0
    for (role, content), marker in zip(contents, markers, strict=True):
        before, found, skeleton = skeleton.partition(marker)
        written = next((c for c in (content, content.strip()) if text.startswith(before + c, offset)), None)
        if not found or written is None:
            raise ValueError(f"the chat template changes the {role} text in a way that cannot be followed")
        start = offset + len(before)
        spans.append((role, start, start + len(written)))
        offset = start + len(written)
    if text[offset:] != skeleton:
        raise ValueError("the chat template depends on the text of the prompt in a way that cannot be followed")
    return spans, text


def _generation_prompt_start(prompt: Prompt, tokenizer: PreTrainedTokenizerBase, text: str) -> int:
    """Where the generation prompt begins in the rendered text: what the template adds for the assistant to go on."""
    if not tokenizer.chat_template:
        return len(text)
    without = _apply(tokenizer, _messages(prompt, prompt.text, prompt.system), generation=False)
    return len(without) if text.startswith(without) else len(text)


def _structural_roles(
    text: str, spans: list[tuple[str, int, int]], generation_start: int, tokenizer: PreTrainedTokenizerBase
) -> Callable[[int, int, int], str]:
    """A function (start, stop, token_id) -> the part that a template token plays."""
    special = set(tokenizer.all_special_ids) | {
        i for i, token in getattr(tokenizer, "added_tokens_decoder", {}).items() if token.special
    }
    role_names = {"system", "user", "assistant", "model"}

    def part(start: int, stop: int, token_id: int) -> str:
        if token_id == tokenizer.bos_token_id and start == 0 and not text.startswith("<|im_start|>"):
            return "bos"
        if start >= generation_start:
            return "generation_prompt"
        after_content = any(high == start for _, _, high in spans)
        if token_id in special:
            return "end_marker" if after_content or _closes(text, start) else "role_marker"
        line_start = text.rfind("\n", 0, start) + 1
        line = text[line_start : text.find("\n", start) if "\n" in text[start:] else len(text)]
        if text[start:stop].strip() == "":
            return "role_newline"
        name = "".join(c for c in line if c.isalpha() or c in "_")
        if any(name.endswith(role) for role in role_names):
            return "role_name"
        return "system_prompt"

    return part


def _closes(text: str, start: int) -> bool:
    """Whether a special token ends a message: something other than a line break stands right before it."""
    return start > 0 and text[start - 1] != "\n"
