"""From tables to answers: frames in, records and frames out. Works without torch."""
