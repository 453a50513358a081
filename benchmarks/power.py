"""Power of each link of the chain at 50, 150 and 200 prompts, by studies simulated from the variances of a run.

A table: the link, the true partial rank correlation of the prompts' values, about what that of the means over answers
comes to, and the share of studies that support the link (wrongly up to 0.1, the margin): first where no other link of
the family of five is decided, then where all are. With Holm's adjustment a study's share lies between.
"""

from __future__ import annotations

import argparse
import sys
from itertools import groupby
from pathlib import Path

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.power import LINK, links_of, power
from specstudy.config import PROJECT_ROOT
from specstudy.errors import UserError
from specstudy.tables.run import open_run

RHOS = (0.0, LINK.margin, 0.2, 0.3, 0.4, 0.5)
SIZES = (50, 150, 200)
TOLD = 0.3
"""The true correlation whose power becomes a figure."""
# Fewer draws than an analysis makes: their noise is small beside that of the studies.
SETTINGS = AnalysisSettings(bootstrap_samples=400)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path, default=PROJECT_ROOT / "outputs" / "latest", help="a run directory")
    parser.add_argument("--studies", type=int, default=300, help="simulated studies a row")
    options = parser.parse_args()
    try:
        run = open_run(options.run)
        links = links_of({name: run.table(name) for name in run.tables})
    except UserError as error:
        sys.exit(f"error: {error}")
    for link in links:
        ends = (f"{end.share:.2f} ({end.reliability:.2f})" for end in (link.x, link.y))
        print(
            f"{link.name}: share of one answer's variance (of the mean's) {', '.join(ends)}; shared {link.shared:.2f}"
        )
    print(f"\n| link | rho | observed | {' | '.join(f'{n} prompts' for n in SIZES)} |\n|{'---|' * (3 + len(SIZES))}")
    figures: dict[str, float] = {}
    for (link, rho), rows in groupby(power(links, RHOS, SIZES, options.studies, SETTINGS), lambda r: (r.link, r.rho)):
        cells = [*rows]
        shares = " | ".join(f"{row.least:.2f} to {row.most:.2f}" for row in cells)
        print(f"| {link.replace('_', ' ')} | {rho:.1f} | {cells[0].observed:.2f} | {shares} |", flush=True)
        if rho == TOLD:
            figures |= {f"power_{link}_{row.n_prompts}_prompts": row.least for row in cells}
    for name, value in figures.items():
        print(f"figure {name} {value:.3f}")


if __name__ == "__main__":
    main()
