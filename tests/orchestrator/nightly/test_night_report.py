"""The report of a night's own run: its verdict first, and nothing that reads as a choice between two builds."""

from __future__ import annotations

import io
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from orchestrator.cli import main
from orchestrator.decisions.explain_command import show_explanation
from orchestrator.decisions.rank_command import RankRequest, rank
from orchestrator.documents.report_document import Plot, ReportDocument, Table
from orchestrator.documents.report_markdown import markdown
from orchestrator.errors import BadInput
from orchestrator.nightly.night_json import NightTold, night_json
from orchestrator.nightly.night_pairs import PairCount, are_enough, counts_line, ended_pairs, pair_counts, shortfall
from orchestrator.nightly.night_run import NightJudge, measured_night, night_tables
from orchestrator.nights.night import Gap
from orchestrator.nights.night_rules import NightRules
from orchestrator.nights.night_terms import rules_of
from orchestrator.outcome import Label
from orchestrator.paths import RunPaths
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.reports.run_report import run_report
from orchestrator.run_files.journal import read_events, replay
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.night_scenario import night_scenario
from orchestrator.server_start import LaunchSpec
from orchestrator.sweeps.run_conductor import PairGuide
from orchestrator.watching.run_watch import RunWatch
from tests.orchestrator.night_samples import AT, build_slot, is_candidate, nightly_scenario, sweep_night
from tests.orchestrator.report_checks import assert_is_whole, block_named, text_of

SCENARIO = night_scenario(
    nightly_scenario(
        {"configs": [{"speculative_num_steps": 2}, {"speculative_num_steps": 1}]},
        workloads=[{"name": "chat", "concurrency": [1, 4]}],
    )
)
# What only a run has that chooses.
OF_RANKINGS = re.compile(
    r"P\(best\)|runner-up|Best:|near-tie|Lowest|none is better in both|specsweep run --resume|best of"
)


def candidate_dies(spec: LaunchSpec) -> Label | None:
    """Where it speculates by one step."""
    depth = dict(spec.settings)["speculative_num_steps"]
    return Label.KV_BUDGET if is_candidate(spec) and depth == 1 else None


def keep_verdict(root: Path, gap: str = "") -> None:
    """As `nightly` does once all pairs are there."""
    night = measured_night(root, SCENARIO, AT, NightJudge(rules_of(SCENARIO))).night
    if gap:
        night = replace(night, series=(), gap=Gap(gap))
    told = NightTold(night, NightRules(), 60.0, ("over the nights: slower since May",))
    RunPaths(root).night.write_text(json.dumps(night_json(told)))


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tonight is 8 % slower with two steps, and dies with one."""
    root = tmp_path_factory.mktemp("runs") / "night"
    run = RunDirectory.create(root, SCENARIO)
    slot = build_slot(slowdown=1.08, dies=candidate_dies)
    sweep_night(run, SCENARIO, [slot])
    run.close(complete=True)
    return root


@pytest.fixture(scope="module")
def judged(measured: Path) -> ReportDocument:
    keep_verdict(measured)
    try:
        return run_report(measured, rank_run(measured))
    finally:
        RunPaths(measured).night.unlink()


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One pair and a half of the first config."""
    root = tmp_path_factory.mktemp("runs") / "begun"
    run = RunDirectory.create(root, SCENARIO)
    slot = build_slot(kv_tokens=(100_000, 85_000))
    sweep_night(run, SCENARIO, [slot], PairGuide(lambda _: (), lambda: len(slot.launched) >= 2))
    run.close(complete=False)
    return root


