"""`specsweep history`: what it prints, writes, refuses, and what people say of alarms."""

from __future__ import annotations

import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from orchestrator.cli import main
from orchestrator.history.history_command import HistoryRequest, show_history
from orchestrator.history.history_store import HistoryStore
from orchestrator.nights.night import (
    Build,
    End,
    Gap,
    Measured,
    Night,
    NightHost,
    Pair,
    SeriesKey,
    SeriesNight,
    StartPair,
    Verdict,
)

SPEED = SeriesKey("output_throughput_tok_s", "c1c1c1", "chat", "C=16", "8x H100")
TPOT = replace(SPEED, metric="tpot_mean_ms")
LIVES = SeriesKey("feasible", "c9c9c9", "", "", "8x H100")
HOSTILE = "<script>alert(1)</script>"
STEP_AT, NIGHTS, GAP_AT = 20, 26, 10


def night(i: int) -> Night:
    """The 20th night brings a build that is 8 % slower and cannot start one config."""
    rng = np.random.default_rng(i)
    slower = 0.08 * (i >= STEP_AT)
    d = float(rng.normal(0, 0.006)) - slower
    pairs = (Pair("gpu-1", True, 100.0, 100.0),)
    verdict = Verdict.REGRESSED if slower else Verdict.SAME
    dies = End.DIED if slower else End.SERVED
    series = (
        SeriesNight(Measured(SPEED, f"depth 3 {HOSTILE}", pairs), verdict, "x", 0.02, d, d - 0.01, d + 0.01),
        SeriesNight(Measured(TPOT, "depth 3", pairs), Verdict.SAME, "x", 0.02, float(rng.normal(0, 0.006))),
        SeriesNight(
            Measured(LIVES, "depth 10", starts=(StartPair("gpu-1", True, End.SERVED, dies, "kv_budget"),)), verdict, "d"
        ),
    )
    gap = Gap(f"the cluster was busy {HOSTILE}") if i == GAP_AT else None
    return Night(
        f"2026-10-{i + 1:02d}T02:00:00+00:00", "pinned", f"runs/{i}", Build("v0.5.8"),
        Build("nightly", (("commit", "bbb" if i >= STEP_AT else "aaa"),)),
        (NightHost("gpu-1", "8x H100", (("driver", "570"),)),), () if gap else series, gap,
    )  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("history")
    store = HistoryStore.at(str(folder))
    for i in range(NIGHTS):
        store.append(night(i))
    return folder


def history(place: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["history", str(place), *arguments])


def test_the_table_and_the_events_name_the_step_the_death_and_the_gap(place: Path) -> None:
    said = history(place).output

    assert "26 nights; 1 config no longer served: depth 10 dies (kv_budget); 1 new worsening, surest " in said
    assert "2 series regressed in the newest night, 2026-10-26." in said
    assert "2026-10-21 (20261021T020000Z-" in said
    assert "  depth 10 dies (kv_budget)" in said
    assert "  1 series changed; between: candidate: commit aaa -> bbb" in said
    assert "  2026-10-11 pinned: the cluster was busy" in said
    assert "12 alarms in 75 series-nights, none marked" in said


def rows(said: str) -> list[str]:
    """Of the table, without its head."""
    lines = said.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("series "))
    return [line.rstrip() for line in lines[head + 1 :] if not line.startswith(("2026-", "  "))]


def test_what_needs_attention_comes_first_and_says_since_when(place: Path) -> None:
    said = history(place).output

    assert said.startswith("26 nights; 1 config no longer served: depth 10 dies (kv_budget)")
    dead, slower, same, *_ = rows(said)
    assert dead.split() == ["feasible", "depth", "10", "25", "d", "regressed", "not", "served", "since", "2026-10-21"]
    assert slower.startswith("output_throughput_tok_s at chat C=16  depth 3 <script>")
    assert slower.endswith("  regressed  worse since 2026-10-21")
    assert same.startswith("tpot_mean_ms at chat C=16 ")
    assert same.endswith("  same")


def test_hundreds_of_series_that_are_as_they_were_are_counted_and_the_others_all_shown(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path))
    store.prepare()
    one = night(0)
    told = (*[Verdict.SAME] * 60, *[Verdict.INCONCLUSIVE] * 45)
    many = tuple(
        SeriesNight(Measured(replace(SPEED, config=f"c{i}"), f"depth {i}"), verdict, "x", 0.02, 0.001)
        for i, verdict in enumerate(told)
    )
    store.append(replace(one, series=many))

    said = history(tmp_path).output

    assert said.count(" inconclusive") == 45
    assert said.count(" same") == 0
    assert "... and 60 more, which nothing happened to of late; --json has all" in said


