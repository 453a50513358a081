"""Sinks and context health: where attention gathers, what foretells what the answer attends to, which threshold."""
