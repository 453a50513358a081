"""Sinks and context health: where attention gathers, what predicts what the answer attends to, which threshold."""
