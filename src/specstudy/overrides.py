"""Hydra at the edge: override words go in, a checked StudyConfig comes out, and every error is one line of ours."""

from __future__ import annotations

import fnmatch
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

from hydra import compose, initialize_config_dir
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from specstudy.config import PROJECT_ROOT, StudyConfig, all_rules, from_mapping, to_mapping, unknown_key
from specstudy.errors import UserError, no_such
from specstudy.rules import TEXT
from specstudy.tables.differences import flatten

CONFIG_DIR = PROJECT_ROOT / "conf"
CONFIG_NAME = "study"
FILE_KEYS = ("prompts.path", "output_dir")
MODEL_KEYS = ("models.verifier", "models.draft")
HYDRA_KEYS = ("hydra/launcher", "hydra.launcher.*", "hydra.sweep.dir")
"""What of Hydra itself has an effect, in a sweep: who runs its points, and where that leaves its own files."""


def study_config(words: Sequence[str]) -> StudyConfig:
    """The configuration that plain override words ask for (`spec.gamma=6`, `prompts=factual`).

    Raises UserError for anything wrong with them; loads no model and no torch.
    """
    return _compose(prepare(words))


def sweep_configs(prepared: Sequence[str]) -> list[StudyConfig]:
    """The configuration of every point of a sweep over words from `prepare(words, sweep=True)`."""
    return [_compose(point) for point in _sweep_points(prepared)]


def swept_keys(prepared: Sequence[str]) -> set[str]:
    """The keys that a sweep varies."""
    parsed = (_parse(word) for word in prepared)
    return {override.get_key_element() for override in parsed if override.is_sweep_override()}


def defaults() -> dict[str, object]:
    """The value of every setting that no word changes, by its dotted key, as `conf/` has it."""
    with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
        composed = OmegaConf.to_container(compose(CONFIG_NAME))
    return {**flatten(to_mapping(StudyConfig())), **flatten(cast(dict[str, object], composed))}


def from_hydra(composed: DictConfig) -> StudyConfig:
    """A checked StudyConfig from a composed Hydra config."""
    try:
        values = OmegaConf.to_container(composed, resolve=True)
    except OmegaConfBaseException as error:
        raise UserError(_first_line(error)) from None
    return from_mapping(cast(dict[str, Any], values))


def choices(group: str) -> list[str]:
    """The choices of a config group: the files in its folder."""
    return sorted(file.stem for file in (CONFIG_DIR / group).glob("*.yaml"))


def groups() -> list[str]:
    """The config groups."""
    return sorted(folder.name for folder in CONFIG_DIR.iterdir() if folder.is_dir())


def prepare(words: Sequence[str], sweep: bool = False) -> list[str]:
    """Override words as Hydra's grammar wants them.

    Texts (paths, model names, columns) are quoted, so that they hold any character; in a sweep a comma separates
    them. Relative paths start at the current directory. Every key exists, so a leading `+` or `++` changes nothing.
    """
    prepared = [_prepared(word, sweep) for word in words]
    for word in prepared:
        _check_hydra(word, HYDRA_KEYS if sweep else ())
    keys = {word.partition("=")[0] for word in prepared}
    if keys.intersection(MODEL_KEYS) and "models.name" not in keys:
        prepared.append("models.name=custom")
    if "prompts.path" in keys and "prompts.name" not in keys:
        prepared.append("prompts.name=file")
    return prepared


def _check_hydra(word: str, allowed: Sequence[str]) -> None:
    """Raise UserError for a setting of Hydra itself that would change nothing."""
    key = word.partition("=")[0].lstrip("+~").partition("@")[0]
    if key.startswith(("hydra.", "hydra/")) and not any(fnmatch.fnmatchcase(key, form) for form in allowed):
        raise UserError(f"{key}: does nothing here; of Hydra's own settings sweeps take {', '.join(HYDRA_KEYS)}")


def _prepared(word: str, sweep: bool) -> str:
    key, equals, value = word.partition("=")
    if not key.lstrip("+").startswith("hydra"):
        key = key.lstrip("+")
    rule = all_rules().get(key)
    if not equals or rule is not TEXT:
        return key + equals + value
    values = value.split(",") if sweep else [value]
    return f"{key}={','.join(quoted(_from_here(key, item)) for item in values)}"


def _from_here(key: str, value: str) -> str:
    """A path that the user gave, made absolute; a model name stays a name unless it looks like a path or is one."""
    if not value:
        return value
    is_path = key in FILE_KEYS or (key in MODEL_KEYS and (value.startswith(("~", ".")) or Path(value).exists()))
    return str(Path.cwd() / Path(value).expanduser()) if is_path else value


def quoted(value: str) -> str:
    """A text as a literal of Hydra's grammar that OmegaConf does not interpolate either."""
    return QuotedString(text=_without_interpolation(value), quote=Quote.single).with_quotes()


def _without_interpolation(value: str) -> str:
    r"""`${` becomes `\${`, and backslashes right before it are doubled: OmegaConf's escape."""
    before, *rest = value.split("${")
    for part in rest:
        stripped = before.rstrip("\\")
        before = stripped + "\\" * (2 * (len(before) - len(stripped)) + 1) + "${" + part
    return before


def _parse(word: str) -> Override:
    try:
        if word.startswith("="):
            raise HydraException
        return OverridesParser.create().parse_override(word)
    except HydraException:
        raise UserError(
            f"{word}: not understood; write key=value, a list as key=[a,b], and quotes around special characters"
        ) from None


def _sweep_points(prepared: Sequence[str]) -> list[list[str]]:
    alternatives = []
    for word in prepared:
        override = _parse(word)
        if override.is_sweep_override():
            try:
                values = list(override.sweep_string_iterator())
            except (HydraException, TypeError, ValueError) as error:
                raise UserError(f"{word}: {_first_line(error)}") from None
            alternatives.append([f"{override.get_key_element()}={value}" for value in values])
        else:
            alternatives.append([word])
    return [list(point) for point in itertools.product(*alternatives)]


def _compose(prepared: Sequence[str]) -> StudyConfig:
    for word in prepared:
        _check_key(_parse(word), word)
    try:
        with initialize_config_dir(str(CONFIG_DIR), version_base="1.3"):
            composed = compose(CONFIG_NAME, overrides=list(prepared))
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        raise UserError(_first_line(error)) from None
    return from_hydra(composed)


def _check_key(override: Override, word: str) -> None:
    """Raise UserError for a key or choice that does not exist, better told here than by Hydra."""
    key = override.key_or_group
    if override.is_delete():
        raise UserError(f"{word}: a setting cannot be removed; set it to null where it may be empty")
    if override.is_sweep_override():
        raise UserError(f"{word}: several values; a list is written {key}=[a,b], several runs are `make sweep`")
    if key.startswith(("hydra.", "hydra/")):
        return
    value = override.value()
    if isinstance(value, dict):
        for name in value:
            _check_exists(f"{key}.{name}")
    elif key in groups():
        _check_choice(key, value)
    else:
        _check_exists(key)


def _check_exists(key: str) -> None:
    if key not in all_rules():
        raise unknown_key(key)


def _check_choice(group: str, value: object) -> None:
    valid = choices(group)
    if group == "experiment" and value is None:
        return
    if value not in valid:
        given = "null" if value is None else str(value)
        raise no_such("choice", given, valid, shown=f"{group}={given}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
