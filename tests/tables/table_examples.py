"""Rows of any table for tests: one plain example, and a hypothesis strategy over all that a row may hold."""

from __future__ import annotations

import dataclasses
import types
from typing import Any, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from specstudy.records import STAGE_TABLES, TABLES, Half

_EXAMPLES: dict[Any, object] = {str: "word", int: 1, float: 0.5, Half: 0.5, bool: True}
_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_STRATEGIES: dict[Any, st.SearchStrategy[Any]] = {
    str: _TEXTS,
    int: st.integers(-(2**63), 2**63 - 1),
    float: st.floats(allow_nan=False, allow_infinity=False),
    Half: st.floats(width=16, allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
}


def example(table: str, **values: object) -> Any:
    """A row of the table with the given values, None where it may be, and something plain elsewhere."""
    return TABLES[table](**{name: _plain(hint) for name, hint in _hints(table).items()} | values)


def examples(table: str, count: int) -> list[Any]:
    """Rows that differ in their keys only."""
    return [example(table, prompt_id=f"prompt-{number:03d}") for number in range(count)]


def stage_examples(stage: str, prompt_id: str = "prompt-000") -> dict[str, list[Any]]:
    """The rows of a stage for one prompt: two in its first table, one in each other."""
    result = {table: [example(table, prompt_id=prompt_id)] for table in STAGE_TABLES[stage]}
    first = STAGE_TABLES[stage][0]
    column = {"prefill_tokens": "position", "decode_tokens": "step", "spec_tokens": "index"}[first]
    result[first].append(example(first, prompt_id=prompt_id, **{column: 2}))
    return result


def rows(table: str, max_size: int = 5) -> st.SearchStrategy[list[Any]]:
    """Lists of rows with arbitrary allowed values."""
    columns = {name: _strategy(hint) for name, hint in _hints(table).items()}
    return st.lists(st.builds(TABLES[table], **columns), max_size=max_size)


def _hints(table: str) -> dict[str, Any]:
    hints = get_type_hints(TABLES[table])
    return {field.name: hints[field.name] for field in dataclasses.fields(TABLES[table])}


def _plain(hint: Any) -> object:
    if get_origin(hint) is types.UnionType:
        return None
    return [_EXAMPLES[get_args(hint)[0]]] * 2 if get_origin(hint) is list else _EXAMPLES[hint]


def _strategy(hint: Any) -> st.SearchStrategy[Any]:
    if get_origin(hint) is types.UnionType:
        return st.one_of(*(st.none() if choice is types.NoneType else _strategy(choice) for choice in get_args(hint)))
    if get_origin(hint) is list:
        return st.lists(_STRATEGIES[get_args(hint)[0]], max_size=4)
    return _STRATEGIES[hint]