def test_the_verdict_comes_first_then_every_series_the_log_line_of_the_death_and_the_builds(
    judged: ReportDocument,
) -> None:
    (headline,) = judged.headlines

    assert (judged.title, headline.label) == ("Night of 2026-11-30: small", "Is tonight worse than pinned?")
    assert (headline.verdict, headline.tone) == ("regressed", "bad")
    assert "whether it starts (speculative_num_steps=1): died (kv_budget)" in str(headline.details[0])
    assert [s.section_id for s in judged.sections][:6] == ["series", "evidence", "pairs", "builds", "rules", "failures"]
    assert "over the nights: slower since May" in judged.warnings
    table = block_named(judged, "night-series")
    assert isinstance(table, Table)
    assert (table.rows[0][1].text, table.rows[0][0].text) == ("whether it starts", "regressed")
    assert "the line that shows it" in text_of(judged)
    assert_is_whole(judged)


def test_both_builds_are_drawn_by_their_role_and_neither_is_ranked(judged: ReportDocument) -> None:
    found = {section.section_id for section in judged.sections}
    curve = block_named(judged, "curve-0-concurrency-output_throughput_tok_s")

    assert found & {"ranking", "speed", "depth"} == set()
    assert {"load", "latency", "memory", "starts", "slots", "environment", "commands", "points"} <= found
    assert isinstance(curve, Plot)
    assert [series.name for series in curve.series] == [
        "speculative_num_steps=2, reference", "speculative_num_steps=2, candidate",
        "speculative_num_steps=1, reference",
    ]  # fmt: skip
    assert curve.summary.startswith("Means: at C=1 speculative_num_steps=2, reference ")
    assert OF_RANKINGS.findall(text_of(judged)) == []
    assert "--candidate" in text_of(judged)  # how each is started
    assert "died of kv_budget" in text_of(judged)


def test_markdown_begins_with_the_verdict_too(judged: ReportDocument) -> None:
    first = markdown(judged).partition("\n## Series")[0]

    assert "regressed" in first
    assert "slower since May" in first


def test_while_it_goes_on_there_is_no_verdict_but_how_far_the_pairs_have_come(begun: Path) -> None:
    document = run_report(begun, rank_run(begun), is_live=True)
    (headline,) = document.headlines

    assert (headline.verdict, headline.tone) == ("no verdict yet", "plain")
    assert headline.text == (
        "The night goes on; measured so far: 1 of 3 pairs of speculative_num_steps=2; 0 of 3 pairs of "
        "speculative_num_steps=1. It is judged once all pairs are there, not before."
    )
    table = block_named(document, "night-so-far")
    assert isinstance(table, Table)
    told = {row[0].note: row for row in table.rows}
    assert told["kv_tokens"][3].text == "-15.0"
    assert "regressed" not in " ".join(cell.text for row in table.rows for cell in row)
    assert "alarms that are none" in table.note
    assert OF_RANKINGS.findall(text_of(document)) == []
    assert_is_whole(document)


def test_a_night_that_ended_without_a_verdict_says_how_to_get_one(begun: Path) -> None:
    (headline,) = run_report(begun, rank_run(begun)).headlines

    assert (headline.verdict, headline.tone) == ("no verdict", "warn")
    assert headline.text == (
        "This night was not judged; measured so far: 1 of 3 pairs of speculative_num_steps=2; 0 of 3 pairs of "
        "speculative_num_steps=1. If its run has ended, it goes on, or is judged, with: "
        f"specsweep nightly --resume {begun} --history DIR"
    )


def test_a_gap_is_not_measured_with_its_reason_and_what_there_is(begun: Path) -> None:
    keep_verdict(begun, gap="all hosts were lost")
    try:
        document = run_report(begun, rank_run(begun))
    finally:
        RunPaths(begun).night.unlink()

    (headline,) = document.headlines
    assert (headline.verdict, headline.tone) == ("not measured", "warn")
    assert headline.text == "This night could not be measured, which is never a pass: all hosts were lost"
    assert document.sections[0].section_id == "so-far"


