"""Nights from the scenario to the verdict, with servers that answer from a script."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from orchestrator.documents.report_document import Facts
from orchestrator.documents.report_page import page_html
from orchestrator.nightly.night_run import NightJudge, in_doubt, measured_night, night_tables, unknown_software
from orchestrator.nights.expected_changes import ExpectedChange
from orchestrator.nights.night import Build, End, Measured, Night, NightHost, Pair, SeriesKey, SeriesNight, Verdict
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_terms import rules_of
from orchestrator.nights.night_text import exit_code, headline
from orchestrator.outcome import Label
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.reports.run_report import run_report
from orchestrator.run_files.journal import read_events
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.night_scenario import night_scenario
from orchestrator.server_start import LaunchSpec
from orchestrator.sweeps.run_conductor import PairGuide, missing_work, run_conductor
from tests.orchestrator.night_samples import (
    AT,
    build_slot,
    is_candidate,
    night_on,
    nightly_scenario,
    series,
    sweep_night,
)
from tests.orchestrator.report_checks import block_named


def candidate_dies(spec: LaunchSpec) -> Label | None:
    return Label.KV_BUDGET if is_candidate(spec) else None


def test_a_build_that_is_eight_percent_slower_is_a_regression_of_speed_by_its_name(tmp_path: Path) -> None:
    levels = nightly_scenario(workloads=[{"name": "chat", "concurrency": [1, 4]}])
    night = night_on(tmp_path / "run", [build_slot(slowdown=1.08)], levels)

    for level in ("C=1", "C=4"):
        found = series(night, "e2e_p50_ms", level)
        assert found.verdict is Verdict.REGRESSED
        assert found.worse == pytest.approx(0.08, abs=0.005)
        assert series(night, "output_throughput_tok_s", level).verdict is Verdict.REGRESSED
        assert series(night, "accept_length", level).verdict is Verdict.SAME
    assert series(night, "kv_tokens").verdict is Verdict.SAME
    assert (night.verdict, exit_code(night)) == (Verdict.REGRESSED, 1)
    assert headline(night).startswith("regressed: ")
    assert (night.reference.name, night.candidate.name) == ("pinned", "tonight")


def test_a_kv_cache_that_lost_fifteen_percent_is_a_regression_of_kv_tokens_only(tmp_path: Path) -> None:
    night = night_on(tmp_path / "run", [build_slot(kv_tokens=(100_000, 85_000))])

    assert [one.key.metric for one in night.of(Verdict.REGRESSED)] == ["kv_tokens"]
    assert headline(night).startswith("regressed: kv_tokens of speculative_num_steps=2: -15.0%")


def test_a_candidate_that_dies_is_a_regression_with_its_diagnosis_and_is_not_started_again(tmp_path: Path) -> None:
    slot = build_slot(dies=candidate_dies)
    night = night_on(tmp_path / "run", [slot])

    (found,) = night.series
    assert (found.key.metric, found.verdict) == ("feasible", Verdict.REGRESSED)
    assert [start.candidate for start in found.measured.starts] == [End.DIED]
    assert headline(night) == (
        "regressed: start of speculative_num_steps=2: died (kv_budget) in 1 of 1 starts; the reference served "
        "(the line that shows it)"
    )
    assert len(slot.launched) == 2


def test_a_reference_that_dies_where_the_candidate_serves_is_an_improvement(tmp_path: Path) -> None:
    night = night_on(
        tmp_path / "run", [build_slot(dies=lambda spec: None if is_candidate(spec) else Label.OOM_WEIGHTS)]
    )

    assert (night.verdict, exit_code(night)) == (Verdict.IMPROVED, 0)


def test_an_unchanged_build_is_the_same_whatever_the_seed_of_its_noise(tmp_path: Path) -> None:
    for number in range(2):
        scenario = nightly_scenario(seed=number)
        night = night_on(tmp_path / f"run{number}", [build_slot()], scenario)

        assert (night.verdict, exit_code(night)) == (Verdict.SAME, 0), headline(night)
        assert headline(night) == "same: 6 of 6 series as in the reference"


def test_members_of_a_pair_are_started_one_after_the_other_on_one_slot_also_with_several_slots(tmp_path: Path) -> None:
    slots = [build_slot("x/0", "x"), build_slot("x/1", "x"), build_slot("y/0", "y", host_factor=1.3)]
    scenario = nightly_scenario({"configs": "all"})
    night = night_on(tmp_path / "run", slots, scenario)

    for slot in slots:
        numbers = [(trial_id.rpartition("-r")[2], trial_id.partition("-")[0]) for trial_id in slot.launched]
        for one, two in zip(numbers[::2], numbers[1::2], strict=True):
            assert one[0] == two[0]
            assert one[1] != two[1]
    assert night.verdict is Verdict.SAME  # one host is 30 % slower, and no pair knows it
    for config in {one.key.config for one in night.series}:
        hosts = Counter(start.host for one in night.series if one.key.config == config for start in one.measured.starts)
        assert set(hosts) == {"x", "y"}


def test_a_config_that_is_left_open_gets_more_pairs_so_that_each_host_has_its_share(tmp_path: Path) -> None:
    scenario, root = night_scenario(nightly_scenario()), tmp_path / "run"
    run = RunDirectory.create(root, scenario)
    slots = [build_slot("x/0", "x"), build_slot("y/0", "y")]
    sweep_night(run, scenario, slots, PairGuide(lambda root: {"f705b2cbab14"}))
    run.close(complete=True)

    night = measured_night(root, scenario, AT, NightJudge(rules_of(scenario))).night
    pairs = series(night, "e2e_p50_ms", "C=4").measured.pairs
    assert len(pairs) == 6
    assert Counter(pair.host for pair in pairs) == {"x": 3, "y": 3}
    steps = [e["text"] for e in read_events(tmp_path / "run" / "journal.jsonl") if e["event"] == "search_step"]
    assert steps == ["3 pairs leave a series open: 3 more"]


def test_a_night_knows_torch_and_cuda_of_both_builds_also_of_one_that_never_served(tmp_path: Path) -> None:
    slots = [build_slot(torch=("2.9.1", "2.10.0"), dies=lambda spec: Label.KV_BUDGET if is_candidate(spec) else None)]
    night = night_on(tmp_path / "run", slots)

    known = [{name: dict(build.facts).get(name) for name in ("sglang", "torch", "cuda")}
             for build in (night.reference, night.candidate)]  # fmt: skip
    assert known == [
        {"sglang": "0.5.23", "torch": "2.9.1", "cuda": "12.8"},
        {"sglang": None, "torch": "2.10.0", "cuda": "12.8"},
    ]


def test_the_report_of_a_night_has_the_packages_of_each_build(tmp_path: Path) -> None:
    night_on(tmp_path / "run", [build_slot(torch=("2.9.1", "2.10.0"))])

    facts = block_named(run_report(tmp_path / "run", rank_run(tmp_path / "run")), "environment-facts")
    assert isinstance(facts, Facts)
    assert [row for row in facts.rows if row[0].startswith("packages of the ") and "driver" not in row[0]] == [
        ("packages of the candidate", "CUDA of torch 12.8, torch 2.10.0"),
        ("packages of the reference", "CUDA of torch 12.8, torch 2.9.1"),
    ]


def test_hosts_with_another_torch_each_are_told_as_such_and_what_nobody_knows_with_its_reason(tmp_path: Path) -> None:
    slots = [build_slot("x/0", "x", torch=("2.9.1", "")), build_slot("y/0", "y", torch=("2.10.0", ""))]
    night = night_on(tmp_path / "run", slots)

    assert dict(night.reference.facts)["torch"] == "2.10.0 / 2.9.1"
    assert "torch" not in dict(night.candidate.facts)
    emulated = night_scenario(nightly_scenario())
    real = emulated.model_copy(update={"engine": emulated.engine.model_copy(update={"kind": "sglang"})})
    assert unknown_software(tmp_path / "run", real) == ["torch and CUDA of the candidate are not known: no Python"]
    assert unknown_software(tmp_path / "run", emulated) == []


def test_a_start_that_broke_makes_its_pair_void_and_another_takes_its_place(tmp_path: Path) -> None:
    broken: list[str] = []

    def breaks_twice(spec: LaunchSpec) -> Label | None:
        if is_candidate(spec) and spec.trial_id.endswith("-r0"):
            broken.append(spec.trial_id)
            return Label.PORT_IN_USE
        return None

    night = night_on(tmp_path / "run", [build_slot(dies=breaks_twice)])

    assert broken
    assert len(series(night, "e2e_p50_ms", "C=4").measured.pairs) == 3
    starts = series(night, "feasible").measured.starts
    assert [start.candidate for start in starts] == [End.SERVED, End.SERVED, End.SERVED]
    assert night.verdict is Verdict.SAME


def test_a_night_that_was_stopped_goes_on_and_makes_the_half_pair_anew(tmp_path: Path) -> None:
    scenario, root = night_scenario(nightly_scenario()), tmp_path / "run"
    run = RunDirectory.create(root, scenario)
    slot = build_slot()
    slot.lose_at = "none"
    launched: list[str] = []

    def stop_in_the_third(spec: LaunchSpec) -> Label | None:
        launched.append(spec.trial_id)
        if len(launched) == 4:
            slot.lose_at = spec.trial_id  # as if the driver had ended within the second pair
        return None

    slot._script = lambda _, spec: stop_in_the_third(spec)
    sweep_night(run, scenario, [slot])
    run.close(complete=False)
    half = night_tables(root, scenario)
    assert sum(row["outcome"] == "measured" for row in half.trials) == 3

    again = RunDirectory.reopen(root, scenario)
    guide = PairGuide(lambda place: in_doubt(scenario, NightJudge(rules_of(scenario)), AT, place))
    assert missing_work(scenario, again, run_conductor(scenario, again, guide))
    sweep_night(again, scenario, [build_slot()], guide)
    again.close(complete=True)
    night = measured_night(root, scenario, AT, NightJudge(rules_of(scenario))).night

    assert len(series(night, "e2e_p50_ms", "C=4").measured.pairs) == 3
    assert night.verdict is Verdict.SAME
    finished = RunDirectory.reopen(root, scenario)
    assert not missing_work(scenario, finished, run_conductor(scenario, finished, guide))
    finished.close(complete=True)


def test_without_time_the_night_ends_with_the_pairs_that_it_has(tmp_path: Path) -> None:
    scenario = night_scenario(nightly_scenario())
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = build_slot()
    guide = PairGuide(lambda root: (), lambda: len(slot.launched) >= 2)
    result = sweep_night(run, scenario, [slot], guide)
    run.close(complete=True)

    assert result.complete
    night = measured_night(tmp_path / "run", scenario, AT, NightJudge(rules_of(scenario))).night
    assert 1 <= len(series(night, "e2e_p50_ms", "C=4").measured.pairs) <= 2


def test_the_report_of_a_night_says_how_the_build_that_leads_is_started(tmp_path: Path) -> None:
    """The build stands among the settings of its configs, and is no flag of a server."""
    night_on(tmp_path / "run", [build_slot(slowdown=0.8)])

    page = page_html(run_report(tmp_path / "run", rank_run(tmp_path / "run")))

    assert "--candidate" in page
    assert "--build" not in page


def test_the_run_of_a_night_has_a_report_and_keeps_no_secret(tmp_path: Path) -> None:
    secrets = {
        "reference": {"name": "pinned", "extra_args": ["--reference"], "env": {"A_TOKEN": "secret-of-reference"}}
    }
    night_on(tmp_path / "run", [build_slot()], nightly_scenario(secrets))

    document = run_report(tmp_path / "run", rank_run(tmp_path / "run"))

    assert "pinned" in page_html(document)
    kept = [file for file in (tmp_path / "run").rglob("*") if file.is_file()]
    parquet = [str(pq.read_table(file).to_pylist()) for file in kept if file.suffix == ".parquet"]
    assert len(parquet) > 5
    assert not any("secret-of-reference" in text for text in parquet)
    assert not any(b"secret-of-reference" in file.read_bytes() for file in kept)


def lasting_night(day: int, mean: float, reference: str = "0.5.9", driver: str = "570") -> Night:
    """Three pairs around `mean`, on one host."""
    key = SeriesKey("output_throughput_tok_s", "c1", "chat", "C=16", "8x H100")
    pairs = tuple(Pair("a", n == 1, 100.0, 100.0 * math.exp(mean + r)) for n, r in enumerate((-0.015, 0.0, 0.015)))
    return Night(
        f"2026-11-{day:02d}T02:00:00+00:00", "s", "", Build("pinned", (("sglang", reference),)), Build("tonight"),
        (NightHost("a", "8x H100", (("driver", driver),)),), (SeriesNight(Measured(key, "", pairs), Verdict.SAME, ""),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tonight", "changes", "verdict"),
    [
        (lasting_night(22, -0.03), (), Verdict.REGRESSED),
        (lasting_night(22, -0.03, reference="0.5.10"), (), Verdict.INCONCLUSIVE),
        (lasting_night(22, -0.03, driver="580"), (), Verdict.INCONCLUSIVE),
        (lasting_night(22, -0.03), (ExpectedChange(date=date(2026, 11, 22), why="new kernel"),), Verdict.INCONCLUSIVE),
    ],
    ids=["as it was", "another reference", "another driver", "an expected change began"],
)
def test_two_nights_are_taken_together_only_where_nothing_but_the_candidate_changed(
    tonight: Night, changes: tuple[ExpectedChange, ...], verdict: Verdict
) -> None:
    earlier = (*(lasting_night(day, 0.0) for day in range(1, 21)), lasting_night(21, -0.03))
    judge = NightJudge(NightRules(), earlier, changes)
    (found,) = judge.judged([one.measured for one in tonight.series], replace(tonight, series=()))

    assert found.verdict is verdict
