"""The benchmarks."""

from specstudy.command_line.entry import command
from specstudy.running.bench import bench

if __name__ == "__main__":
    command(bench, names=["name"])
