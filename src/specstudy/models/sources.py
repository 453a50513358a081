"""Where a model comes from: the embedded one, a directory, a GGUF file, or the Hub. Nobody's code is run unasked."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from specstudy.config import local_path
from specstudy.errors import UserError, no_such
from specstudy.formulas import Dimensions
from specstudy.models import embedded, upcycled
from specstudy.models.dimensions import dimensions_of
from specstudy.models.gguf_model import GgufModel, read_gguf
from specstudy.models.processor_template import processor_template

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
WEIGHTS_INDEX = "model.safetensors.index.json"
CHOICES = "name a model directory, a GGUF file or a Hub id"


@dataclass(frozen=True)
class ModelSource:
    """A local directory with a model, or a GGUF file in one. `key` and `name` are what the user set, for messages;
    `notes` say what of its files is not measured, once that has been looked at."""

    key: str
    name: str
    directory: Path
    gguf_file: str | None
    trust_remote_code: bool
    notes: tuple[str, ...] = ()

    @property
    def arguments(self) -> dict[str, Any]:
        """Keyword arguments for every `from_pretrained`."""
        return {"trust_remote_code": self.trust_remote_code}

    @property
    def gguf(self) -> GgufModel | None:
        """The GGUF file, all of it accounted for; None for a directory. Raises UserError."""
        if not self.gguf_file:
            return None
        try:
            return read_gguf(self.directory / self.gguf_file)
        except Exception as error:  # whatever a model's files make the libraries raise
            raise self.refused(error) from error

    def weight_files(self) -> list[Path]:
        """The files with the weights, seen to be whole. Raises UserError for none, some missing, or a damaged one."""
        files = self.listed_weight_files()
        if self.gguf_file:
            return files
        for file in files:
            if not file.is_file():
                raise self.refused(f"{file.name} is missing; the download was perhaps cut off, repeat it")
            try:
                with safe_open(str(file), framework="pt"):
                    pass
            except (OSError, SafetensorError) as error:
                raise self.refused(f"{file.name} is damaged or cut off ({error}); fetch it again") from error
        return files

    def listed_weight_files(self) -> list[Path]:
        """The files that should hold the weights, by their names alone. Raises UserError if none is named."""
        if self.gguf_file:
            return [self.directory / self.gguf_file]
        try:
            files = _safetensors_files(self.directory)
        except (OSError, ValueError, RecursionError) as error:
            raise self.refused(f"{WEIGHTS_INDEX} is damaged ({error}); fetch it again") from error
        if not files:
            raise self.refused(_what_is_there_instead(self.directory, WEIGHTS))
        return files

    def config_file(self) -> Path:
        """Where a directory says what its model is. Raises UserError if it does not."""
        if not (self.directory / CONFIG).is_file():
            raise self.refused(_what_is_there_instead(self.directory, CONFIG))
        return self.directory / CONFIG

    def config(self) -> PreTrainedConfig:
        """The configuration. Raises UserError."""
        if self.gguf:
            return self.gguf.config()
        self.config_file()
        try:
            return AutoConfig.from_pretrained(self.directory, **self.arguments)
        except Exception as error:  # whatever a model's files make the library raise
            raise self.refused(error) from error

    def tokenizer(self) -> PreTrainedTokenizerBase:
        """The tokenizer. Raises UserError, also for one that cannot say where its tokens lie in a text."""
        if self.gguf:
            return self.gguf.tokenizer
        try:
            tokenizer = AutoTokenizer.from_pretrained(self.directory, **self.arguments)
            if not tokenizer.chat_template:
                tokenizer.chat_template = processor_template(self.directory)
        except Exception as error:  # whatever a model's files make the library raise
            raise self.refused(_damaged_file(self.directory) or error) from error
        if not tokenizer.is_fast:
            raise self.refused("its tokenizer does not give the places of tokens in a text; it needs a tokenizer.json")
        return tokenizer

    def without_weights(self) -> PreTrainedModel:
        """The model's modules and shapes alone, given no memory. Raises UserError."""
        config = self.config()
        try:
            with torch.device("meta"):
                module: PreTrainedModel = AutoModelForCausalLM.from_config(
                    config, trust_remote_code=self.trust_remote_code
                )
        except Exception as error:  # whatever a model's files make the library raise
            raise self.refused(error) from error
        return module

    def dimensions(self, module: PreTrainedModel) -> Dimensions:
        """Sizes of this model's modules. Raises UserError."""
        try:
            return dimensions_of(module)
        except Exception as error:  # whatever a model's own code raises
            raise self.refused(f"one token's pass fails: {error!r}") from error

    def refused(self, reason: object) -> UserError:
        """One line for whatever is wrong with this model: foreign files fail in every way there is."""
        line = " ".join(str(reason).split()) or type(reason).__name__
        if isinstance(reason, KeyError) and " " not in line:  # a name alone says nothing
            line = f"transformers does not know {line}, which its files state or imply"
        if "trust_remote_code" in line:
            line = "it brings code of its own; models.trust_remote_code=true runs that, if you trust its authors"
        return UserError(f"{self.key}={self.name} cannot be loaded: {line[:300]}")


