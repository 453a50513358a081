"""The whole study: every stage, then the answers."""

from specstudy.command_line.entry import main
from specstudy.running.studies import study
from specstudy.running.sweep_report import report_sweep

if __name__ == "__main__":
    main(study, after_sweep=report_sweep)
