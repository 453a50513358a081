"""What verifying costs in a layer of experts that nobody has trained."""

from specstudy.command_line.entry import command
from specstudy.running.routing_sim import NAMES, simulate

if __name__ == "__main__":
    command(simulate, names=NAMES)
