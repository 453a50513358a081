"""A run once more, and whether it is equal."""

from specstudy.command_line.entry import command
from specstudy.running.reproduce import reproduce

if __name__ == "__main__":
    command(reproduce, names=["run"], required=["run"])