def test_rank_tells_the_verdict_again_and_ranks_nothing(measured: Path) -> None:
    keep_verdict(measured)
    kept = json.loads(RunPaths(measured).night.read_text())
    told = io.StringIO()
    try:
        rank(RankRequest(measured), Console(file=told, width=200))
        as_json = CliRunner().invoke(main, ["rank", str(measured), "--json"])
    finally:
        RunPaths(measured).night.unlink()

    assert told.getvalue().strip().startswith(kept["headline"])
    assert "Report:" in told.getvalue()
    assert OF_RANKINGS.findall(told.getvalue()) == []
    assert json.loads(as_json.output) == kept
    ranking = json.loads(RunPaths(measured).ranking.read_text())
    assert (ranking["objectives"], ranking["explain"]) == ({}, {})


def test_rank_of_a_night_that_nobody_has_judged_counts_its_pairs(begun: Path) -> None:
    told = CliRunner().invoke(main, ["rank", str(begun)]).output
    machines = json.loads(CliRunner().invoke(main, ["rank", str(begun), "--json"]).output)

    assert told.startswith("no verdict yet: 1 of 3 pairs of speculative_num_steps=2; 0 of 3 pairs of")
    assert (machines["verdict"], [one["measured"] for one in machines["pairs_so_far"]]) == (None, [1, 0])


def test_what_asks_a_run_for_its_choice_is_refused_by_a_night(measured: Path) -> None:
    with pytest.raises(BadInput, match="is a night, which picks nothing"):
        show_explanation(measured, None, (), as_json=False, console=Console(file=io.StringIO()))
    with pytest.raises(BadInput, match="is a night, which ranks nothing"):
        rank(RankRequest(measured, objective="fast"), Console(file=io.StringIO()))


def test_who_watches_a_night_sees_its_pairs_and_no_verdict_before_its_result(begun: Path) -> None:
    run = RunWatch(begun).look()

    pairs = "1 of 3 pairs of speculative_num_steps=2; 0 of 3 pairs of speculative_num_steps=1"
    assert (run.status, run.pairs) == ("starting", pairs)
    running = replace(run, status="running")
    assert running.text == f"running; no verdict yet, {pairs} measured"
    assert replace(run, status="ending").text == "its slots are through, it is being judged"


def test_pairs_are_counted_alike_from_the_tables_and_from_the_journal(measured: Path, begun: Path) -> None:
    for root in (measured, begun):
        ends = replay(read_events(RunPaths(root).journal)).outcomes.values()

        assert ended_pairs(SCENARIO, ends) == pair_counts(SCENARIO, night_tables(root, SCENARIO))
    (two, one) = pair_counts(SCENARIO, night_tables(measured, SCENARIO))
    assert two.measured >= 3
    assert (one.measured, one.died) == (0, 1)
    assert are_enough((two, one))  # half of its pairs died, which is a verdict


def test_a_class_of_hosts_on_which_nothing_has_ended_yet_is_not_enough(begun: Path) -> None:
    counts = pair_counts(SCENARIO, night_tables(begun, SCENARIO), ("8x A", ""))

    assert [(one.label, one.host_class, one.measured) for one in counts] == [
        ("speculative_num_steps=2", "", 1), ("speculative_num_steps=2", "8x A", 0),
        ("speculative_num_steps=1", "", 0), ("speculative_num_steps=1", "8x A", 0),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("measured_pairs", "died", "left_open", "told"),
    [
        (3, 0, 0, ""),
        (0, 1, 0, ""),
        (2, 1, 0, "stopped; only 2 of 3 pairs of c, a member died in 1 were measured"),
        (2, 2, 0, ""),
        (4, 0, 1, "stopped; after 4 pairs of c a series is open, and up to 6 pairs would have been made"),
    ],
)
def test_what_a_night_lacks_is_told_unless_it_lacks_nothing(
    measured_pairs: int, died: int, left_open: int, told: str
) -> None:
    count = PairCount("id", "c", "", 3, measured_pairs, died)

    assert shortfall((count,), left_open, 6, "stopped") == told
    assert not are_enough(())
    assert counts_line(()) == "no pair"
