"""How much memory a study needs, estimated from sizes alone before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from specstudy.formulas import Dimensions

GIB = 2**30
PROGRAM_BYTES = GIB // 2
"""Python with torch, transformers, pandas and matplotlib loaded; measured on Linux."""
LOGIT_COPIES = 14
"""float32 tensors as large as a block of logits that exist at once while a whole vocabulary is sorted for its nucleus:
logits of both models, probabilities, their sums and selections; ids and their order, which are 64-bit, count twice."""
ATTENTION_COPIES = 2
"""Scores and weights of a chunk of queries, both float32."""


PRODUCTS_AT_ONCE = 4
"""Queries, keys, values and output; or the gate, what it lets through, both together, and the output."""


@dataclass(frozen=True)
class ModelSize:
    """What decides a model's memory. Parameters shared with another model that is loaded anyway are not counted.

    `n_head_parameters_tied` are those of an output head that is the embedding too: once in `n_parameters`.
    """

    n_parameters: int
    dimensions: Dimensions
    vocabulary_rows: int
    n_head_parameters_tied: int = 0


@dataclass(frozen=True)
class Workload:
    """The longest prompt and answer in tokens, and in what pieces they are worked on: rows of logits at once, elements
    of a chunk of attention and its fewest queries, tokens of room that a cache starts with."""

    n_prompt_tokens: int
    n_new_tokens: int
    block_tokens: int
    chunk_elements: int
    fewest_queries: int
    first_room: int

    @property
    def n_tokens(self) -> int:
        return self.n_prompt_tokens + self.n_new_tokens


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes by what they are for. The parts are not all needed at the same moment: the sum is an upper estimate."""

    program: int
    verifier_weights: int
    draft_weights: int
    key_value_caches: int
    logits: int
    attention: int
    activations: int

    @property
    def total(self) -> int:
        return sum(vars(self).values())


def estimate_memory(
    verifier: ModelSize, draft: ModelSize, bytes_per_value: int, work: Workload, packed: bool = False
) -> MemoryEstimate:
    """What both models need at `bytes_per_value` (2 in 16 bit, 4 in 32 bit) for the largest piece of work.

    `packed` as in packed_linear: a tied head then has a copy of its own, as the embedding is looked up row by row.
    """
    logit_rows = min(work.block_tokens, max(work.n_prompt_tokens, work.n_new_tokens))
    most_rows = max(verifier.vocabulary_rows, draft.vocabulary_rows)
    one_query = verifier.dimensions.n_heads * work.n_tokens
    chunk_elements = min(one_query * work.n_tokens, max(work.chunk_elements, work.fewest_queries * one_query))
    return MemoryEstimate(
        program=PROGRAM_BYTES,
        verifier_weights=(verifier.n_parameters + packed * verifier.n_head_parameters_tied) * bytes_per_value,
        draft_weights=(draft.n_parameters + packed * draft.n_head_parameters_tied) * bytes_per_value,
        key_value_caches=sum(
            key_value_bytes(model.dimensions, work.n_tokens, work.first_room, bytes_per_value)
            for model in (verifier, draft)
        ),
        logits=LOGIT_COPIES * 4 * logit_rows * most_rows,
        attention=ATTENTION_COPIES * 4 * chunk_elements,
        activations=_activation_bytes(verifier.dimensions, work.n_tokens, bytes_per_value),
    )


def key_value_bytes(dimensions: Dimensions, n_tokens: int, first_room: int, bytes_per_value: int) -> int:
    """Keys and values of all layers. Their room doubles when it is used up, so up to twice the tokens are held.

    Layers with a sliding window count like the others: they keep what a rejection might need again.
    """
    return dimensions.key_value_elements * max(first_room, 2 * n_tokens) * bytes_per_value


def _activation_bytes(dimensions: Dimensions, n_tokens: int, bytes_per_value: int) -> int:
    """Inside one layer, for all tokens of a pass: the residual, and what a gated MLP or the attention holds at once."""
    return n_tokens * PRODUCTS_AT_ONCE * dimensions.widest_product * bytes_per_value


def advice(estimate: MemoryEstimate, bytes_per_value: int, limit_bytes: int) -> list[str]:
    """What to change so that the estimate comes under a limit, the most effective first."""
    weights = estimate.verifier_weights + estimate.draft_weights
    ways = []
    if bytes_per_value == 4:
        halved = estimate.total - (weights + estimate.key_value_caches + estimate.activations) // 2
        ways.append((halved, f"execution.dtype=bfloat16 (or float16) needs {halved / GIB:.1f} GiB"))
    if estimate.draft_weights * 4 > estimate.verifier_weights:
        ways.append((estimate.total - estimate.draft_weights, "a smaller draft (models.draft=...)"))
    work = estimate.key_value_caches + estimate.logits + estimate.attention + estimate.activations
    if work > weights:
        ways.append((estimate.total - work, "shorter prompts, or a smaller decode.max_new_tokens"))
    ways.sort()
    words = [said for _, said in ways]
    return words if ways and ways[0][0] <= limit_bytes else [*words, "smaller models, such as models=smollm2"]
