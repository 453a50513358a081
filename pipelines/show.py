"""Of a run, in the terminal: one prompt, every claim, or every self-check."""

from specstudy.command_line.entry import command
from specstudy.running.show import show

if __name__ == "__main__":
    command(show, names=["id", "run", "what"], bare="what")
