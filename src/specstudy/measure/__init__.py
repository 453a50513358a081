"""Measurements: models and token ids in, records out. Nothing here knows files."""
