"""What was found, in sentences made from the numbers of the run."""
