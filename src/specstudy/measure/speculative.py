"""Speculative sampling (Leviathan et al. 2023; Chen et al. 2023): the text has exactly the verifier's distribution.

Invariant after every round, L tokens of text: the verifier's cache holds exactly the first L - 1, the draft's a prefix
of them. Everything inside a round stays on the device, and its result comes back in one transfer; only a stop rule
reads a value for each drafted token, and prompt lookup the text.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from specstudy.measure import sampling
from specstudy.measure.decode import GenerationSettings
from specstudy.measure.finite import NotFiniteError, not_finite_error
from specstudy.measure.proposers import Proposal, Proposer
from specstudy.measure.sampling import Warp, Warped
from specstudy.measure.transfer import to_host
from specstudy.models import device as devices
from specstudy.models.cache import CachedModel
from specstudy.models.device import Mark
from specstudy.models.load import LanguageModel


@dataclass(frozen=True)
class Verdict:
    """What a verifier pass over n drafted tokens decided, on the device: `drafted`, values [n] by name, n_accepted [1]
    (passes before the first rejection), and the verifier's own token, its id and probability [1].

    Of the rows that it came from: the verifier's entropies [n + 1], and whether each nucleus of the draft [n] and of
    the verifier [n + 1] was found.
    """

    drafted: dict[str, Tensor]
    n_accepted: Tensor
    final_id: Tensor
    final_probability: Tensor
    row_entropy_bits: Tensor
    draft_complete: Tensor
    verifier_complete: Tensor


@dataclass(frozen=True)
class Round:
    """A finished round, on the host. `drafted` has the values [n_proposed] that `verify` names; the draft may have made
    more passes than that: one where a stop rule ended it, and those behind a drafted EOS."""

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
    drafted = {
        "token_id": proposal.ids,
        "q": q_drafted,
        "p": p_drafted,
        "accept_prob": accept_prob,
        "expected_accept": sampling.expected_acceptance(tested.probabilities, q),
        "draft_entropy_bits": raw_q.entropy_bits,
        "draft_sampling_entropy_bits": proposal.q_entropy_bits,
        "draft_top_prob": first,
        "draft_top_margin": first - second,
        "verifier_entropy_bits": raw_p.entropy_bits[:n],
    }
    final_probability = p_at_end.at(final_id)
    return Verdict(drafted, n_accepted, final_id, final_probability, raw_p.entropy_bits, proposal.complete, p.complete)


class SpeculativeLoop:
    """One generation: `prefill`, then `rounds`; `run` does both and times them.

    `decided_by`: the verifier's logits [n + 1, V] and the proposal that decided the last round.
    """

    decided_by: tuple[Tensor, Proposal]

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
        self.draft_warp, self.verifier_warp = settings.draft_warp.widened(), settings.warp
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

    def run(self) -> SpeculativeGeneration:
        """The whole answer, timed."""
        started_s = devices.now_s(self.device)
        self.prefill()
        prefilled_s = first_token_s = devices.now_s(self.device)
        rounds: list[Round] = []
        for finished in self.rounds():
            rounds.append(finished)
            if len(rounds) == 1:
                first_token_s = time.perf_counter()
        decode_s = devices.now_s(self.device) - prefilled_s
        finish_reason = "eos" if self._ends_text(rounds[-1]) else "length"
        return SpeculativeGeneration(rounds, finish_reason, first_token_s - started_s, decode_s)

    @torch.inference_mode()
    def prefill(self) -> None:
        """Show all but the last prompt token to both models."""
        self.verifier.prefill(self.text[: self.n_prompt - 1])
        self.proposer.prefill(self.text[: self.n_prompt - 1])

    def rounds(self) -> Iterator[Round]:
        """Round after round, each as soon as it is finished, until EOS or max_new_tokens."""
        index, n_left = 0, self.settings.max_new_tokens
        while n_left:
            finished = self.round(index, min(self.gamma, n_left - 1))
            index, n_left = index + 1, n_left - len(finished.emitted)
            yield finished
            if self._ends_text(finished):
                return

    def _ends_text(self, finished: Round) -> bool:
        return finished.emitted[-1] in self.settings.eos_ids

    @torch.inference_mode()
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
                self.decided_by = (logits, proposal)
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
                raise self._not_finite_error(proposal)
            if numbers.verifier_complete or not numbers.draft_complete:
                return verdict, numbers
            self.verifier_warp = self.verifier_warp.widened()

    def _not_finite_error(self, proposal: Proposal) -> NotFiniteError:
        """Whose fault it is. A draft that gave no sound logits has drafted nonsense, and comes first."""
        drafted_well = bool(sampling.raw_statistics(proposal.logits).finite.all())
        model = self.verifier.model if drafted_well else self.proposer.model
        return not_finite_error(model or self.verifier.model, self.text[: self.length])

    def _keep(self, length: int) -> None:
        """Roll both caches back to what the invariant allows for a text of `length` tokens."""
        self.verifier.rollback(min(length - 1, self.verifier.length))
        self.proposer.keep(length - 1)

    @staticmethod
    def _fetch(verdict: Verdict) -> _Numbers:
        """The round's only transfer to the host."""
        own = {name: value for name, value in vars(verdict).items() if name != "drafted"}
        host = to_host({**own, **verdict.drafted})
        n_accepted = int(host["n_accepted"][0])
        return _Numbers(
            finite=not any(math.isnan(value) for values in host.values() for value in values),
            draft_complete=all(host["draft_complete"]),
            verifier_complete=all(host["verifier_complete"]),
            n_accepted=n_accepted,
            final_id=int(host["final_id"][0]),
            final_probability=host["final_probability"][0],
            final_entropy_bits=host["row_entropy_bits"][n_accepted],
            drafted={name: np.array(host[name], np.float32) for name in verdict.drafted},
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
