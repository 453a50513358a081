"""The speeds that mayankpallai 2026 prints, read again: `make bench name=source_tables` prints the table of
docs/findings.md. Nothing is measured.

Accepted / proposed r over drafts of gamma tokens means 1 + gamma r tokens a round, whatever alpha does within it; the
ceiling is the speedup of such rounds if a drafted token costs c verifier steps and nothing else costs anything.
"""

from __future__ import annotations

from dataclasses import dataclass

from specstudy.formulas import alpha_of_acceptance_rate, expected_speedup, expected_tokens_per_round

HALF_B, ONE_AND_A_HALF_B = 0.1601, 0.5002
HEADERS = (
    "draft",
    "gamma",
    "accepted / proposed",
    "alpha",
    "tokens a round",
    "accepted / proposed in the formula",
    "ceiling",
    "measured",
    "measured / ceiling",
    "c from FLOPs",
    "c by the clock",
)


@dataclass(frozen=True)
class Row:
    """What the series prints of a run, or of five. `cost_ratio` is its c, from FLOPs; `theory` the speedup that it
    predicts (None: not printed); `speedup` the one that it measured."""

    draft: str
    gamma: int
    acceptance_rate: float
    cost_ratio: float
    theory: float | None
    speedup: float

    @property
    def alpha(self) -> float:
        return alpha_of_acceptance_rate(self.acceptance_rate, self.gamma)

    @property
    def tokens_per_round(self) -> float:
        return expected_tokens_per_round(self.alpha, self.gamma)

    @property
    def misread_theory(self) -> float:
        """The formula with accepted / proposed in alpha's place."""
        return expected_speedup(self.acceptance_rate, self.gamma, self.cost_ratio)

    @property
    def ceiling(self) -> float:
        return expected_speedup(self.alpha, self.gamma, self.cost_ratio)

    @property
    def cost_by_the_clock(self) -> float:
        """The c at which the ceiling is what was measured: all that a round takes beyond a verifier step, by gamma."""
        return (self.tokens_per_round / self.speedup - 1.0) / self.gamma

    def cells(self) -> tuple[str, ...]:
        return (
            self.draft,
            str(self.gamma),
            f"{self.acceptance_rate:.3f}",
            f"{self.alpha:.3f}",
            f"{self.tokens_per_round:.2f}",
            f"{self.misread_theory:.2f}",
            f"{self.ceiling:.2f}",
            f"{self.speedup:.2f}",
            f"{self.speedup / self.ceiling:.2f}",
            f"{self.cost_ratio:.4f}",
            f"{self.cost_by_the_clock:.2f}",
        )


ROWS = (
    Row("0.5B", 4, 0.392, HALF_B, 0.99, 0.86),
    Row("0.5B", 7, 0.336, HALF_B, 0.71, 0.66),
    Row("0.5B", 8, 0.197, HALF_B, 0.55, 0.55),
    Row("0.5B, mean of five runs", 4, 0.492, HALF_B, None, 1.02),
    Row("0.5B, mean of five runs", 6, 0.488, HALF_B, None, 1.04),
    Row("1.5B", 6, 0.864, ONE_AND_A_HALF_B, 1.18, 1.37),
    Row("1.5B", 6, 0.198, ONE_AND_A_HALF_B, 0.31, 0.48),
    Row("1.5B", 6, 0.395, ONE_AND_A_HALF_B, 0.41, 0.72),
    Row("1.5B", 6, 0.301, ONE_AND_A_HALF_B, 0.36, 0.59),
    Row("0.5B, llama.cpp, Q4_K_M", 4, 391 / 448, HALF_B, None, 47.6 / 50.0),
)


def table() -> str:
    """Markdown, a line a row."""
    header, *rows = (f"| {' | '.join(cells)} |" for cells in (HEADERS, *(row.cells() for row in ROWS)))
    return "\n".join((header, "|" + "---|" * len(HEADERS), *rows))


if __name__ == "__main__":
    print(table())
