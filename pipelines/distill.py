"""Trains the shipped draft anew."""

from specstudy.command_line.entry import command
from specstudy.running.distill import distill

if __name__ == "__main__":
    command(distill, names=["tokens", "layers", "head", "steps", "threads", "directory", "work"])
