"""From tables to answers: `correlations`, `claims`, figures, report, and a summary in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from specstudy.config import StudyConfig
from specstudy.records import MECHANISM_TABLES, ROUTING_TABLES, SINK_TABLES
from specstudy.tables import manifest
from specstudy.tables.run import open_run
from specstudy.tables.run_directory import publish_table
from specstudy.tables.schema import to_table

if TYPE_CHECKING:
    from specstudy.analysis.bootstrap import AnalysisSettings


def answer(run_dir: Path, config: StudyConfig) -> None:
    """Analyse the tables of a run, write everything that follows from them, and say what was found."""
    # Imported here: statistics and plotting take seconds, which a wrong word need not wait for.
    from specstudy.analysis.declarations import declarations_sha256
    from specstudy.analysis.study import analyze as analyze_tables
    from specstudy.analysis.version_effects import unaltered_only
    from specstudy.report import figures, html, terminal

    opened = open_run(run_dir)
    tables = {name: opened.table(name) for name in opened.tables}
    result = analyze_tables(tables, settings_of(config))
    publish_table(run_dir, "correlations", to_table("correlations", result.correlations))
    publish_table(run_dir, "condition_measures", to_table("condition_measures", [*result.comparison.measures.values()]))
    differences = to_table("condition_differences", [*result.comparison.differences.values()])
    publish_table(run_dir, "condition_differences", differences)
    publish_table(run_dir, "entropy_bound", to_table("entropy_bound", result.entropy_bounds))
    publish_table(run_dir, "claims", to_table("claims", result.claims))
    for name in SINK_TABLES:
        publish_table(run_dir, name, to_table(name, getattr(result.sinks, name)))
    if result.routing:
        for name in ROUTING_TABLES:
            publish_table(run_dir, name, to_table(name, getattr(result.routing, name)))
    told = result.interventions
    for name, rows in (
        ("version_effects", told.effects),
        ("link_verdicts", told.links),
        ("version_models", told.models),
    ):
        publish_table(run_dir, name, to_table(name, rows))
    for name in MECHANISM_TABLES:
        publish_table(run_dir, name, to_table(name, getattr(result.mechanism, name)))
    shown = unaltered_only(tables)
    figures.draw_all(result, shown, run_dir / "figures")
    manifest.update(run_dir, "claims", {"sha256_when_answered": declarations_sha256()})
    said = manifest.read(run_dir)
    html.render(result, shown, said, run_dir / "figures", run_dir / "report.html")
    terminal.summary(result, shown, said, run_dir)


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
