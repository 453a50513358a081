from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rotary_models import longrope_config
from safetensors.torch import load_file, save_file
from small_checkpoints import END_ID, N_TOKENS, edit_json, save_model, small_llama, write_gguf
from small_tokenizers import CHATML
from tiny_mixtures import families
from transformers import AutoModelForCausalLM

from specstudy.config import StudyConfig
from specstudy.errors import UserError
from specstudy.models import device as devices
from specstudy.models import sources
from specstudy.models.device import DeviceMemory
from specstudy.overrides import study_config
from specstudy.running import doctor, workflow


@pytest.fixture(autouse=True)
def _nothing_is_loaded_or_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    def fetch(name: str, local_files_only: bool = False, **others: object) -> str:
        assert local_files_only, "a model was fetched"
        raise FileNotFoundError

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", lambda *_, **__: pytest.fail("weights were loaded"))
    monkeypatch.setattr(sources, "snapshot_download", fetch)
    monkeypatch.setattr(doctor, "say_duration", lambda *_: print("The duration."))


def configuration(tmp_path: Path, *words: str, texts: tuple[str, ...] = ("Hello.", "Hello you all.")) -> StudyConfig:
    """A small pair and prompts of one byte a token; 20 new tokens."""
    for name, layers in (("verifier", 3), ("draft", 1)):
        if not (tmp_path / name).exists():
            save_model(tmp_path / name, small_llama(num_hidden_layers=layers, max_position_embeddings=96))
    lines = [json.dumps({"prompt_id": f"prompt-{i}", "text": text}) for i, text in enumerate(texts)]
    (tmp_path / "prompts.jsonl").write_text("\n".join(lines))
    fixed = [f"models.{name}={tmp_path / name}" for name in ("verifier", "draft")]
    place = ["prompts=file", f"prompts.path={tmp_path / 'prompts.jsonl'}", "decode.max_new_tokens=20"]
    return study_config([*fixed, *place, *words])


def facts(printed: str) -> dict[str, str]:
    """What is printed beside each name, where that fits on one line."""
    pairs = (line.strip().split(maxsplit=1) for line in printed.splitlines())
    return {pair[0]: pair[1].strip() for pair in pairs if len(pair) == 2}


def test_a_pair_that_fits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = configuration(tmp_path, "execution.threads=1", "execution.dtype=float32")
    capsys.readouterr()
    assert doctor.doctor(config) == 0
    said = capsys.readouterr()
    assert said.err == ""
    assert "\x1b" not in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    shown = facts(said.out)
    assert shown["torch"] == torch.__version__
    assert shown["dtype"] == "float32 (execution.dtype)"
    assert shown["threads"].startswith("1 on ")
    assert "all see the whole text" in shown["layers"]
    assert shown["context"].split() == ["96", "tokens"] * 2
    around = len("<|im_start|>user\n<|im_end|>\n<|im_start|>assistant\n") - 2 * 11 - 9
    assert f"2 prompts, the longest {around + len('Hello you all.')} tokens, and 20 new ones." in said.out
    assert "It fits: 0.5 GiB of " in said.out


