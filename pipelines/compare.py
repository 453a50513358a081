"""Two runs side by side."""

from specstudy.command_line.entry import command
from specstudy.running.compare import compare

if __name__ == "__main__":
    command(compare, names=["a", "b"], required=["a", "b"])
