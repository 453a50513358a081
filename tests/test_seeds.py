"""Seeds depend on what is generated and on nothing else."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specstudy.seeds import derived_seed, uniforms

parts = st.lists(st.none() | st.integers() | st.text(), max_size=5)


def drawn(*of: int | str | None) -> list[float]:
    return [float(x) for x in uniforms(*of).random(4, dtype=np.float32)]


def test_the_stream_is_this_one_on_every_machine() -> None:
    assert derived_seed(0, "decode", "factual-01", 0) == 6946493890068000147
    assert drawn(0, "decode", "factual-01", 0) == pytest.approx([0.12795031, 0.0479064, 0.628663, 0.05501533], abs=1e-7)


def test_another_process_draws_the_same() -> None:
    script = "from specstudy.seeds import derived_seed; print(derived_seed(3, 'speculate', '日本', 4, None))"
    finished = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert int(finished.stdout) == derived_seed(3, "speculate", "日本", 4, None)


def test_what_ran_before_does_not_matter() -> None:
    expected = {prompt: drawn(0, "decode", prompt) for prompt in "abc"}
    for prompt in "cab":
        uniforms(0, "decode", prompt).random(17)
        np.random.default_rng(0).random()
        assert drawn(0, "decode", prompt) == expected[prompt]


@pytest.mark.parametrize(
    ("one", "other"),
    list(
        combinations(
            [
                (0, "decode", "a", 0),
                (1, "decode", "a", 0),
                (0, "speculate", "a", 0),
                (0, "decode", "b", 0),
                (0, "decode", "a", 1),
                (0, "decode", "a", None),
                (0, "decode", "a", "0"),
                (0, "decode", "a"),
                (0, "decode", "a\x1f0"),
                (0, "decode", 'a", 0'),
                ("0", "decode", "a", 0),
            ],
            2,
        )
    ),
)
def test_every_part_counts(one: tuple[int | str | None, ...], other: tuple[int | str | None, ...]) -> None:
    assert drawn(*one) != drawn(*other)


@given(parts, parts)
def test_parts_that_differ_give_seeds_that_differ(one: list[int | str | None], other: list[int | str | None]) -> None:
    assert (derived_seed(*one) == derived_seed(*other)) == (one == other)


@given(parts)
def test_a_seed_fits_a_signed_64_bit_number(of: list[int | str | None]) -> None:
    assert 0 <= derived_seed(*of) < 2**63


@pytest.mark.parametrize("part", [True, 0.5, np.int64(3), b"a", ("a",)])
def test_parts_whose_writing_could_change_are_refused(part: object) -> None:
    with pytest.raises(TypeError, match="a seed is made of"):
        derived_seed(0, part)


def test_uniforms_are_uniform_and_never_one() -> None:
    numbers = uniforms(0).random(200_000, dtype=np.float32)
    assert numbers.min() >= 0.0
    assert numbers.max() < 1.0
    counts, _ = np.histogram(numbers, 20, (0, 1))
    assert abs(counts - 10_000).max() < 500


def test_streams_of_neighbouring_repetitions_are_not_related() -> None:
    streams = np.stack([uniforms(0, "decode", "a", repetition).random(2000) for repetition in range(6)])
    correlations = np.corrcoef(streams)[np.triu_indices(6, 1)]
    assert abs(correlations).max() < 0.1