def find_source(name: str, key: str, trust_remote_code: bool = False, fetch: bool = True) -> ModelSource:
    """The source that a model setting names. Raises UserError if there is none.

    What is not on this machine is fetched from the Hub, unless `fetch` is false.
    """
    if name.startswith(embedded.PREFIX):
        made_here = {embedded.NAME: embedded.ensure_embedded_verifier, upcycled.NAME: upcycled.ensure_mixture}
        if name not in made_here:
            raise no_such("embedded model", name, list(made_here), shown=f"{key}={name}")
        return ModelSource(key, name, made_here[name](), None, trust_remote_code)
    path = existing_path(name)
    if path is None:
        if name.startswith((".", "/", "~")) or name.count("/") > 1 or name.endswith(".gguf"):
            raise UserError(f"{key}={name}: no such directory or file; {CHOICES}")
        return ModelSource(key, name, _snapshot(name, key, fetch), None, trust_remote_code)
    if path.is_dir():
        return ModelSource(key, name, path, None, trust_remote_code)
    if path.suffix.lower() != ".gguf":
        hint = f"name its directory: {path.parent}" if path.suffix == ".safetensors" else CHOICES
        raise UserError(f"{key}={name} is a file but not a .gguf; {hint}")
    return ModelSource(key, name, path.parent, path.name, trust_remote_code)


def trunk_of(source: ModelSource) -> ModelSource:
    """The model that shallow drafts of this one are cut from: itself, or the dense model it was made of."""
    return find_source(embedded.NAME, source.key) if source.name == upcycled.NAME else source


def existing_path(name: str) -> Path | None:
    """The local path that a model setting names, or None if nothing is there."""
    with contextlib.suppress(OSError, RuntimeError, ValueError):  # too long a name, an unknown ~user, a NUL
        path = local_path(name)
        return path if path.exists() else None
    return None


def _snapshot(name: str, key: str, fetch: bool) -> Path:
    """Local directory of a Hub id: the Hub's own cache if it is whole there, else fetched now, without retries."""
    wanted = ["*.json", "model*.safetensors", "*.model", "*.txt", "*.jinja", "*.py"]
    with contextlib.suppress(OSError, ValueError):
        cached = Path(snapshot_download(name, allow_patterns=wanted, local_files_only=True))
        files = _safetensors_files(cached)
        if files and all(file.is_file() for file in files):
            return cached
    if not fetch:
        raise UserError(
            f"{key}={name} is not, or not wholly, on this machine; `hf download {name}` fetches it, "
            "and so does the first run where there is a network"
        )
    try:
        return Path(snapshot_download(name, allow_patterns=wanted))
    except HFValidationError as error:
        raise UserError(f"{key}={name}: no such directory or file, nor the form of a Hub id; {CHOICES}") from error
    except GatedRepoError as error:
        raise UserError(f"{key}={name}: accept its terms on its Hub page, then `hf auth login`") from error
    except RepositoryNotFoundError as error:
        raise UserError(f"{key}={name}: no such directory, and the Hub has no such public model; {CHOICES}") from error
    except Exception as error:  # whatever the network, a proxy or the disk has to say
        raise UserError(
            f"{key}={name}: no such directory, and the Hub cannot be reached for it; "
            f"where there is a network, `hf download {name}` fetches it, or name a local directory"
        ) from error


def _safetensors_files(directory: Path) -> list[Path]:
    """The weight files that a directory has or should have; none if it is not a safetensors model. Raises ValueError
    for an index that is damaged."""
    if (directory / WEIGHTS).is_file():
        return [directory / WEIGHTS]
    if (directory / WEIGHTS_INDEX).is_file():
        return sorted({directory / file for file in read_index(directory).values()})
    return []


def read_index(directory: Path) -> dict[str, str]:
    """For each tensor the name of its file. Raises OSError or ValueError for an index that does not say that."""
    index = json.loads((directory / WEIGHTS_INDEX).read_text(encoding="utf-8"))
    files = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(files, dict) or not files:
        raise ValueError("it has no weight_map from tensors to files")
    for tensor, file in files.items():
        if not isinstance(file, str) or file != Path(file).name:
            raise ValueError(f"the file of {tensor} is {file!r}, not a file's name")
    return files


def _damaged_file(directory: Path) -> str | None:
    """The first file of a directory that should be JSON and is not; the library does not name it."""
    for file in sorted(directory.glob("*.json")):
        try:
            json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            return f"{file.name} is damaged ({error}); fetch it again"
    return None


def _what_is_there_instead(directory: Path, wanted: str) -> str:
    if ggufs := sorted(file.name for file in directory.glob("*.gguf")):
        return f"the directory holds GGUF; name the file itself: {directory / ggufs[0]}"
    if any(directory.glob("pytorch_model*.bin")):
        return "its weights are a pytorch_model.bin, which can run code when loaded; convert to safetensors or GGUF"
    if wanted == WEIGHTS and (parts := sorted(file.name for file in directory.glob("*-of-*.safetensors"))):
        return f"it holds {parts[0]} and other parts of its weights, but no {WEIGHTS_INDEX}; fetch that too"
    return f"there is no {wanted} in {directory}"
