"""How studies are run: stages, their store, workers, and what the commands do. Imports whatever it needs."""
