"""From tables to answers: `correlations`, `claims`, figures, report, and a summary in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specstudy.config import StudyConfig
from specstudy.records import MECHANISM_TABLES, ROUTING_TABLES, SINK_TABLES, VERSION_TABLES, WRITING_TABLES
from specstudy.tables import manifest
from specstudy.tables.run import open_run
from specstudy.tables.run_directory import publish_table
from specstudy.tables.schema import to_table

if TYPE_CHECKING:
    from specstudy.analysis.bootstrap import AnalysisSettings
    from specstudy.analysis.join import Tables
    from specstudy.analysis.study import AnalysisResult


def answer(run_dir: Path, config: StudyConfig) -> None:
    """Analyse the tables of a run, write everything that follows from them, and say what was found."""
    # Imported here: statistics and plotting take seconds, which a wrong word need not wait for.
    from specstudy.analysis.declarations import declarations_sha256
    from specstudy.analysis.study import analyze as analyze_tables
    from specstudy.analysis.version_effects import unaltered_only
    from specstudy.report import terminal

    tables = open_run(run_dir).frames()
    result = analyze_tables(tables, settings_of(config))
    for name, rows in _answers(result).items():
        publish_table(run_dir, name, to_table(name, rows))
    manifest.update(run_dir, "claims", {"sha256_when_answered": declarations_sha256()})
    shown, said = unaltered_only(tables), manifest.read(run_dir)
    draw(result, shown, said, run_dir)
    terminal.summary(result, shown, said, run_dir)


def _answers(result: AnalysisResult) -> dict[str, Sequence[object]]:
    """The rows of every table of answers."""
    told = result.interventions
    return {
        "correlations": result.correlations,
        "condition_measures": [*result.comparison.measures.values()],
        "condition_differences": [*result.comparison.differences.values()],
        "entropy_bound": result.entropy_bounds,
        "claims": result.claims,
        **{name: getattr(result.sinks, name) for name in SINK_TABLES},
        **{name: getattr(result.writing, name) for name in WRITING_TABLES},
        **{name: getattr(result.routing, name) for name in (ROUTING_TABLES if result.routing else ())},
        **({"retention_costs": result.retention} if result.retention else {}),
        **dict(zip(VERSION_TABLES, (told.effects, told.links, told.models), strict=True)),
        **{name: getattr(result.mechanism, name) for name in MECHANISM_TABLES},
    }


def draw(result: AnalysisResult, tables: Tables, said: Mapping[str, Any], run_dir: Path) -> list[Path]:
    """The figures of a run and the page that holds them; `said` is its manifest. Returns their files."""
    from specstudy.report import figures, html

    page = run_dir / "report.html"
    drawn = figures.draw_all(result, tables, run_dir / "figures")
    html.render(result, tables, said, run_dir / "figures", page)
    return [*drawn, page]


def settings_of(config: StudyConfig) -> AnalysisSettings:
    """What the configuration says about intervals, and which condition speaks for the study."""
    from specstudy.analysis.bootstrap import AnalysisSettings

    return AnalysisSettings(
        bootstrap_samples=config.analysis.bootstrap_samples,
        confidence=config.analysis.confidence,
        seed=config.analysis.seed,
        primary=config.spec.primary,
        sink_threshold=config.prefill.threshold,
        thresholds=config.analysis.thresholds,
        prompt_sets=prompt_sets(config.prompts.path),
    )


def prompt_sets(path: str) -> tuple[str, ...]:
    """The sets that the prompts of a file are of, by its name: study200 holds two."""
    name = Path(path).stem
    return ("study50", "confirm") if name == "study200" else (name,)
