from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specstudy.tables.differences import differences, flatten, override_text

NESTED = st.recursive(
    st.integers() | st.none() | st.lists(st.integers()),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
CONFIGS = st.dictionaries(st.sampled_from("abc"), NESTED, max_size=3)


def test_differing_keys_are_dotted_and_in_order() -> None:
    config = {"spec": {"gamma": [6], "stop": "none"}, "seed": 1, "new": {"deep": {"er": 2}}}
    defaults = {"spec": {"gamma": [4], "stop": "none"}, "seed": 0, "old": True}
    assert differences(config, defaults) == {
        "spec.gamma": ([6], [4]),
        "seed": (1, 0),
        "new.deep.er": (2, None),
        "old": (None, True),
    }


@pytest.mark.parametrize(
    ("value", "text"), [([4], "4"), ([2, 6], "[2,6]"), ("a b", "a b"), (None, "null"), (0.5, "0.5"), (True, "true")]
)
def test_values_are_written_as_in_an_override(value: object, text: str) -> None:
    assert override_text(value) == text


@given(CONFIGS)
def test_flat_keys_lead_to_their_values(config: dict[str, object]) -> None:
    for key, value in flatten(config).items():
        place: object = config
        for name in key.split("."):
            assert isinstance(place, dict)
            place = place[name]
        assert place == value
    assert differences(config, config) == {}


@given(CONFIGS, CONFIGS)
def test_differences_are_the_same_from_both_sides(one: dict[str, object], two: dict[str, object]) -> None:
    assert differences(one, two) == {key: (a, b) for key, (b, a) in differences(two, one).items()}
