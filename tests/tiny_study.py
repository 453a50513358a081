"""A study that takes a second: tiny random models, a tokenizer of bytes, five short prompts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import tiny
from small_tokenizers import CHATML, CHATML_MARKS, byte_level_tokenizer

from specstudy.config import StudyConfig
from specstudy.models.load import Pair
from specstudy.overrides import study_config

CONTEXT_LENGTH = 256
NEW_TOKENS = 6
REFUSED_WORD = "forbidden"
TEMPLATE = (
    f"{{% if '{REFUSED_WORD}' in messages[-1]['content'] %}}{{{{ raise_exception('not that word') }}}}{{% endif %}}"
    + CHATML
)
PROMPTS = {
    f"prompt-{i}": f"Say {word} in a few words." for i, word in enumerate(["one", "two", "three", "four", "five"])
}


def tiny_pair() -> Pair:
    """Two random models of one tokenizer, whose template refuses REFUSED_WORD."""
    tokenizer = byte_level_tokenizer(TEMPLATE, special=CHATML_MARKS)
    n = len(tokenizer)
    verifier, draft = (
        replace(tiny.llama(seed, vocab_size=n, max_position_embeddings=CONTEXT_LENGTH), vocabulary=n) for seed in (0, 1)
    )
    return Pair(verifier, draft, tokenizer, (tokenizer.convert_tokens_to_ids("<|im_end|>"),))


def words(output_dir: Path, prompts: dict[str, str] = PROMPTS) -> list[str]:
    """What the command line says for a study of these prompts with NEW_TOKENS and one answer each; their file is
    written."""
    output_dir.mkdir(exist_ok=True)
    lines = [json.dumps({"prompt_id": name, "text": text}) for name, text in prompts.items()]
    path = output_dir / "prompts.jsonl"
    path.write_text("\n".join(lines) + "\n")
    place = [f"prompts.path={path}", f"output_dir={output_dir}"]
    answers = [f"decode.max_new_tokens={NEW_TOKENS}", "decode.repetitions=1"]
    return ["prompts=file", *place, *answers, "execution.threads=1"]


def configuration(output_dir: Path, prompts: dict[str, str] = PROMPTS, *further: str) -> StudyConfig:
    """The same as a configuration, at gamma 2."""
    return study_config([*words(output_dir, prompts), "spec.gamma=2", *further])
