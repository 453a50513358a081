"""The runs in output_dir, and how they differ."""

from specstudy.command_line.entry import main
from specstudy.running.runs import runs

if __name__ == "__main__":
    main(runs)
