"""A chat template in the file of its own that older processors write."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from small_checkpoints import save_model
from small_tokenizers import CHATML, byte_level_tokenizer

from specstudy.errors import UserError
from specstudy.models.sources import find_source

OTHER = "Q: {{ messages[0].content }} A:"


def tokenizer_template(directory: Path, held: object, own: str | None = None) -> object:
    save_model(directory, tokenizer=byte_level_tokenizer(own, ["<|im_start|>", "<|im_end|>"]))
    (directory / "chat_template.json").write_text(json.dumps(held))
    return find_source(str(directory), "models.verifier").tokenizer().chat_template


@pytest.mark.parametrize(
    ("held", "own", "read"),
    [
        ({"chat_template": OTHER}, None, OTHER),
        ({"chat_template": OTHER}, CHATML, CHATML),
        ({"chat_template": [{"name": "rag", "template": OTHER}]}, None, {"rag": OTHER}),
    ],
)
def test_it_is_read_where_there_is_no_other(tmp_path: Path, held: object, own: str | None, read: object) -> None:
    assert tokenizer_template(tmp_path, held, own) == read


@pytest.mark.parametrize("held", [OTHER, {}, {"chat_template": 3}, {"chat_template": ["a"]}])
def test_a_damaged_one_is_refused(tmp_path: Path, held: object) -> None:
    with pytest.raises(UserError, match=r"chat_template\.json holds no chat template"):
        tokenizer_template(tmp_path, held)