def test_few_nights_and_many_gaps_are_not_taken_for_good_news(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path))
    store.prepare()
    store.append(night(0))

    assert (
        "A change over the nights is seen from 6 measured nights on; there is 1. Until then only the verdicts of "
        "single nights tell." in history(tmp_path).output
    )

    for i in range(1, 13):
        store.append(replace(night(GAP_AT), at=f"2026-11-{i:02d}T02:00:00+00:00"))
    said = history(tmp_path).output

    assert "13 nights; the newest 12 nights are gaps, the last of them: the cluster was busy" in said
    assert "  2 earlier ones\n  2026-11-03 pinned: the cluster was busy" in said


def test_a_narrow_terminal_cuts_no_name(place: Path) -> None:
    file = io.StringIO()
    show_history(HistoryRequest(str(place)), Console(file=file, width=60, force_terminal=True, no_color=True))
    said = re.sub(r"\x1b\[[0-9;]*m", "", file.getvalue())

    assert "\nfeasible  depth 10\n" in said
    assert "\noutput_throughput_tok_s at chat C=16  depth 3 \n<script>alert(1)</script>\n" in said
    assert max(map(len, said.splitlines())) == 60


def test_json_has_every_night_and_change_point(place: Path) -> None:
    told = json.loads(history(place, "--json", "--metric", "output_*").output)
    (line,) = told["series"]
    (change,) = line["change_points"]

    assert len(told["nights"]) == 26
    assert [n["gap"] for n in told["nights"] if n["gap"]] == [f"the cluster was busy {HOSTILE}"]
    assert (change["at"], change["worse"], change["sure"]) == ("2026-10-21T02:00:00+00:00", True, True)
    assert change["difference"] == pytest.approx(-0.08, abs=0.01)
    assert change["between"] == ["candidate: commit aaa -> bbb"]
    assert told["alarms"]["alarms"] == 12


def test_a_new_worsening_ends_with_1_only_where_that_is_asked_for(place: Path) -> None:
    failed = history(place, "--fail-on-change")

    assert (history(place).exit_code, failed.exit_code) == (0, 1)
    changed = [line for line in failed.output.splitlines() if line.startswith("changed: ")]
    assert len(changed) == 2
    assert changed[0].startswith(
        f"changed: output_throughput_tok_s at chat C=16, depth 3 {HOSTILE} on 8x H100: 2026-10-21 worse"
    )
    assert changed[1] == "changed: feasible, depth 10 on 8x H100: 2026-10-21 dies (kv_budget)"
    assert "specsweep history DIR --mark 20261021T020000Z-" in failed.output
    for others in (["--nights", "5"], ["--metric", "tpot_mean_ms"], ["--since", "2026-10-21"]):
        assert history(place, "--fail-on-change", *others).exit_code == 0


def test_json_says_what_failed_and_with_which_code(place: Path) -> None:
    told = json.loads(history(place, "--fail-on-change", "--json").output)

    assert (told["exit_code"], told["fail_on_change"]) == (1, True)
    speed, lives = told["change_alarms"]
    assert (speed["series_id"], lives["series_id"]) == (SPEED.series_id, LIVES.series_id)
    assert {speed["night_id"][:8], lives["night_id"][:8]} == {"20261021"}
    asked_nothing = json.loads(history(place, "--json").output)
    assert (asked_nothing["exit_code"], asked_nothing["fail_on_change"]) == (0, False)


def test_what_was_marked_fails_no_more_and_the_rest_still_does(place: Path, tmp_path: Path) -> None:
    shutil.copytree(place, tmp_path / "h")
    for series, left in ((LIVES, 1), (SPEED, 0)):
        assert history(tmp_path / "h", "--mark", "2026-10-21", "true", "--series", series.series_id).exit_code == 0
        assert history(tmp_path / "h", "--fail-on-change").exit_code == left


def test_no_night_at_all_is_no_pass(tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path))
    store.prepare()
    assert (history(tmp_path).exit_code, history(tmp_path, "--fail-on-change").exit_code) == (0, 3)
    store.append(night(GAP_AT))
    assert history(tmp_path, "--fail-on-change").exit_code == 3
    store.append(night(0))
    assert history(tmp_path, "--fail-on-change").exit_code == 0


def test_only_some_series_and_nights(place: Path) -> None:
    told = json.loads(history(place, "--json", "--config", "depth 10", "--since", "2026-10-20").output)

    assert [line["metric"] for line in told["series"]] == ["feasible"]
    assert len(told["nights"]) == 7


