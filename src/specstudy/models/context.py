"""How long a sequence a model takes: what its configuration says, by whatever name, and what its table holds."""

from __future__ import annotations

from torch import nn
from transformers import PreTrainedModel

# The names that configurations use, the commonest first.
NAMES = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "max_target_positions",
    "n_ctx",
    "seq_length",
)
# The names that modules use for a table of learned positions.
TABLES = ("wpe", "embed_positions", "position_embeddings")


def context_length(module: PreTrainedModel) -> int | None:
    """Longest sequence in tokens, or None if nothing bounds it."""
    config = module.config.get_text_config(decoder=True)
    stated = next((int(length) for name in NAMES if (length := getattr(config, name, None))), None)
    tables = [
        _positions(part)
        for name, part in module.named_modules()
        if isinstance(part, nn.Embedding) and name.rpartition(".")[2] in TABLES
    ]
    return min([*tables, *filter(None, [stated])], default=None)


def _positions(table: nn.Embedding) -> int:
    """Rows for tokens. OPT leaves out the first two, RoBERTa all up to that of padding."""
    before = int(getattr(table, "offset", 0)) if table.padding_idx is None else table.padding_idx + 1
    return table.num_embeddings - before
