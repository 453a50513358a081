"""specstudy: does prefill attention predict decode entropy, and does that predict speculative acceptance?"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from specstudy.tables.run import Run

__version__ = "0.1.0"
__all__ = ["__version__", "open_run", "run_study"]

# What they need is imported inside: importing the package costs nothing and needs neither pandas nor pyarrow.


def open_run(path: str | os.PathLike[str]) -> Run:
    """Opens a run for reading, such as `open_run("outputs/latest")`: `.manifest`, `.config`, `.table(name)`.

    Needs no torch. Raises `specstudy.errors.UserError` if there is no run at that path.
    """
    from specstudy.tables.run import open_run as open_existing

    return open_existing(path)


def run_study(overrides: Sequence[str] = ()) -> Run:
    """Runs the study in this process and opens it: `run_study(["spec.gamma=6", "prompts=factual"])`.

    Prints what `make study` with these words prints. Prompts that failed are in the run's table `errors`. Raises
    `specstudy.errors.UserError` for what the user can mend.
    """
    from specstudy.overrides import study_config
    from specstudy.running.studies import study
    from specstudy.running.workflow import run_path_of

    config = study_config(overrides)
    study(config)
    return open_run(run_path_of(config))
