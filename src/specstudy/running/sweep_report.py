"""The joint report of a sweep: every finished point in one table, and in one figure where one number varies."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence

from specstudy.config import StudyConfig, local_path
from specstudy.running.answer import settings_of
from specstudy.running.workflow import run_path_of, without_result_neutral_settings
from specstudy.tables import manifest
from specstudy.tables.files import write_atomically
from specstudy.tables.run import Run, open_run


def report_sweep(configs: Sequence[StudyConfig]) -> None:
    """Write `<output_dir>/sweeps/<8 hex digits of its points>/` from the points that finished, and print it."""
    # Imported here: statistics and plotting take seconds, which a wrong word need not wait for.
    from specstudy.analysis.sweep import SweepPoint, sweep
    from specstudy.report.sweep import draw_sweep, print_sweep

    finished = [(config, opened) for config in configs if (opened := _finished_run(config))]
    if not finished:
        return
    joint = sweep(
        [
            SweepPoint(
                without_result_neutral_settings(config),
                opened.path.name,
                opened.frames(),
                settings_of(config),
                opened.manifest.get("models", {}).get("draft", {}).get("distillation") or {},
            )
            for config, opened in finished
        ]
    )
    names = sorted(run_path_of(config).name for config in configs)
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()
    directory = local_path(configs[0].output_dir) / "sweeps" / digest[:8]
    file = directory / "sweep.parquet"
    content = io.BytesIO()
    joint.rows.to_parquet(content, index=False)
    write_atomically(file, content.getvalue())
    print_sweep(joint, [file, *draw_sweep(joint, directory)])


def _finished_run(config: StudyConfig) -> Run | None:
    path = run_path_of(config)
    if not (path / "manifest.json").is_file() or not manifest.is_finished(manifest.read(path)):
        return None
    return open_run(path)
