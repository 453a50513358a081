"""Attention while an answer is written, set against what is sampled and accepted token by token."""
