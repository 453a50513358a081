"""One prompt in the terminal."""

from specstudy.command_line.entry import command
from specstudy.running.show import show

if __name__ == "__main__":
    command(show, names=["id", "run"], required=["id"])
