"""The figures and the page of a run again, from its tables."""

from specstudy.command_line.entry import command
from specstudy.running.figures import figures

if __name__ == "__main__":
    command(figures, names=["run"])