def test_the_report_is_one_page_with_hostile_names_inert_and_the_gap_told(place: Path, tmp_path: Path) -> None:
    done = history(place, "--html", str(tmp_path / "h.html"), "--md", str(tmp_path / "h.md"))
    page, text = (tmp_path / "h.html").read_text(), (tmp_path / "h.md").read_text()

    assert done.exit_code == 0, done.output
    assert "<script>alert(1)" not in page
    assert "<script>alert(1)" not in text
    assert "8x H100" in page
    assert "2026-10-11 pinned: the cluster was busy" in page
    assert "commit aaa" in text


def test_a_marked_night_measures_the_false_alarms(place: Path, tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path / "marked"))
    for i in (0, STEP_AT):
        store.append(night(i))
    done = history(tmp_path / "marked", "--mark", "2026-10-21", "false", "--note", "a noisy neighbour")

    assert done.exit_code == 0, done.output
    assert "2 alarms in 6 series-nights; of 2 that were marked 2 were false (100%)" in done.output
    told = json.loads(history(tmp_path / "marked", "--json").output)
    assert [(m["verdict"], m["note"]) for m in told["marks"]] == [("false", "a noisy neighbour")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--metric", "ttft"], "--metric ttft: the history has feasible, output_throughput_tok_s, tpot_mean_ms"),
        (["--scenario", "other"], "--scenario other: the history has pinned"),
        (["--config", "depth 9"], "--config depth 9: the history has depth 10 (c9c9c9); depth 3 (c1c1c1)"),
        (["--since", "yesterday"], "--since yesterday: write a date such as 2026-11-01"),
        (["--mark", "2027-01-01", "true"], "--mark 2027-01-01: names no night, or several; the newest are 2026102"),
        (["--mark", "2026-10-21", "true", "--series", "abc"], "--series abc: is not in that night"),
        (["--nights", "9"], "--nights belongs to --fail-on-change"),
        (["--nights", "2", "--fail-on-change"], "2 is not in the range x>=3"),
        (["--mark", "2026-10-21", "true", "--fail-on-change"], "ask for --fail-on-change afterwards"),
        (["--note", "x"], "--series and --note belong to --mark"),
        (["--changes", "none.yaml"], "--changes none.yaml: no such file"),
    ],
)
def test_what_cannot_be_is_refused_with_what_there_is(place: Path, arguments: list[str], message: str) -> None:
    done = history(place, *arguments)

    assert done.exit_code == 2
    assert message in done.output


def test_a_place_without_a_history_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "manifest.json").write_text("{}")
    for folder in ("none", "run"):
        done = history(tmp_path / folder)

        assert done.exit_code == 2
        assert "there is none (no folder `nights`)" in done.output


def test_neither_no_night_nor_a_gap_is_told_as_good_news(place: Path, tmp_path: Path) -> None:
    store = HistoryStore.at(str(tmp_path / "new"))
    store.prepare()
    assert "0 nights; nothing was measured." in history(tmp_path / "new").output
    assert "0 nights; nothing was measured." in history(place, "--since", "2027-01-01").output

    store.append(night(GAP_AT))
    assert history(tmp_path / "new", "--md", str(tmp_path / "h.md")).exit_code == 0
    told = (tmp_path / "h.md").read_text()
    assert "Did anything get worse in the last nights? not measured**" in told
    assert "The newest night is a gap: the cluster was busy" in told


def test_a_changes_file_with_a_fault_is_refused_with_its_line(place: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("changes:\n- date: 2026-10-21\n")
    done = history(place, "--changes", str(tmp_path / "c.yaml"))

    assert done.exit_code == 2
    assert "c.yaml:2: changes[0].why: is missing" in done.output

    (tmp_path / "c.yaml").write_text("changes:\n- date: 2026-10-21\n  why: x\n  reason: y\n")
    done = history(place, "--changes", str(tmp_path / "c.yaml"))

    assert "c.yaml:4: changes[0].reason: is not a key here. Allowed: date, why, metric, config, workload" in done.output


def test_an_expected_change_is_no_change_point(place: Path, tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("changes:\n- date: 2026-10-21\n  shift: -8%\n  why: sampling\n")
    told = json.loads(history(place, "--changes", str(tmp_path / "c.yaml"), "--json", "--metric", "output_*").output)

    assert told["series"][0]["change_points"] == []
    assert [s["why"] for s in told["series"][0]["segments"]] == ["", "expected: sampling"]


def test_the_report_calls_series_by_names_that_people_know_and_says_beside_the_plot_what_changed(
    place: Path, tmp_path: Path
) -> None:
    page = tmp_path / "history.md"
    history(place, "--md", str(page))
    told = page.read_text()

    assert "**Output throughput at chat C=16, depth 3" in told
    assert "**output_throughput_tok_s" not in told
    plot = told[told.index("**Output throughput at chat C=16") :].split("\n\n")
    assert "more is better. Changes: 2026-10-21 worse: " in plot[1]
