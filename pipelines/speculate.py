"""Speculative decoding beside the verifier alone: `spec_tokens`, `spec_rounds`, `spec_runs`."""

from specstudy.command_line.entry import main
from specstudy.running.studies import speculate

if __name__ == "__main__":
    main(speculate)
