"""Speculative sampling (Leviathan et al. 2023; Chen et al. 2023): the text has exactly the verifier's distribution.

Invariant after every round, L tokens of text: the verifier's cache holds exactly the first L - 1, the draft's a prefix
of them. Everything inside a round stays on the device; its result comes back in one transfer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specstudy.measure import sampling
from specstudy.measure.decode import GenerationSettings
from specstudy.measure.finite import NotFiniteError, not_finite
from specstudy.measure.proposers import Proposal, Proposer
from specstudy.measure.sampling import Warp, Warped
from specstudy.models import device as devices
from specstudy.models.cache import CachedModel
from specstudy.models.device import Mark
from specstudy.models.load import LanguageModel

DRAFT_FIELDS = (
    "token_id",
    "q",
    "p",
    "accept_prob",
    "expected_accept",
    "draft_entropy_bits",
    "draft_sampling_entropy_bits",
    "draft_top_prob",
    "draft_top_margin",
    "verifier_entropy_bits",
)


@dataclass(frozen=True)
class Verdict:
    """What a verifier pass over n drafted tokens decided, on the device: `drafted` [fields, n], n_accepted [1] (passes
    before the first rejection), and the verifier's own token, its id and probability [1].

    Of the rows that it came from: the verifier's entropies [n + 1], and whether each nucleus of the draft [n] and of
    the verifier [n + 1] was found.
    """

    drafted: Tensor
    n_accepted: Tensor
    final_id: Tensor
    final_probability: Tensor
    verifier_entropy_bits: Tensor
    draft_complete: Tensor
    verifier_complete: Tensor


@dataclass(frozen=True)
class Round:
    """A finished round, on the host. `drafted` maps each of DRAFT_FIELDS to its values [n_proposed]; the draft may have
    made more passes than that: one where a stop rule ended it, and those behind a drafted EOS."""

    drafted: dict[str, NDArray[np.float32]]
    n_accepted: int
    final_id: int | None
    final_probability: float
    final_entropy_bits: float
    stopped_early: bool
    n_draft_passes: int
    draft_s: float
    verify_s: float
    overhead_s: float

    @property
    def n_proposed(self) -> int:
        return len(self.drafted["token_id"])

    @property
    def n_tested(self) -> int:
        return min(self.n_accepted + 1, self.n_proposed)

    @property
    def emitted(self) -> list[int]:
        accepted = [int(i) for i in self.drafted["token_id"][: self.n_accepted]]
        return accepted + ([] if self.final_id is None else [self.final_id])


@dataclass(frozen=True)
class SpeculativeGeneration:
    """An answer and how it came about."""

    rounds: list[Round]
    finish_reason: str
    ttft_s: float
    decode_s: float

    @property
    def token_ids(self) -> list[int]:
        return [i for r in self.rounds for i in r.emitted]


def verify(logits: Tensor, proposal: Proposal, warp: Warp, uniforms: Tensor) -> Verdict:
    """Accept or reject n drafted tokens by the verifier's logits [n + 1, V]; uniforms [n + 1]: n tests, one draw."""
    n = len(proposal.ids)
    p = sampling.warp(logits, warp)
    tested = Warped(p.ids[:n], p.probabilities[:n], p.complete[:n])
    q = proposal.q.gather(-1, tested.ids)
    p_drafted, q_drafted = tested.at(proposal.ids), proposal.q.gather(-1, proposal.ids[:, None])[:, 0]
    accept_prob = sampling.acceptance_probability(p_drafted, q_drafted)
    n_accepted = (uniforms[:n] < accept_prob).long().cumprod(0).sum().view(1)
    # Zeros stand for the draft after full acceptance: max(0, p - 0) is p, and the bonus comes from p itself.
    q_at_end = q.index_select(0, n_accepted.clamp(max=n - 1)) * (n_accepted < n) if n else p.probabilities * 0.0
    p_at_end = Warped(*(t.index_select(0, n_accepted) for t in (p.ids, p.probabilities, p.complete)))
    final_id = sampling.draw(p_at_end.ids, sampling.residual(p_at_end.probabilities, q_at_end), uniforms[n:])
    raw_p, raw_q = sampling.raw_statistics(logits), sampling.raw_statistics(proposal.logits)
    first, second = sampling.top_two(proposal.logits, raw_q.log_normalizer)
    drafted = torch.stack(
        [
            proposal.ids.float(),
            q_drafted,
            p_drafted,
            accept_prob,
            sampling.expected_acceptance(tested.probabilities, q),
            raw_q.entropy_bits,
            proposal.q_entropy_bits,
            first,
            first - second,
            raw_p.entropy_bits[:n],
        ]
    )
    final_probability = p_at_end.at(final_id)
    return Verdict(drafted, n_accepted, final_id, final_probability, raw_p.entropy_bits, proposal.complete, p.complete)


