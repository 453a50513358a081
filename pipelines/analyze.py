"""From tables to answers: `correlations`, `claims`, figures, report, and a summary in the terminal."""

from specstudy.command_line.entry import main
from specstudy.running.studies import analyze

if __name__ == "__main__":
    main(analyze)
