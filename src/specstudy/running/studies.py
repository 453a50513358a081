"""What is run with a configuration: the whole study, single stages of it, or its answers alone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from specstudy.config import StudyConfig
from specstudy.records import STAGE_TABLES
from specstudy.running.answer import answer
from specstudy.running.stage import Stage
from specstudy.running.stages.decode import DECODE
from specstudy.running.stages.prefill import PREFILL
from specstudy.running.stages.retention import RETENTION
from specstudy.running.stages.routing import ROUTING
from specstudy.running.stages.speculate import SPECULATE
from specstudy.running.workflow import run, run_path_of
from specstudy.tables.run import open_run
from specstudy.tables.run_directory import table_path

STAGES = (PREFILL, DECODE, SPECULATE)


def stages_of(config: StudyConfig) -> list[Stage]:
    """The stages that a study with this configuration has."""
    return [*STAGES, *([RETENTION] if config.retention.budgets else [])]


def study(config: StudyConfig) -> int:
    """Measure what is not measured yet, and answer."""
    return run(config, stages_of(config), after=answer)


def prefill(config: StudyConfig) -> int:
    """Attention over the prompts alone."""
    return run(config, [PREFILL], after=_told("prefill", "make decode"))


def decode(config: StudyConfig) -> int:
    """The verifier's own answers alone."""
    return run(config, [DECODE], after=_told("decode", "make speculate"))


def speculate(config: StudyConfig) -> int:
    """Speculative decoding alone."""
    return run(config, [SPECULATE], after=_told("speculate", "make analyze"))


def _told(stage: str, next_command: str) -> Callable[[Path, StudyConfig], None]:
    """What says what a single stage found; the next stage is that of the same run only with the same settings."""

    def tell(run_dir: Path, config: StudyConfig) -> None:
        # Imported here: pandas takes a moment that a wrong word need not wait for.
        from specstudy.report.stage_terminal import stage_summary

        given = "" if run_path_of(config) == run_path_of(StudyConfig()) else ", with the same settings"
        stage_summary(stage, f"{next_command}{given}", open_run(run_dir).frames(), run_dir)

    return tell


def routing(config: StudyConfig) -> int:
    """The study with its routing, for a verifier that has experts. Raises UserError, before any work, for another."""
    from specstudy.models.routers import router_kind
    from specstudy.models.sources import find_source

    models = config.models
    source = find_source(models.verifier, "models.verifier", models.trust_remote_code)
    router_kind(source.config(), models.verifier)
    return run(config, [*stages_of(config), ROUTING], after=answer)


def analyze(config: StudyConfig) -> int:
    """Answer from the run's tables; measure first whatever of them is missing."""
    path = run_path_of(config)
    missing = [
        stage
        for stage in stages_of(config)
        if not all(table_path(path, table).exists() for table in STAGE_TABLES[stage.name])
    ]
    return run(config, missing, after=answer)
