"""How many threads the CPU computes with: as told, or as a trial of the pair's own steps finds.

Numbers may differ by rounding with the threads, so these are part of every result's key. A trial that came out another
way would have everything measured anew: its outcome is kept in the store, once for a machine and a pair.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from specstudy.clock import load_average, now
from specstudy.config import StudyConfig
from specstudy.tables.store import Store

if TYPE_CHECKING:
    from specstudy.models.load import Pair


def set_threads(config: StudyConfig, pair: Pair, store: Store | None) -> dict[str, Any] | None:
    """Let torch compute with the right number of threads from here on. Returns what the trial found, as the manifest
    keeps it; None where there was nothing to find. Without a store nothing is kept."""
    import torch

    from specstudy.models.device import usable_cores

    n_cores = usable_cores()
    given = config.execution.threads
    if given or n_cores == 1 or pair.verifier.device.type != "cpu":
        torch.set_num_threads(given or n_cores)
        return None
    parts = _machine_and_pair(pair, n_cores)
    outcome = store.kept_trial(parts) if store else None
    if outcome is None:
        outcome = _trial(pair, n_cores)
        if store:
            store.keep_trial(parts, outcome)
    torch.set_num_threads(outcome["threads"])
    return outcome


def _trial(pair: Pair, n_cores: int) -> dict[str, Any]:
    from specstudy.measure.thread_trial import fastest, try_threads

    began = {"tried_at": now(), "load_average": load_average()}
    found = try_threads(pair, (1, n_cores))
    times = {f"{role}_step_s": {str(n): s for n, s in by_threads.items()} for role, by_threads in asdict(found).items()}
    return {"threads": fastest(found.verifier), **times, **began}


def _machine_and_pair(pair: Pair, n_cores: int) -> dict[str, object]:
    """What a trial holds for."""
    import torch

    from specstudy.models.device import cpu_name

    models = {
        role: [model.fingerprint, model.linear_layers]
        for role, model in (("verifier", pair.verifier), ("draft", pair.draft))
    }
    machine = {"cpu": cpu_name(), "cores": n_cores, "dtype": str(pair.verifier.dtype), "torch": torch.__version__}
    return {**machine, **models}
