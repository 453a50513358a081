"""Made-up tables of a whole study, with planted effects: every column of every input table, without any model.

Columns are made whole, so that millions of rows take seconds. Numbers are plausible, not measured.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from specstudy.condition import Condition
from specstudy.records import ATTENTION_MEASURES, TABLES, THIRDS

CATEGORIES = ("ambiguous", "code", "creative", "factual", "math")
MEAN_ENTROPY_BITS = {"factual": 0.8, "code": 1.1, "math": 1.4, "creative": 2.6, "ambiguous": 3.1}
# Texts that have broken labels or pages before are among the words.
WORDS = (
    " the",
    " of",
    " model",
    "s",
    ",",
    ".",
    "\n",
    " $$",
    " a_b",
    " <script>",
    " שלום",
    " 日本",
    "�",
    " (",
    "ing",
    "\t",
)
TEMPLATE = (("<|im_start|>", "role_marker"), ("user", "role_name"), ("\n", "role_newline"))
BOUNDARY = (
    ("<|im_end|>", "end_marker"),
    ("\n", "role_newline"),
    ("<|im_start|>", "generation_prompt"),
    ("ass", "generation_prompt"),
    ("istant", "generation_prompt"),
    ("\n", "generation_prompt"),
)


@dataclass(frozen=True)
class Plan:
    """How large the study is, and what holds in it.

    `conditions` are measured where given, else each of `gammas`; a rule that stops early does so here too, and
    `temperature_effect` is the change of the log-odds of acceptance a unit of temperature. One thread is in use.
    `context_effect`: change of ln mean entropy a standard deviation of context health; `entropy_effect`: change of the
    log-odds of acceptance a bit of draft entropy; `sink_effect`: change of the log-odds of attention to position 0 a
    unit of ln entropy, token by token; `category_effect` scales the differences between categories. Each of two layers
    has so many `heads`, recorded where that is not 0.
    """

    n_per_category: int = 10
    categories: tuple[str, ...] = CATEGORIES
    n_answer_tokens: int = 128
    n_content_tokens: int = 60
    gammas: tuple[int, ...] = (4,)
    conditions: tuple[Condition, ...] = ()
    repetitions: int = 1
    context_effect: float = -0.3
    entropy_effect: float = -0.5
    sink_effect: float = -0.5
    temperature_effect: float = 0.0
    category_effect: float = 1.0
    speedup: float = 1.15
    load_average: float = 1.0
    heads: int = 0
    seed: int = 0


def make_tables(plan: Plan = Plan()) -> dict[str, pd.DataFrame]:
    """The input tables of a study, as read from disk: nullable numbers are NaN, nullable texts None."""
    rng = np.random.default_rng(plan.seed)
    prompts = _prompts(plan, rng)
    generations = prompts.loc[prompts.index.repeat(plan.repetitions)].reset_index(drop=True)
    generations["repetition"] = np.tile(np.arange(plan.repetitions), len(prompts))
    decode_tokens = _decode_tokens(plan, generations, rng)
    prefill_tokens = _prefill_tokens(plan, prompts, rng)
    conditions = plan.conditions or tuple(Condition(gamma, "model", "none", 0.7, 0.9) for gamma in plan.gammas)
    spec = [_speculation(plan, generations, condition, rng) for condition in conditions]
    tables = {
        "prefill_tokens": prefill_tokens,
        "prefill_heads": _prefill_heads(prompts, rng),
        "prefill_prompts": _prefill_prompts(prompts, rng),
        "decode_tokens": decode_tokens,
        "decode_runs": _decode_runs(plan, generations, decode_tokens, rng),
        "decode_attention": _decode_attention(prefill_tokens, plan.repetitions, rng),
        "decode_attention_steps": _attention_steps(plan, decode_tokens, "entropy_bits", 1),
        **({"decode_attention_heads": _attention_heads(plan, decode_tokens)} if plan.heads else {}),
        **{name: pd.concat([made[name] for made in spec], ignore_index=True) for name in spec[0]},
        "errors": pd.DataFrame(columns=_columns("errors")),
    }
    tested = tables["spec_tokens"].dropna(subset="verifier_entropy_bits")
    tables["spec_attention_steps"] = _attention_steps(plan, tested, "verifier_entropy_bits", 2)
    return {name: frame[_columns(name)] for name, frame in tables.items()}


def prompt_tables(plan: Plan) -> dict[str, pd.DataFrame]:
    """The two with a row a prompt that tell of context and entropy, for what asks of no tokens: quickly analysed."""
    tables = make_tables(plan)
    return {name: tables[name] for name in ("prefill_prompts", "decode_runs")}


def _columns(table: str) -> list[str]:
    return [f.name for f in fields(TABLES[table])]


def _prompts(plan: Plan, rng: np.random.Generator) -> pd.DataFrame:
    category = np.repeat(plan.categories, plan.n_per_category)
    number = np.tile(np.arange(plan.n_per_category), len(plan.categories))
    health = rng.normal(size=len(category))
    logs = np.log([MEAN_ENTROPY_BITS.get(name, 1.5) for name in category])
    logs = logs.mean() + plan.category_effect * (logs - logs.mean())
    return pd.DataFrame(
        {
            "prompt_id": [f"{name}-{i + 1:02d}" for name, i in zip(category, number, strict=True)],
            "category": category.astype(object),
            "health": health,
            "mean_bits": np.exp(logs + plan.context_effect * health + 0.25 * rng.normal(size=len(category))),
            "n_content": rng.integers(plan.n_content_tokens // 2, 2 * plan.n_content_tokens, len(category)),
        }
    )


def _prefill_prompts(prompts: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    n = len(prompts)
    return prompts.assign(
        n_tokens=prompts["n_content"] + len(TEMPLATE) + len(BOUNDARY),
        n_sinks_structural=3,
        n_sinks_content=0,
        context_health=10.0,
        context_health_window=np.where(rng.random(n) < 0.2, 4.8, 10.0),
        context_health_soft=np.clip(6.0 + 0.7 * prompts["health"], 0, 10),
        structural_share=rng.uniform(0.4, 0.8, n),
        boundary_attention_entropy=rng.uniform(0.4, 0.6, n),
        sink_rate=rng.uniform(0.3, 0.6, n),
        prompt_nll_bits=rng.normal(4, 0.5, n),
        prefill_s=rng.uniform(0.05, 0.2, n),
        rendered_prompt="<|im_start|>user\nA made-up prompt<|im_end|>\n<|im_start|>assistant\n",
        rendering_notes=[["the template adds a system text of its own"] if i % 2 else None for i in range(n)],
        null_reason=None,
    )


def _prefill_tokens(plan: Plan, prompts: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    before, after = len(TEMPLATE), len(BOUNDARY)
    sizes = prompts["n_content"].to_numpy() + before + after
    rows, position = _expand(prompts, sizes)
    total = sizes[rows]
    place_in_boundary = position - (total - after)
    is_structural = (position < before) | (place_in_boundary >= 0)
    template = np.array([*TEMPLATE, *BOUNDARY], dtype=object)
    template_row = np.where(position < before, position, before + place_in_boundary).clip(0, before + after - 1)
    ids = rng.integers(len(WORDS), size=len(rows))
    z = np.where(is_structural, rng.normal(4, 1.5, len(rows)), rng.normal(0, 1, len(rows)))
    z = np.where(position == 0, rng.normal(11, 3, len(rows)), z)
    in_window = position >= total - 16
    share = np.exp(z) / np.bincount(rows, np.exp(z))[rows]
    return pd.DataFrame(
        {
            **_keys(prompts, rows),
            "position": position,
            "token_id": ids,
            "token": np.where(is_structural, template[template_row, 0], _words(ids)),
            "role": np.where(is_structural, "template", "user").astype(object),
            "structural_role": np.where(is_structural, template[template_row, 1], None),
            "is_structural": is_structural,
            "attention_received": np.exp(z - 6),
            "attention_window": np.where(in_window, np.nan, np.exp(z - 6)),
            "attention_share": share,
            "z_score": z,
            "z_window": np.where(in_window, np.nan, z),
            "is_sink": z > 6,
            "is_sink_window": pd.array(z > 6, dtype="boolean"),
            "null_reason": None,
        }
    ).assign(is_sink_window=lambda frame: frame["is_sink_window"].mask(in_window))


def _prefill_heads(prompts: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    n_layers, n_heads = 4, 3
    rows, place = _expand(prompts, np.full(len(prompts), n_layers * n_heads))
    return pd.DataFrame(
        {
            **_keys(prompts, rows),
            "layer": place // n_heads,
            "head": place % n_heads,
            "first_token_attention": rng.uniform(0, 0.8, len(rows)),
            "max_content_attention": rng.uniform(0, 0.1, len(rows)),
            "max_content_position": len(TEMPLATE),
        }
    )


def _decode_tokens(plan: Plan, generations: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    rows, step = _expand(generations, np.full(len(generations), plan.n_answer_tokens))
    bits, draft_bits = _entropies(generations, rows, rng)
    ids = rng.integers(len(WORDS), size=len(rows))
    probability = rng.uniform(0.05, 0.95, len(rows))
    return pd.DataFrame(
        {
            **_keys(generations, rows),
            "repetition": generations["repetition"].to_numpy()[rows],
            "step": step,
            "token_id": ids,
            "token": _words(ids),
            "logprob": np.log(probability),
            "entropy_bits": bits,
            "entropy_norm": bits / np.log2(49152),
            "sampling_entropy_bits": 0.6 * bits,
            "top_ids": [[0, 1, 2, 3, 9]] * len(rows),
            "top_tokens": [[" the", " cat", " sat", " on", " mat"]] * len(rows),
            "top_probs": [[0.5, 0.2, 0.1, 0.05, 0.01]] * len(rows),
            "is_word_start": rng.random(len(rows)) < 0.6,
            "draft_entropy_bits": draft_bits,
            "draft_top_prob": np.exp(-0.5 * draft_bits),
            "draft_top_margin": np.exp(-0.8 * draft_bits),
            "expected_accept": _acceptance(plan, draft_bits, rng),
        }
    )


def _decode_runs(plan: Plan, generations: pd.DataFrame, tokens: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    columns = ["entropy_bits", "entropy_norm", "draft_entropy_bits", "expected_accept"]
    means = tokens.groupby(["prompt_id", "repetition"], sort=False)[columns].mean()
    decode_s = rng.uniform(3, 5, len(generations))
    return generations.assign(
        n_prompt_tokens=generations["n_content"] + len(TEMPLATE) + len(BOUNDARY),
        n_tokens=plan.n_answer_tokens,
        finish_reason="length",
        mean_entropy_bits=means["entropy_bits"].to_numpy(),
        mean_entropy_norm=means["entropy_norm"].to_numpy(),
        mean_draft_entropy_bits=means["draft_entropy_bits"].to_numpy(),
        mean_expected_accept=means["expected_accept"].to_numpy(),
        distinct_trigram_share=np.where(np.arange(len(generations)) % 25 == 7, 0.4, 0.97),
        ttft_s=0.2,
        decode_s=decode_s,
        tokens_per_s=plan.n_answer_tokens / decode_s,
        text="An answer.",
        null_reason=None,
    )


def _decode_attention(prefill_tokens: pd.DataFrame, repetitions: int, rng: np.random.Generator) -> pd.DataFrame:
    repeated = [prefill_tokens.assign(repetition=i) for i in range(repetitions)]
    frame = pd.concat(repeated, ignore_index=True)
    noise = rng.normal(0, 0.5, len(frame))
    return frame.assign(
        attention_from_generated=frame["attention_received"] * np.exp(noise), z_generated=frame["z_score"] + noise
    )


def _attention_steps(plan: Plan, tokens: pd.DataFrame, entropy: str, stream: int) -> pd.DataFrame:
    """A row a token: masses that sum to 1, that of position 0 as planted."""
    rng = np.random.default_rng([plan.seed, stream])
    n = len(tokens)
    columns: dict[str, object] = {}
    for suffix in ("", *(f"_{third}" for third in THIRDS)):
        sink = _sink_mass(plan, tokens[entropy], rng)
        rest = rng.dirichlet([1.0, 2.0, 3.0], n) * (1 - sink[:, None])
        masses = dict(zip(("structural_mass", "content_mass", "own_mass"), rest.T, strict=True))
        others = {name: rng.uniform(0.1, 0.9, n) for name in ATTENTION_MEASURES}
        columns |= {f"{name}{suffix}": values for name, values in {**others, "sink_mass": sink, **masses}.items()}
    is_first = (tokens["step"] if "step" in tokens else tokens["round"] + tokens["index"]).to_numpy() == 0
    columns |= {name: np.where(is_first, np.nan, columns[name]) for name in columns if name.startswith("lookback")}
    reason = np.where(is_first, "lookback_ratio: the answer has no token yet", None)
    return tokens.assign(**columns, null_reason=reason)


def _sink_mass(plan: Plan, bits: pd.Series, rng: np.random.Generator) -> NDArray:
    log_odds = plan.sink_effect * np.log(bits.to_numpy(dtype=np.float64)) + rng.normal(0, 0.5, len(bits))
    return 1 / (1 + np.exp(0.5 - log_odds))


def _attention_heads(plan: Plan, tokens: pd.DataFrame) -> pd.DataFrame:
    """Two layers of heads; only the first head of the last layer pays position 0 as planted, the others by chance."""
    rng = np.random.default_rng([plan.seed, 3])
    rows = []
    for (prompt_id, category, repetition), of_answer in tokens.groupby(["prompt_id", "category", "repetition"]):
        for layer, head in np.ndindex(2, plan.heads):
            n = len(of_answer)
            lists = {name: rng.uniform(0.1, 0.5, n).astype(np.float16) for name in _HEAD_LISTS}
            if (layer, head) == (1, 0):
                lists["sink_mass"] = _sink_mass(plan, of_answer["entropy_bits"], rng).astype(np.float16)
            keys = {"prompt_id": prompt_id, "category": category, "repetition": repetition}
            rows.append({**keys, "layer": layer, "head": head, **lists})
    return pd.DataFrame(rows)


_HEAD_LISTS = (
    *("sink_mass", "structural_mass", "content_mass", "own_mass", "previous_mass"),
    *("attention_entropy_bits", "attention_entropy_rest_bits"),
)


def _speculation(
    plan: Plan, generations: pd.DataFrame, condition: Condition, rng: np.random.Generator
) -> dict[str, pd.DataFrame]:
    """Rounds of drafted tokens with fates drawn token by token; one verifier token ends each round."""
    n_rounds = max(2, plan.n_answer_tokens // 2)
    gamma = condition.gamma
    keys = asdict(condition) | {
        "stop_threshold": np.nan if condition.stop_threshold is None else condition.stop_threshold
    }
    rows, number = _expand(generations, np.full(len(generations), n_rounds))
    token_rows = np.repeat(np.arange(len(rows)), gamma)
    index = np.tile(np.arange(gamma), len(rows))
    bits, draft_bits = _entropies(generations, rows[token_rows], rng)
    expected = _acceptance(plan, draft_bits, rng, condition.temperature)
    n_proposed = _n_proposed(condition, draft_bits.reshape(-1, gamma))
    passed = (rng.random(len(index)) < expected).reshape(-1, gamma)
    n_accepted = np.minimum(np.where(passed.all(axis=1), gamma, passed.argmin(axis=1)), n_proposed)
    n_tested = np.minimum(n_accepted + 1, n_proposed)
    untested = index >= n_tested[token_rows]
    outcome = np.where(untested, "untested", np.where(index < n_accepted[token_rows], "accepted", "rejected"))
    draft_s, verify_s = (rng.normal(mean, 0.002, len(rows)).clip(1e-3) for mean in (n_proposed * 0.003, 0.028))
    round_keys = {**_keys(generations, rows), **keys, "repetition": generations["repetition"].to_numpy()[rows]}
    rounds = pd.DataFrame(
        {
            **round_keys,
            "round": number,
            "n_proposed": n_proposed,
            "n_tested": n_tested,
            "n_accepted": n_accepted,
            "n_emitted": n_accepted + 1,
            "stopped_early": n_proposed < gamma,
            "draft_s": draft_s,
            "verify_s": verify_s,
            "overhead_s": 0.004,
        }
    )
    drafted = pd.DataFrame(
        {
            **{key: np.repeat(rounds[key].to_numpy(), gamma) for key in (*round_keys, "round")},
            "index": index,
            "kind": "draft",
            "outcome": outcome.astype(object),
            "emitted": outcome == "accepted",
            "token_id": rng.integers(len(WORDS), size=len(index)),
            "p_draft": rng.uniform(0.1, 0.9, len(index)),
            "p_verifier": np.where(untested, np.nan, rng.uniform(0.1, 0.9, len(index))),
            "accept_prob": np.where(untested, np.nan, expected),
            "expected_accept": np.where(untested, np.nan, expected),
            "draft_entropy_bits": draft_bits,
            "draft_entropy_norm": draft_bits / np.log2(49152),
            "draft_sampling_entropy_bits": 0.6 * draft_bits,
            "draft_top_prob": np.exp(-0.5 * draft_bits),
            "draft_top_margin": np.exp(-0.8 * draft_bits),
            "verifier_entropy_bits": np.where(untested, np.nan, bits),
            "verifier_entropy_norm": np.where(untested, np.nan, bits / np.log2(49152)),
        }
    )
    last = pd.DataFrame(
        {
            **{key: rounds[key].to_numpy() for key in (*round_keys, "round")},
            "index": n_proposed,
            "kind": np.where(n_accepted == n_proposed, "bonus", "correction").astype(object),
            "outcome": None,
            "emitted": True,
            "token_id": rng.integers(len(WORDS), size=len(rows)),
            "p_verifier": rng.uniform(0.1, 0.9, len(rows)),
            "verifier_entropy_bits": rng.uniform(0.5, 3.0, len(rows)),
            "verifier_entropy_norm": 0.1,
        }
    )
    drafted = drafted[index < n_proposed[token_rows]]
    tokens = pd.concat([drafted, last], ignore_index=True)
    tokens["token"] = _words(tokens["token_id"].to_numpy())
    tokens = tokens.sort_values(["prompt_id", "repetition", "round", "index"], kind="stable", ignore_index=True)
    return {
        "spec_tokens": tokens,
        "spec_rounds": rounds,
        "spec_runs": _spec_runs(plan, generations, rounds, tokens, keys, rng),
    }


def _n_proposed(condition: Condition, draft_bits: NDArray) -> NDArray[np.intp]:
    """Tokens drafted in each round before the rule stops it, never before the first: (rounds, gamma) -> (rounds,)."""
    if condition.stop_threshold is None:
        return np.full(len(draft_bits), condition.gamma)
    if condition.stop == "entropy":
        stops = draft_bits / np.log2(49152) >= condition.stop_threshold
    else:
        stops = 1 - np.sqrt(0.2 * draft_bits * np.log(2)) < condition.stop_threshold
    stops[:, 0] = False
    return np.where(stops.any(axis=1), stops.argmax(axis=1), condition.gamma)


def _spec_runs(
    plan: Plan,
    generations: pd.DataFrame,
    rounds: pd.DataFrame,
    tokens: pd.DataFrame,
    condition: dict[str, object],
    rng: np.random.Generator,
) -> pd.DataFrame:
    keys = ["prompt_id", "repetition"]
    sums = rounds.groupby(keys, sort=False)[
        ["n_proposed", "n_tested", "n_accepted", "n_emitted", "draft_s", "verify_s", "overhead_s"]
    ].sum()
    expected = tokens.groupby(keys)["expected_accept"].mean().loc[sums.index]
    total_s = sums["draft_s"] + sums["verify_s"] + sums["overhead_s"]
    applies = 1.0 if condition["stop"] == "none" else np.nan
    speedup = plan.speedup * rng.normal(1, 0.08, len(sums)).clip(0.5)
    n_rounds = len(rounds) // len(generations)
    per_s = (sums["n_emitted"] / total_s).to_numpy()
    columns = {name: sums[name].to_numpy() for name in ("n_proposed", "n_tested", "n_accepted")}
    return generations.assign(
        **condition,
        **columns,
        n_tokens=sums["n_emitted"].to_numpy(),
        n_rounds=n_rounds,
        acceptance_rate=columns["n_accepted"] / columns["n_proposed"],
        alpha=columns["n_accepted"] / columns["n_tested"],
        alpha_expected=expected.to_numpy(),
        tokens_per_round=sums["n_emitted"].to_numpy() / n_rounds,
        tokens_per_s=per_s,
        baseline_tokens_per_s=per_s / speedup,
        speedup=speedup,
        speedup_steps=speedup * rng.normal(1, 0.01, len(sums)) * applies,
        verifier_step_s=0.030,
        verifier_step_p10_s=0.029,
        verifier_step_p90_s=0.032,
        target_efficiency=0.9,
        draft_time_share=(sums["draft_s"] / total_s).to_numpy(),
        verify_time_share=(sums["verify_s"] / total_s).to_numpy(),
        overhead_time_share=(sums["overhead_s"] / total_s).to_numpy(),
        cost_ratio_flops=0.06,
        cost_ratio_time=0.08,
        theoretical_speedup_flops=speedup * 1.3 * applies,
        theoretical_speedup_time=speedup * 1.2 * applies,
        theoretical_speedup_full=speedup * 1.05 * applies,
        finish_reason="length",
        text="An answer.",
        measured_at=[f"2026-01-05T12:{i // 60 % 60:02d}:{i % 60:02d}+00:00" for i in range(len(sums))],
        load_average=plan.load_average,
        threads=1,
        null_reason=None if condition["stop"] == "none" else "formulas and medians mean drafts of gamma tokens",
    )


def _entropies(prompts: pd.DataFrame, rows: NDArray[np.intp], rng: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Verifier and draft entropy of tokens: log-normal about the prompt's mean, the two alike but not equal."""
    common, own = rng.normal(size=len(rows)), rng.normal(size=len(rows))
    mean = prompts["mean_bits"].to_numpy()[rows]
    return mean * np.exp(0.6 * common - 0.18), (mean + 0.8) * np.exp(0.4 * common + 0.3 * own - 0.125)


def _acceptance(plan: Plan, draft_bits: NDArray, rng: np.random.Generator, temperature: float = 0.7) -> NDArray:
    log_odds = 0.6 + plan.entropy_effect * (draft_bits - 2) + plan.temperature_effect * (temperature - 0.7)
    log_odds += rng.normal(0, 0.8, len(draft_bits))
    return 1 / (1 + np.exp(-log_odds))


def _expand(frame: pd.DataFrame, sizes: NDArray) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """For `sizes[i]` rows of each frame row: which row each belongs to, and its place in it."""
    rows = np.repeat(np.arange(len(frame)), sizes)
    starts = np.cumsum(sizes) - sizes
    return rows, np.arange(len(rows)) - starts[rows]


def _keys(frame: pd.DataFrame, rows: NDArray[np.intp]) -> dict[str, NDArray]:
    return {key: frame[key].to_numpy()[rows] for key in ("prompt_id", "category")}


def _words(ids: NDArray) -> NDArray:
    return np.array(WORDS, dtype=object)[ids % len(WORDS)]
