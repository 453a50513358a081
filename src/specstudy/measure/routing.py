"""Which experts every token used, while the verifier decodes and while it verifies: `routing_tokens`, `routing_layers`.

Routing is taken during generation itself, so that it is what really ran: tokens that were rejected exist only in the
verifier's passes, and a pass over several tokens may round differently from single steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from specstudy.measure.decode import GenerationSettings, generate
from specstudy.measure.speculation_records import SpeculationSettings, make_proposer
from specstudy.measure.speculative import Round, SpeculativeLoop
from specstudy.models.load import LanguageModel, Pair
from specstudy.models.routers import Routing, expert_layers, other_bytes, watched_routers
from specstudy.prompts.prompt import RenderedPrompt
from specstudy.records import RoutingLayer, RoutingToken
from specstudy.routing_formulas import gate_entropy_bits


@dataclass(frozen=True)
class FedToken:
    """A token that the verifier was fed, and its place: see the columns of the same names."""

    token_id: int
    index: int
    round: int | None = None
    outcome: str | None = None


def measure_decode_routing(
    pair: Pair,
    rendered: RenderedPrompt,
    settings: GenerationSettings,
    repetition: int,
    rng: np.random.Generator,
) -> dict[str, list[object]]:
    """Routing of the verifier's own answer; with the random numbers of the decode stage it is that stage's answer."""
    with watched_routers(pair.verifier.module, pair.verifier.name) as watch:
        answer = generate(pair.verifier, rendered.token_ids, settings, rng).token_ids
        routing = watch.take(len(answer))
    fed = [FedToken(token, step) for step, token in enumerate([rendered.token_ids[-1], *answer[:-1]])]
    keys = {
        "source": "decode",
        **dict.fromkeys(("proposer", "stop", "stop_threshold", "gamma")),
        "temperature": settings.warp.temperature,
        "top_p": settings.warp.top_p,
        "repetition": repetition,
    }
    return _records(pair.verifier, rendered, keys, fed, routing)


def measure_round_routing(
    pair: Pair,
    rendered: RenderedPrompt,
    settings: SpeculationSettings,
    repetition: int,
    rng: np.random.Generator,
) -> dict[str, list[object]]:
    """Routing of every verifier pass of a speculative generation, rejected and untested tokens included."""
    loop = SpeculativeLoop(
        pair.verifier,
        make_proposer(pair, settings),
        rendered.token_ids,
        settings.generation,
        settings.gamma,
        rng,
    )
    with watched_routers(pair.verifier.module, pair.verifier.name) as watch:
        loop.prefill()
        rounds = [(r, watch.take(1)) for r in loop.rounds()]  # of each round the pass that decided it
    fed: list[FedToken] = []
    last = rendered.token_ids[-1]
    for index, (r, _) in enumerate(rounds):
        fed += _fed_in_round(index, r, last)
        last = r.emitted[-1]
    # Of a draft that went on behind an end of text, the tokens behind it are no part of the round.
    kept = [_first_tokens(routing, r.n_proposed + 1) for r, routing in rounds]
    keys = {"source": "verify", **settings.keys, "repetition": repetition}
    return _records(pair.verifier, rendered, keys, fed, _joined(kept))


def _fed_in_round(index: int, r: Round, last: int) -> list[FedToken]:
    """The text's last token, then the drafted ones."""
    fed = [FedToken(last, 0, index)]
    for i, token in enumerate(r.drafted["token_id"]):
        outcome = "accepted" if i < r.n_accepted else "rejected" if i < r.n_tested else "untested"
        fed.append(FedToken(int(token), i + 1, index, outcome))
    return fed


def _first_tokens(routing: Routing, n: int) -> Routing:
    return Routing(routing.experts[:, :n], routing.gates[:, :n], routing.probabilities[:, :n])


def _joined(routings: Sequence[Routing]) -> Routing:
    names = ("experts", "gates", "probabilities")
    return Routing(*(np.concatenate([getattr(r, name) for r in routings], axis=1) for name in names))


def _records(
    verifier: LanguageModel, rendered: RenderedPrompt, keys: dict[str, Any], fed: Sequence[FedToken], routing: Routing
) -> dict[str, list[object]]:
    keys = {**rendered.keys, **keys}
    layers = expert_layers(verifier.module, verifier.name)
    entropy_bits = gate_entropy_bits(routing.probabilities.astype(np.float64))
    mean_probability = routing.probabilities.mean(1)
    rest = other_bytes(verifier.module, layers)
    return {
        "routing_tokens": [
            RoutingToken(
                **keys,
                round=token.round,
                index=token.index,
                layer=layer.index,
                token_id=token.token_id,
                outcome=token.outcome,
                experts=routing.experts[row, place].tolist(),
                gates=routing.gates[row, place].tolist(),
                gate_entropy_bits=float(entropy_bits[row, place]),
            )
            for row, layer in enumerate(layers)
            for place, token in enumerate(fed)
        ],
        "routing_layers": [
            RoutingLayer(
                **keys,
                layer=layer.index,
                n_experts=layer.n_experts,
                n_chosen=routing.experts.shape[-1],
                n_tokens=len(fed),
                mean_probability=mean_probability[row].tolist(),
                expert_bytes=layer.expert_bytes,
                other_bytes=rest,
            )
            for row, layer in enumerate(layers)
        ],
    }
