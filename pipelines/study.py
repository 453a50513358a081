"""The whole study: every stage, then the answers."""

from __future__ import annotations

import entry
from analyze import answer
from decode import DECODE
from prefill import PREFILL
from speculate import SPECULATE
from sweep_report import report_sweep
from workflow import run

from specstudy.config import StudyConfig


def study(config: StudyConfig) -> int:
    """Measure what is not measured yet, and answer."""
    return run(config, [PREFILL, DECODE, SPECULATE], after=answer)


if __name__ == "__main__":
    entry.main(study, after_sweep=report_sweep)
