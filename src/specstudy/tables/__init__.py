"""Results on disk: schemas, the store of per-prompt results, run directories, manifests. Never imports torch."""
