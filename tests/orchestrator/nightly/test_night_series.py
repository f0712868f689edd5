"""From rows of a run to series in pairs: what counts as a pair, and what does not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from orchestrator.nightly.night_series import NightTables, night_metrics, night_series
from orchestrator.nights.night import End, Measured, SeriesNight, Verdict
from orchestrator.nights.night_text import series_line
from orchestrator.nights.night_verdict import judge_night
from orchestrator.objectives.aim import PointValue
from orchestrator.scenarios.night_scenario import night_scenario
from orchestrator.scenarios.sweep_space import build_pairs
from orchestrator.trial import LoadLevel
from tests.orchestrator.night_samples import nightly_scenario

SCENARIO = night_scenario(nightly_scenario())
(PAIR,) = build_pairs(SCENARIO)
C4 = LoadLevel("concurrency", 4.0)


def trial(build: str, repeat: int, began: int, **more: Any) -> dict[str, Any]:
    config = PAIR.reference if build == "reference" else PAIR.candidate
    return {
        "trial_id": f"{config.config_id}-r{repeat}", "config_id": config.config_id, "repeat": repeat, "attempt": 1,
        "host": "h", "slot": "h/0", "began_at": f"2026-11-30T02:{began:02d}", "outcome": "measured", "label": None,
        "evidence": None, "start_s": 10.0, "host_class": "8x GPU", "phases": [], "account": None,
        "settings_json": json.dumps(config.as_dict()), **more,
    }  # fmt: skip


def load(row: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"trial_id": row["trial_id"], "attempt": row["attempt"], "slot": row["slot"], **more}


def value(row: dict[str, Any], tok_s: float, **more: Any) -> PointValue:
    metrics = {"output_throughput_tok_s": tok_s, "e2e_p50_ms": 1e5 / tok_s, "accept_length": None}
    return PointValue(row["config_id"], "chat", C4, row["repeat"], metrics, trial_id=row["trial_id"], **more)


def made(rows: list[dict[str, Any]], loads: list[dict[str, Any]] | None = None, **more: Any) -> dict[str, Measured]:
    """Series by metric."""
    speeds = {"reference": 100.0, "candidate": 92.0}
    values = [
        value(row, speeds["reference" if row["config_id"] == PAIR.reference.config_id else "candidate"], **more)
        for row in rows
        if row["outcome"] == "measured"
    ]
    tables = NightTables(rows, [load(row) for row in rows] if loads is None else loads, values)
    return {one.key.metric: one for one in night_series(SCENARIO, tables)}


def test_a_pair_has_the_values_of_both_members_and_knows_which_was_first() -> None:
    found = made(
        [trial("reference", 0, 1), trial("candidate", 0, 2), trial("candidate", 1, 3), trial("reference", 1, 4)]
    )

    pairs = found["output_throughput_tok_s"].pairs
    assert [(p.host, p.candidate_first, p.reference, p.candidate) for p in pairs] == [
        ("h", False, 100.0, 92.0),
        ("h", True, 100.0, 92.0),
    ]
    key = found["output_throughput_tok_s"].key
    assert (key.config, key.workload, key.level, key.host_class) == (PAIR.config_id, "chat", "C=4", "8x GPU")
    assert [(p.reference, p.candidate) for p in found["start_s"].pairs] == [(10.0, 10.0), (10.0, 10.0)]


def test_a_metric_that_neither_build_has_is_no_series() -> None:
    found = made([trial("reference", 0, 1), trial("candidate", 0, 2)])

    assert set(found) == {"feasible", "start_s", "output_throughput_tok_s", "e2e_p50_ms"}


def test_members_on_different_slots_are_no_pair_and_the_series_says_so() -> None:
    found = made([trial("reference", 0, 1), trial("candidate", 0, 2, slot="h/1")])

    assert found["e2e_p50_ms"].pairs == ()
    assert found["e2e_p50_ms"].missing == "its members ran on different slots"
    assert [start.candidate for start in found["feasible"].starts] == [End.SERVED]


def test_a_member_whose_points_are_of_two_starts_is_no_pair() -> None:
    rows = [trial("reference", 0, 1), trial("candidate", 0, 2, attempt=2)]
    loads = [load(rows[0]), load(rows[1], attempt=1), load(rows[1])]

    assert made(rows, loads)["e2e_p50_ms"].missing == "the candidate was started twice"
    assert len(made(rows)["e2e_p50_ms"].pairs) == 1  # the first start broke before anything was measured


def test_a_void_point_is_left_out_with_its_reason() -> None:
    found = made([trial("reference", 0, 1), trial("candidate", 0, 2)], void_reasons=("the client was the limit",))

    assert found["e2e_p50_ms"].pairs == ()
    assert found["e2e_p50_ms"].missing == "void: the client was the limit"
    assert "accept_length" not in found  # these servers do not speculate: it would not be there if the points counted


def test_reasons_that_differ_in_their_figures_only_are_told_once() -> None:
    rows = [trial(build, n, 2 * n + at) for n in range(2) for at, build in enumerate(("reference", "candidate"))]
    values = [value(row, 100.0, void_reasons=(f"late by {at} ms",)) for at, row in enumerate(rows, 71)]

    (found,) = [
        one for one in night_series(SCENARIO, NightTables(rows, [load(row) for row in rows], values))
        if one.key.metric == "e2e_p50_ms"
    ]  # fmt: skip

    assert found.missing == "void: late by 71 ms"


def test_a_candidate_whose_requests_fail_regressed_though_its_points_are_void() -> None:
    """No metric has a value then: the night would stay open for good."""
    rows = [trial(build, n, 2 * n + i) for n in range(3) for i, build in enumerate(("reference", "candidate"))]

    def judged(*failing: str) -> SeriesNight | None:
        values = []
        for row in rows:
            build = "reference" if row["config_id"] == PAIR.reference.config_id else "candidate"
            share, why = (0.05, ("10 of 200 requests failed",)) if build in failing else (0.0, ())
            values.append(value(row, 100.0, void_reasons=why))
            values[-1] = replace(values[-1], metrics={**values[-1].metrics, "failed_share": share})
        found = night_series(SCENARIO, NightTables(rows, [load(row) for row in rows], values))
        return next((one for one in judge_night(found) if one.key.metric == "feasible" and one.key.level), None)

    failed = judged("candidate")
    assert failed is not None
    assert series_line(failed).startswith("requests at chat C=4 of ")
    assert series_line(failed).endswith(
        ": failed (requests_failed) in 3 of 3 starts; the reference served (10 of 200 requests failed)"
    )
    assert failed.verdict is Verdict.REGRESSED
    both = judged("reference", "candidate")
    assert both is not None
    assert both.verdict is Verdict.INCONCLUSIVE
    assert judged() is None


def test_a_half_pair_and_a_cancelled_start_say_nothing() -> None:
    found = made([trial("reference", 0, 1), trial("candidate", 0, 2, outcome="cancelled")])

    assert list(found) == ["feasible"]
    assert found["feasible"].starts == ()


def test_a_death_is_told_with_its_diagnosis_and_has_no_series_of_speed() -> None:
    died = trial("candidate", 0, 2, outcome="infeasible", label="kv_budget", evidence="no memory", start_s=None)
    found = made([trial("reference", 0, 1), died])

    assert list(found) == ["feasible"]
    (start,) = found["feasible"].starts
    assert (start.reference, start.candidate, start.diagnosis, start.evidence) == (
        End.SERVED, End.DIED, "kv_budget", "no memory",
    )  # fmt: skip


def test_a_start_that_broke_by_the_host_is_no_start_and_one_that_broke_by_itself_is() -> None:
    def starts(label: str) -> int:
        broke = trial("candidate", 0, 2, outcome="failed", label=label, start_s=None)
        rows = [trial("reference", 0, 1), broke, trial("reference", 1, 3), trial("candidate", 1, 4)]
        return len(made(rows)["feasible"].starts)

    assert starts("gpu_occupied") == 1
    assert starts("segfault_abort") == 2


def test_hosts_of_two_classes_have_series_of_their_own() -> None:
    rows = [trial(build, repeat, began, host_class=of, slot=f"{of}/0")
            for build, repeat, began, of in (("reference", 0, 1, "a"), ("candidate", 0, 2, "a"),
                                             ("reference", 1, 1, "b"), ("candidate", 1, 2, "b"))]  # fmt: skip
    tables = NightTables(rows, [load(row) for row in rows], [value(row, 100.0) for row in rows])

    classes = [one.key.host_class for one in night_series(SCENARIO, tables) if one.key.metric == "e2e_p50_ms"]
    assert classes == ["a", "b"]


def test_what_the_objectives_look_at_is_compared_besides_the_metrics_of_nightly() -> None:
    objectives = [
        {"name": "o", "minimize": "ttft_p90_ms", "at": {"concurrency": 4}, "limits": ["tpot_p99_ms <= 50"]},
    ]
    scenario = night_scenario(nightly_scenario({"metrics": ["e2e_p50_ms"]}, objectives=objectives))

    assert night_metrics(scenario) == ("e2e_p50_ms", "ttft_p90_ms", "tpot_p99_ms")


class Counted(list[Any]):
    """How often its rows were gone through."""

    passes = 0

    def __iter__(self) -> Any:
        self.passes += 1
        return super().__iter__()


def test_loads_and_points_are_gone_through_once_however_many_trials_there_are() -> None:
    rows = [trial(build, n, 2 * n + i) for n in range(6) for i, build in enumerate(("reference", "candidate"))]
    loads, values = Counted(load(row) for row in rows), Counted(value(row, 100.0) for row in rows)
    found = night_series(SCENARIO, NightTables(rows, loads, values))

    assert [len(one.pairs) for one in found if one.key.metric == "output_throughput_tok_s"] == [6]
    assert (loads.passes, values.passes) == (1, 1)
