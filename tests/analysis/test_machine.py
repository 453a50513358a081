"""Whether the machine was quiet, by what the timings themselves tell; what was timed together."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from synthetic import Plan, make_tables

from specstudy.analysis.bootstrap import AnalysisSettings
from specstudy.analysis.machine import disturbed, sittings, why_busy
from specstudy.analysis.study import analyze

FAST = AnalysisSettings(bootstrap_samples=200)
PLAN = Plan(n_per_category=4, n_answer_tokens=12)


def runs(**columns: object) -> pd.DataFrame:
    return make_tables(PLAN)["spec_runs"].assign(**columns)


def test_load_above_the_threads_or_uneven_steps_disturb_a_generation() -> None:
    frame = runs().head(4)
    frame["load_average"] = [1.4, 1.6, np.nan, 0.2]
    frame["verifier_step_p90_s"] = frame["verifier_step_p10_s"] * [1.2, 1.2, 1.2, 1.6]
    assert disturbed(frame).tolist() == [False, True, False, True]
    assert disturbed(frame.assign(threads=2)).tolist() == [False, False, False, True]
    alone = frame.assign(verifier_step_p10_s=np.nan, verifier_step_p90_s=np.nan)
    assert disturbed(alone).tolist() == [False, True, False, False]


def test_a_quiet_machine_is_not_called_busy_for_a_few_bursts() -> None:
    frame = runs()
    assert why_busy(frame) == ""
    burst = frame.index < len(frame) // 4
    assert why_busy(frame.assign(load_average=np.where(burst, 3.0, 1.0))) == ""
    assert "load 3.0" in why_busy(frame.assign(load_average=3.0))
    assert why_busy(frame.iloc[:0]) == ""


@pytest.mark.parametrize(("factor", "busy"), [(1.05, False), (1.2, True), (0.8, True)])
def test_clock_and_steps_that_differ_by_over_a_tenth_are_a_reason(factor: float, busy: bool) -> None:
    frame = runs()
    assert bool(why_busy(frame.assign(speedup=frame["speedup_steps"] * factor))) == busy


def test_a_pause_parts_two_sittings() -> None:
    minutes = [0, 1, 2, 60, 61, 3]
    begun = pd.Series([f"2026-01-05T{10 + m // 60}:{m % 60:02d}:00+00:00" for m in minutes])
    assert sittings(begun).tolist() == [1, 1, 1, 2, 2, 1]
    assert sittings(begun.iloc[:1]).tolist() == [1]
    assert sittings(begun.iloc[:0]).tolist() == []
    # Where every generation takes ten minutes, ten minutes are no pause.
    slow = pd.Series([f"2026-01-05T10:{m:02d}:00+00:00" for m in (0, 10, 20, 30)])
    assert sittings(slow).tolist() == [1, 1, 1, 1]


def test_the_same_time_in_another_zone_is_no_pause() -> None:
    begun = pd.Series(["2026-01-05T10:00:00+00:00", "2026-01-05T12:01:00+02:00"])
    assert sittings(begun).tolist() == [1, 1]


def test_a_busy_machine_decides_no_claim_of_speed_and_says_why() -> None:
    speeds = {}
    for load in (1.0, 3.2):
        tables = make_tables(Plan(n_per_category=6, n_answer_tokens=24, speedup=1.3, load_average=load))
        result = analyze(tables, FAST)
        speeds[load] = {claim.claim_id: claim for claim in result.claims if claim.family == "speed"}
    assert speeds[1.0]["speedup_above_one"].verdict == "supported"
    answered = [claim for claim in speeds[3.2].values() if speeds[1.0][claim.claim_id].verdict != "not_run"]
    for claim in answered:
        assert claim.verdict == "undecided"
        assert "busy" in claim.note
        assert "load 3.2" in claim.note
    assert speeds[3.2]["speedup_above_one"].estimate == speeds[1.0]["speedup_above_one"].estimate


def test_one_prompt_that_a_burst_slowed_moves_no_speed_far() -> None:
    tables = make_tables(Plan(n_per_category=2, n_answer_tokens=12))
    quiet = analyze(tables, FAST)
    tables["spec_runs"].loc[0, ["speedup", "speedup_steps"]] = 12.0
    tables["spec_rounds"].loc[0, "verify_s"] = 60.0
    burst = analyze(tables, FAST)

    def told(result):
        frame = result.by_category.set_index(["category", "measure"])
        return frame.loc[("all", result.at("speedup"))]

    assert told(burst)["value"] == pytest.approx(told(quiet)["value"], abs=0.1)
    assert told(burst)["high"] < 1.5
    verify = quiet.round_times["part"] == "verify"
    then, now = (result.round_times[verify]["value"].item() for result in (quiet, burst))
    assert now == pytest.approx(then, rel=0.05)