class SpeculativeLoop:
    """One generation: `run` goes round after round until EOS or max_new_tokens."""

    def __init__(
        self,
        verifier: LanguageModel,
        proposer: Proposer,
        prompt_ids: Sequence[int],
        settings: GenerationSettings,
        gamma: int,
        rng: np.random.Generator,
    ) -> None:
        self.verifier = CachedModel(verifier)
        self.proposer = proposer
        self.settings = settings
        self.gamma = gamma
        # A draft is less certain than its verifier, and a nucleus that it did not find costs its passes again.
        self.draft_warp, self.verifier_warp = settings.warp.widened(), settings.warp
        self.device = verifier.device
        self.n_prompt = self.length = len(prompt_ids)
        # The text lives on the device, with room for a block that runs past the end.
        self.text = torch.zeros(
            self.n_prompt + settings.max_new_tokens + gamma + 1, dtype=torch.long, device=self.device
        )
        self.text[: self.n_prompt] = torch.tensor(list(prompt_ids), device=self.device)
        # Per round: gamma draws of the draft, gamma tests, one draw of the verifier.
        numbers = rng.random((settings.max_new_tokens, 2 * gamma + 1), dtype=np.float32)
        self.uniforms = torch.from_numpy(numbers).to(self.device)

    @torch.inference_mode()
    def run(self) -> SpeculativeGeneration:
        """Prefill all but the last prompt token, then rounds."""
        started_s = devices.now_s(self.device)
        self.verifier.prefill(self.text[: self.n_prompt - 1])
        self.proposer.prefill(self.text[: self.n_prompt - 1])
        prefilled_s = first_token_s = devices.now_s(self.device)
        rounds: list[Round] = []
        finish_reason = "length"
        n_left = self.settings.max_new_tokens
        while n_left and finish_reason == "length":
            rounds.append(self.round(len(rounds), min(self.gamma, n_left - 1)))
            if len(rounds) == 1:
                first_token_s = time.perf_counter()
            n_left -= len(rounds[-1].emitted)
            if rounds[-1].emitted[-1] in self.settings.eos_ids:
                finish_reason = "eos"
        return SpeculativeGeneration(
            rounds, finish_reason, first_token_s - started_s, devices.now_s(self.device) - prefilled_s
        )

    def round(self, index: int, n: int) -> Round:
        """Draft n tokens, verify them in one pass, take what passes and one token of the verifier's own."""
        begun_s = time.perf_counter()
        draft_uniforms, verify_uniforms = self.uniforms[index, : self.gamma], self.uniforms[index, self.gamma :]
        context = self.text[: self.length]
        while True:
            proposal = self.proposer.propose(context, n, draft_uniforms, self.draft_warp)
            before = devices.mark(self.device)
            block = torch.cat([context[self.verifier.length :], proposal.ids])
            logits = self.verifier.forward(block, keep=len(proposal.ids) + 1)
            after = devices.mark(self.device)
            verdict, numbers = self._decide(logits, proposal, verify_uniforms[: len(proposal.ids) + 1])
            if numbers.draft_complete:
                break
            # The draft's nucleus was wider than the candidates looked at: draft again, from now on with more.
            self.draft_warp = self.draft_warp.widened()
            self._keep(self.length)
        self.text[self.length : self.length + len(proposal.ids)] = proposal.ids
        self.text[self.length + numbers.n_accepted : self.length + numbers.n_accepted + 1] = verdict.final_id
        result = self._result(numbers, proposal, (before, after), begun_s)
        self.length += len(result.emitted)
        self._keep(self.length)
        return result

    def _decide(self, logits: Tensor, proposal: Proposal, uniforms: Tensor) -> tuple[Verdict, _Numbers]:
        """The verdict, and its numbers on the host. A verifier's wide nucleus is searched again, no pass repeated."""
        while True:
            verdict = verify(logits, proposal, self.verifier_warp, uniforms)
            numbers = self._fetch(verdict)
            if not numbers.finite:
                raise self._not_finite(proposal)
            if numbers.verifier_complete or not numbers.draft_complete:
                return verdict, numbers
            self.verifier_warp = self.verifier_warp.widened()

    def _not_finite(self, proposal: Proposal) -> NotFiniteError:
        """Whose fault it is. A draft that gave no sound logits has drafted nonsense, and comes first."""
        drafted_well = bool(sampling.raw_statistics(proposal.logits).finite.all())
        model = self.verifier.model if drafted_well else self.proposer.model
        return not_finite(model or self.verifier.model, self.text[: self.length])

    def _keep(self, length: int) -> None:
        """Roll both caches back to what the invariant allows for a text of `length` tokens."""
        self.verifier.rollback(min(length - 1, self.verifier.length))
        self.proposer.keep(length - 1)

    @staticmethod
    def _fetch(verdict: Verdict) -> _Numbers:
        """The round's only transfer to the host."""
        parts = (
            verdict.n_accepted,
            verdict.final_id,
            verdict.final_probability,
            verdict.draft_complete,
            verdict.verifier_complete,
            verdict.verifier_entropy_bits,
            verdict.drafted.flatten(),
        )
        values = torch.cat([part.float() for part in parts]).tolist()
        n, n_accepted = len(verdict.draft_complete), int(values[0])
        draft_complete, verifier_complete = values[3 : n + 3], values[n + 3 : 2 * n + 4]
        entropies, drafted = values[2 * n + 4 : 3 * n + 5], values[3 * n + 5 :]
        return _Numbers(
            finite=not any(map(math.isnan, values)),
            draft_complete=all(draft_complete),
            verifier_complete=all(verifier_complete),
            n_accepted=n_accepted,
            final_id=int(values[1]),
            final_probability=values[2],
            final_entropy_bits=entropies[n_accepted],
            drafted=dict(zip(DRAFT_FIELDS, np.array(drafted, np.float32).reshape(len(DRAFT_FIELDS), n), strict=True)),
        )

    def _result(self, numbers: _Numbers, proposal: Proposal, verify_marks: tuple[Mark, Mark], begun_s: float) -> Round:
        drafted_ids = [int(i) for i in numbers.drafted["token_id"]]
        end = next((i + 1 for i, token in enumerate(drafted_ids) if token in self.settings.eos_ids), len(drafted_ids))
        ended_by_draft = numbers.n_accepted >= end and end > 0 and drafted_ids[end - 1] in self.settings.eos_ids
        draft_s = sum(a.seconds_until(b) for a, b in proposal.forward_marks)
        verify_s = verify_marks[0].seconds_until(verify_marks[1])
        return Round(
            # Nothing after an EOS is part of the draft.
            drafted={name: values[:end] for name, values in numbers.drafted.items()},
            n_accepted=min(numbers.n_accepted, end),
            final_id=None if ended_by_draft else numbers.final_id,
            final_probability=numbers.final_probability,
            final_entropy_bits=numbers.final_entropy_bits,
            stopped_early=proposal.stopped_early,
            n_draft_passes=len(proposal.forward_marks),
            draft_s=draft_s,
            verify_s=verify_s,
            overhead_s=max(0.0, time.perf_counter() - begun_s - draft_s - verify_s),
        )


@dataclass(frozen=True)
class _Numbers:
    finite: bool
    draft_complete: bool
    verifier_complete: bool
    n_accepted: int
    final_id: int
    final_probability: float
    final_entropy_bits: float
    drafted: dict[str, NDArray[np.float32]]
