"""Distillation of the small draft model on the answers of the verifier."""
