"""The stages of a study, one a file: what their units are, what those depend on, how one is measured."""
