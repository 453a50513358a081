"""What verifying would cost in experts that nobody has trained: one layer, made-up routing, dummy weights."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import yaml

from specstudy.errors import UserError

NAMES = ("n_experts", "n_chosen", "gamma", "skew", "overlap", "hidden", "expert_hidden", "repeats", "seed")


def simulate(**given: str) -> None:
    """Print a row for every gamma. Raises UserError for a value that a design cannot have."""
    from specstudy.measure.designs import Design, design_costs
    from specstudy.models.device import choose_device, choose_dtype
    from specstudy.report.console import report_console, report_table
    from specstudy.report.style import number

    design = Design(**{name: _plain(name, text) for name, text in given.items()})
    device = choose_device("auto")
    dtype = choose_dtype("auto", device)
    said = ", ".join(f"{field.name}={getattr(design, field.name)}" for field in fields(design))
    table = report_table(f"{said}; {device}, {str(dtype).removeprefix('torch.')}")
    for heading in ("gamma", "used", "uniform", "popular", "pairs", "bytes", "clock", "bytes*", "clock*"):
        table.add_column(heading, justify="right")
    for cost in design_costs(design, device, dtype):
        experts = (cost.distinct, cost.uniform, cost.independent, cost.pairwise)
        efficiencies = (cost.by_bytes, cost.by_clock, cost.by_bytes_at_random, cost.by_clock_at_random)
        cells = [*(number(value, 1) for value in experts), *(number(value) for value in efficiencies)]
        table.add_row(str(cost.gamma), *cells)
    console = report_console()
    console.print(table)
    all_of_it, of_a_token = (f"{count / 1e6:,.1f} million" for count in (design.size.total, design.size.active))
    console.print(f"The layer has {all_of_it} parameters, of which a token uses {of_a_token}.")
    console.print(
        "used: distinct experts of gamma + 1 tokens, routed by the design. uniform, popular, pairs: what tokens that "
        "choose uniformly, independently by popularity, or by pairs of tokens would use. bytes, clock: time of a "
        "1-token pass over that of gamma + 1 tokens, for this layer alone, by the bytes read and as timed; with a "
        "star: tokens that choose uniformly at random."
    )


def _plain(name: str, text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"{name}={text} is not a number") from None