def test_experts_are_told_where_there_are_any(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(tmp_path / "mixture", families(N_TOKENS)["deepseek_v2"])
    assert doctor.doctor(configuration(tmp_path, f"models.verifier={tmp_path / 'mixture'}")) == 0
    said = capsys.readouterr().out
    assert "8 in 2 layers, 3 a token" in said
    assert doctor.doctor(configuration(tmp_path)) == 0
    assert "experts" not in facts(capsys.readouterr().out)


def test_what_a_gguf_file_was_read_as(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gguf(tmp_path / "small.gguf")
    assert doctor.doctor(configuration(tmp_path, f"models.verifier={tmp_path / 'small.gguf'}")) == 0
    said = " ".join(capsys.readouterr().out.split())
    for row in ("GGUF: family llama", "GGUF: rope rope_theta 10000, rope_type default", "GGUF: tensor types F32"):
        assert row in said
    assert "soft cap" not in said
    assert f"GGUF: eos token ids {END_ID}" in said


def test_the_context_ends_where_rotary_frequencies_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(tmp_path / "longrope", longrope_config(60, vocab_size=N_TOKENS))
    config = configuration(tmp_path, f"models.verifier={tmp_path / 'longrope'}", texts=("Hi.", "a" * 40))
    capsys.readouterr()
    assert doctor.doctor(config) == 0
    said = capsys.readouterr().out
    assert facts(said)["context"].startswith("60 tokens, beyond it")
    assert facts(said)["context"].endswith("96 tokens")
    assert "1 of them cannot be measured, being too long or refused: prompt-1 (" in said


def test_every_missing_model_is_a_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["models.verifier=somebody/large", "models.draft=/nosuch"]
    config = configuration(tmp_path, *words)
    capsys.readouterr()
    assert doctor.doctor(config) == 2
    said = capsys.readouterr()
    assert said.err.splitlines() == [
        "error: models.verifier=somebody/large is not, or not wholly, on this machine; `hf download somebody/large` "
        "fetches it, and so does the first run where there is a network",
        "error: models.draft=/nosuch: no such directory or file; name a model directory, a GGUF file or a Hub id",
    ]
    assert "This machine" in said.out
    assert "The pair" not in said.out


def test_tokenizers_that_do_not_match_are_refused(tmp_path: Path) -> None:
    config = configuration(tmp_path)
    path = tmp_path / "draft" / "tokenizer.json"
    path.write_text(path.read_text().replace('"<|im_end|>"', '"<|stop|>"'))
    with pytest.raises(UserError, match="does not share the tokens"):
        doctor.doctor(config)


@pytest.mark.parametrize("find", [doctor.doctor, workflow.find_models])
def test_more_exit_layers_than_the_verifier_has_are_refused(
    find: Callable[[StudyConfig], object], tmp_path: Path
) -> None:
    config = configuration(tmp_path, "spec.proposer=early_exit", "spec.exit_layers=3")
    with pytest.raises(UserError, match=r"^spec\.exit_layers=3 must be fewer than the 3 layers of .*verifier$"):
        find(config)
    find(configuration(tmp_path, "spec.proposer=early_exit", "spec.exit_layers=2"))


def test_prompts_that_cannot_be_measured_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert doctor.doctor(configuration(tmp_path, texts=("Hello.", "a" * 60))) == 0
    assert "1 of them cannot be measured, being too long or refused: prompt-1 (" in capsys.readouterr().out


def test_prompts_of_which_none_can_be_measured_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^none of the prompts can be measured, .*: prompt-0 \("):
        doctor.doctor(configuration(tmp_path, texts=("a" * 60,)))


@pytest.mark.parametrize("find", [doctor.doctor, workflow.find_models])
def test_a_chat_template_has_to_be_named_where_there_is_no_default(
    find: Callable[[StudyConfig], object], tmp_path: Path
) -> None:
    config = configuration(tmp_path)
    (tmp_path / "verifier" / "chat_template.jinja").unlink()
    named = [{"name": name, "template": CHATML} for name in ("rag", "tools")]
    edit_json(tmp_path / "verifier" / "tokenizer_config.json", chat_template=named)
    with pytest.raises(UserError, match=r"none of them default; give prompts\.template=rag, prompts\.template=tools$"):
        find(config)
    find(configuration(tmp_path, "prompts.template=rag"))


def test_what_is_left_out_of_a_prompt_file_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = configuration(tmp_path)
    with (tmp_path / "prompts.jsonl").open("a") as file:
        file.write('\n{"text": "Why?", "answer": "So."}\n')
    assert doctor.doctor(config) == 0
    assert f"note: {tmp_path / 'prompts.jsonl'}: not used: answer\n" in capsys.readouterr().out


@pytest.mark.parametrize("find", [doctor.doctor, workflow.find_models])
def test_weights_that_are_lost_are_the_same_line_as_in_a_study(
    find: Callable[[StudyConfig], object], tmp_path: Path
) -> None:
    config = configuration(tmp_path)
    path = tmp_path / "draft" / "model.safetensors"
    save_file({**load_file(path), "model.bias": torch.ones(3)}, path, metadata={"format": "pt"})
    with pytest.raises(UserError, match=r"^models\.draft=.*its files hold 1 tensors that .* the first model\.bias$"):
        find(config)


@pytest.mark.parametrize("find", [doctor.doctor, workflow.find_models])
def test_what_is_not_measured_is_said(
    find: Callable[[StudyConfig], object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = configuration(tmp_path)
    (tmp_path / "draft" / "adapter_config.json").write_text('{"base_model_name_or_path": "somebody/base"}')
    capsys.readouterr()
    find(config)
    said = capsys.readouterr()
    assert (
        f"note: models.draft={tmp_path / 'draft'}: a LoRA adapter of somebody/base lies beside the weights and is not "
        "applied\n"
    ) in said.out + said.err


@pytest.mark.parametrize(
    ("gibibytes", "status", "said"),
    [
        (4.0, 0, "It fits: 0.5 GiB of 4.0 GiB on cpu."),
        (0.52, 0, "0.5 GiB of 0.5 GiB on cpu"),
        (0.25, 1, "0.5 GiB needed, cpu has 0.2 GiB"),
    ],
)
def test_the_verdict(
    gibibytes: float,
    status: int,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    memory = DeviceMemory(int(gibibytes * 2**30), None)
    monkeypatch.setattr(devices, "device_memory", lambda device: memory)
    assert doctor.doctor(configuration(tmp_path)) == status
    printed = capsys.readouterr().out
    assert said in printed
    assert ("The duration." in printed) == (status == 0)


def test_about_how_long_a_study_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.undo()
    assert doctor.doctor(configuration(tmp_path, "execution.device=cpu", "output_dir=" + str(tmp_path / "out"))) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "With nothing measured yet, measuring takes about 10 s (" in said
    assert not (tmp_path / "out").exists(), "what doctor times is kept for no study"
