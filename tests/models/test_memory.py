from __future__ import annotations

from dataclasses import replace

import pytest

from specstudy.formulas import Dimensions
from specstudy.models.memory import GIB, MemoryEstimate, ModelSize, Workload, advice, estimate_memory, key_value_bytes

SMALL = Dimensions(
    n_layers=3,
    n_heads=4,
    hidden_size=32,
    output_rows=100,
    matmul_parameters=30_000,
    key_value_elements=96,
    widest_product=80,
)
VERIFIER = ModelSize(n_parameters=1_000, dimensions=SMALL, vocabulary_rows=100)
DRAFT = ModelSize(n_parameters=300, dimensions=replace(SMALL, n_layers=1, key_value_elements=32), vocabulary_rows=120)
WORK = Workload(
    n_prompt_tokens=20, n_new_tokens=10, block_tokens=16, chunk_elements=1_000, fewest_queries=1, first_room=8
)
QWEN_3B = replace(SMALL, n_heads=16, key_value_elements=36 * 2 * 2 * 128, widest_product=2048 + 11008)
QWEN_HALF_B = replace(SMALL, n_heads=14, key_value_elements=24 * 2 * 2 * 64, widest_product=896 + 4864)


def test_every_part_by_hand() -> None:
    estimate = estimate_memory(VERIFIER, DRAFT, 2, WORK)
    assert estimate.verifier_weights == 2_000
    assert estimate.draft_weights == 600
    # keys and values of a token in both models * twice the 30 tokens * 2 bytes
    assert estimate.key_value_caches == (96 + 32) * 60 * 2
    # 14 copies * 4 bytes * 16 rows of the wider vocabulary
    assert estimate.logits == 14 * 4 * 16 * 120
    # 4 heads * 30 * 30 = 3,600 elements do not fit into a chunk of 1,000
    assert estimate.attention == 2 * 4 * 1_000
    # 30 tokens * 2 bytes * four times what goes into and comes out of a matrix of the MLP
    assert estimate.activations == 30 * 2 * 4 * 80
    assert estimate.total == GIB // 2 + 2_000 + 600 + 15_360 + 107_520 + 8_000 + 19_200


def test_a_packed_head_is_a_second_copy_of_the_embedding_that_it_is_tied_to() -> None:
    tied = replace(VERIFIER, n_head_parameters_tied=400)
    packed = estimate_memory(tied, DRAFT, 2, WORK, packed=True)
    assert packed.verifier_weights == 2 * (1_000 + 400)
    assert packed.draft_weights == 600
    assert estimate_memory(tied, DRAFT, 2, WORK).verifier_weights == 2_000


def test_32_bit_doubles_weights_and_caches_but_not_what_is_float32_anyway() -> None:
    in_16, in_32 = (estimate_memory(VERIFIER, DRAFT, n_bytes, WORK) for n_bytes in (2, 4))
    assert in_32.verifier_weights == 2 * in_16.verifier_weights
    assert in_32.key_value_caches == 2 * in_16.key_value_caches
    assert (in_32.logits, in_32.attention) == (in_16.logits, in_16.attention)


def test_a_short_text_takes_less_than_a_block_a_chunk_or_a_room() -> None:
    estimate = estimate_memory(VERIFIER, DRAFT, 2, Workload(3, 2, 256, 16_000_000, 1, 512))
    assert estimate.logits == 14 * 4 * 3 * 120
    assert estimate.attention == 2 * 4 * 4 * 5 * 5
    assert estimate.key_value_caches == (96 + 32) * 512 * 2


def test_a_chunk_has_its_fewest_queries_however_long_they_are() -> None:
    estimate = estimate_memory(VERIFIER, DRAFT, 2, Workload(900, 100, 256, 1_000, 3, 512))
    assert estimate.attention == 2 * 4 * 3 * 4 * 1_000


def test_caches_of_the_series_pair() -> None:
    # 3B: 2 * 36 layers * 2 heads * 128 * 2 bytes = 36,864 a token; 0.5B: 2 * 24 * 2 * 64 * 2 = 12,288
    assert key_value_bytes(QWEN_3B, 600, 512, 2) == 36_864 * 1_200
    assert key_value_bytes(QWEN_HALF_B, 100, 512, 2) == 12_288 * 512


def test_the_series_pair_fits_into_16_gib_in_16_bit_and_not_into_8_in_32() -> None:
    verifier, draft = (
        ModelSize(n, dimensions, 151936) for n, dimensions in ((3_085_938_688, QWEN_3B), (494_032_768, QWEN_HALF_B))
    )
    work = Workload(600, 128, 256, 16_000_000, 1, 512)
    in_16, in_32 = (estimate_memory(verifier, draft, n_bytes, work).total for n_bytes in (2, 4))
    assert 6.6 < 2 * (3_085_938_688 + 494_032_768) / GIB < in_16 / GIB < 10
    assert 13.3 < in_32 / GIB < 17


def estimate(**parts: int) -> MemoryEstimate:
    return MemoryEstimate(
        **{
            **dict.fromkeys(
                (
                    "program",
                    "verifier_weights",
                    "draft_weights",
                    "key_value_caches",
                    "logits",
                    "attention",
                    "activations",
                ),
                0,
            ),
            **{name: size * GIB for name, size in parts.items()},
        }
    )


@pytest.mark.parametrize(
    ("parts", "bytes_per_value", "limit", "expected"),
    [
        ({"verifier_weights": 12}, 4, 8, ["execution.dtype=bfloat16 (or float16) needs 6.0 GiB"]),
        (
            {"verifier_weights": 12},
            4,
            5,
            ["execution.dtype=bfloat16 (or float16) needs 6.0 GiB", "smaller models, such as models=smollm2"],
        ),
        ({"verifier_weights": 6, "draft_weights": 3}, 2, 8, ["a smaller draft (models.draft=...)"]),
        ({"verifier_weights": 2, "logits": 5}, 2, 4, ["shorter prompts, or a smaller decode.max_new_tokens"]),
        ({"verifier_weights": 6}, 2, 4, ["smaller models, such as models=smollm2"]),
    ],
)
def test_advice_names_what_helps(parts: dict[str, int], bytes_per_value: int, limit: int, expected: list[str]) -> None:
    assert advice(estimate(**parts), bytes_per_value, limit * GIB) == expected
