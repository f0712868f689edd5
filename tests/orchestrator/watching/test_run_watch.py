"""What is known of a run from its directory alone: while it goes on, when its driver is silent, at its end."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from orchestrator.cli import main
from orchestrator.documents.report_document import Table
from orchestrator.documents.report_markdown import markdown
from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.happening import BestSoFar
from orchestrator.host_report import HostReport
from orchestrator.paths import RunPaths
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files.journal import finished_work
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_hosts import keep_hosts
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sweeps.grid_leaders import GridLeaders
from orchestrator.sweeps.run_account import RunAccount
from orchestrator.sweeps.sweep import Sweep
from orchestrator.watching import live_file
from orchestrator.watching.live_file import LiveFile, live_bytes, read_live
from orchestrator.watching.live_metrics import metrics_text
from orchestrator.watching.live_section import live_section
from orchestrator.watching.live_view import BestView, Counts, LiveView, SlotView, TimeLeft
from orchestrator.watching.run_watch import RunWatch
from orchestrator.watching.watch_command import WatchRequest, new_lines, report_maker, watch
from orchestrator.watching.watch_feed import watched_document
from orchestrator.watching.watch_state import WatchedRun
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import Keeper, finished_run

VIEW = LiveView(
    Counts(1, 3, 2, 6, measured=1),
    (
        SlotView("h/0", "measuring", "depth=3", "chat C=4", 12.0, "t1", tok_s=512.4, running=4, queued=2, free_gib=5.5),
        SlotView("h/1", "starting", "depth=1", "starting: graph_target 3/12", 40.0, "t2", "graph_target", 3, 12),
    ),
    (BestView("fast", "depth=3", "512.4 tok/s at C=4", 512.4),),
    elapsed_s=61.0,
    left=TimeLeft(30.0, 30.0),
    recent=("00:10 h/0  depth=3: ready after 9.0 s",),
    beat=1,
    told_unix_s=1000.0,
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run that has begun and measured nothing."""
    RunDirectory.create(tmp_path / "run", small_scenario()).close(complete=False)
    return tmp_path / "run"


def tell(run_dir: Path, view: LiveView) -> None:
    (run_dir / "live.json").write_text(json.dumps(view.as_json()))


class Clocks:
    def __init__(self) -> None:
        self.now_s, self.unix_s = 50.0, 1000.0

    def later(self, seconds: float) -> None:
        self.now_s += seconds
        self.unix_s += seconds


def watching(run_dir: Path, clocks: Clocks) -> RunWatch:
    return RunWatch(run_dir, lambda: clocks.now_s, lambda: clocks.unix_s)


def test_a_run_that_tells_nothing_yet_waits_or_has_ended(run_dir: Path) -> None:
    run = RunWatch(run_dir).look()

    assert (run.status, run.view.counts) == ("starting", Counts(0, 3, 0, 6))
    assert run.text == "its driver tells nothing: it waits for the cluster, or has ended"


def test_a_driver_is_silent_when_its_beat_stays_the_same(run_dir: Path) -> None:
    clocks = Clocks()
    run_watch = watching(run_dir, clocks)
    tell(run_dir, VIEW)
    first = run_watch.look()
    clocks.later(30)
    tell(run_dir, replace(VIEW, beat=2, told_unix_s=1030.0))
    second = run_watch.look()
    clocks.later(41)
    third = run_watch.look()

    assert [(run.status, run.silent_s) for run in (first, second, third)] == [
        ("running", 0.0), ("running", 0.0), ("silent", 41.0),
    ]  # fmt: skip
    assert third.text == "no sign of its driver for 41 s: it has ended, or its host cannot be reached"
    assert third.view == replace(VIEW, beat=2, told_unix_s=1030.0)


@pytest.mark.parametrize("ahead_s", [-7200.0, 7200.0])
def test_a_host_whose_clock_is_wrong_is_not_taken_for_dead(run_dir: Path, ahead_s: float) -> None:
    clocks = Clocks()
    run_watch = watching(run_dir, clocks)
    tell(run_dir, replace(VIEW, told_unix_s=1000.0 + ahead_s))

    def one_beat(seconds: float) -> None:
        clocks.later(seconds)
        tell(run_dir, replace(VIEW, beat=2, told_unix_s=1000.0 + ahead_s + seconds))

    assert run_watch.look_twice(one_beat).status == "running"
    one_beat(1.0)
    assert run_watch.look().silent_s == 0.0


def test_a_driver_that_was_killed_long_ago_is_seen_at_the_first_look(run_dir: Path) -> None:
    clocks = Clocks()
    tell(run_dir, VIEW)
    clocks.later(7200)

    assert watching(run_dir, clocks).look_twice(lambda _: None).status == "silent"


def test_between_its_last_trial_and_its_result_a_run_is_being_ranked(run_dir: Path) -> None:
    tell(run_dir, replace(VIEW, ended=True))

    clocks = Clocks()
    run_watch = watching(run_dir, clocks)
    run = run_watch.look()
    assert (run.status, run.text) == ("ending", "its slots are through, it is being ranked")
    clocks.later(600)
    assert run_watch.look().status == "ending"
    clocks.later(1)
    assert run_watch.look().status == "silent"  # it was killed meanwhile


def test_the_file_holds_the_documented_form() -> None:
    assert json.loads(live_bytes(VIEW)) == json.loads(json.dumps(VIEW.as_json()))


def test_half_a_file_is_no_state(run_dir: Path) -> None:
    (run_dir / "live.json").write_text(json.dumps(VIEW.as_json())[:100])

    assert read_live(run_dir / "live.json") is None
    assert RunWatch(run_dir).look().status == "starting"


@pytest.mark.parametrize("name", ["nothing-here", "a-file"])
def test_what_is_no_run_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "a-file").write_text("")

    done = CliRunner().invoke(main, ["watch", str(tmp_path / name)])
    assert done.exit_code == 2


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (WatchRequest(Path("r"), listen="0.0.0.0"), "--listen is for --web: give that too, or leave it out"),
        (WatchRequest(Path("r"), web=0, once=True), "--once and --json are for the terminal"),
    ],
)
def test_options_that_contradict_each_other_are_refused(request_: WatchRequest, told: str) -> None:
    with pytest.raises(BadInput, match=told):
        watch(request_, Console(file=io.StringIO()))


def test_a_state_is_told_whole_in_a_narrow_terminal(run_dir: Path) -> None:
    file = io.StringIO()

    watch(WatchRequest(run_dir, once=True), Console(file=file, width=40, height=20))

    assert file.getvalue().splitlines()[:2] == [
        "run: its driver tells nothing: it waits",
        "for the cluster, or has ended",
    ]


# The file


def test_the_driver_writes_its_state_over_and_over_and_marks_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live_file, "_LAST_WRITE_S", 120.0)  # this disk is slow, and does not hang
    file, asked = tmp_path / "live.json", threading.Semaphore(0)

    def view() -> LiveView:
        asked.release()
        return VIEW

    with LiveFile(file, view, beat_s=0.001):
        for _ in range(3):
            assert asked.acquire(timeout=60)
        going = read_live(file)
    over = read_live(file)

    assert going is not None
    assert (going.ended, going.left) == (False, TimeLeft(30.0, 30.0))
    assert over is not None
    assert (over.ended, over.left, over.beat >= 3) == (True, None, True)
    assert [path.name for path in tmp_path.iterdir()] == ["live.json"]


def test_the_end_is_written_also_by_a_process_that_stood_still_for_minutes_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a laptop that sleeps, or a machine that is paused: then all waits are over at once, by the clock."""
    file = tmp_path / "live.json"
    began, goes_on, waits = threading.Event(), threading.Event(), []
    join = threading.Thread.join

    def stood_still(thread: threading.Thread, timeout: float | None = None) -> None:
        waits.append(timeout)
        if len(waits) == 1:
            return  # no time was left for the thread
        goes_on.set()
        join(thread, 60)

    def view() -> LiveView:
        began.set()
        assert goes_on.wait(60)
        return VIEW

    with LiveFile(file, view):
        assert began.wait(60)
        monkeypatch.setattr(threading.Thread, "join", stood_still)
    over = read_live(file)

    assert over is not None
    assert (over.ended, waits) == (True, [0.1, 0.1])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_disk_that_takes_nothing_is_no_matter_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    written = []

    def full(path: Path, data: bytes, *, durable: bool) -> None:
        written.append(data)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(live_file, "write_whole", full)
    with LiveFile(tmp_path / "live.json", lambda: VIEW):
        pass

    assert len(written) >= 1
    assert list(tmp_path.iterdir()) == []


def test_a_fault_of_ours_in_the_view_is_no_matter_of_the_run_either(tmp_path: Path) -> None:
    def broken() -> LiveView:
        raise KeyError("bug")

    with LiveFile(tmp_path / "live.json", broken, before=lambda: 1 / 0):
        pass

    assert list(tmp_path.iterdir()) == []


def test_a_run_that_was_never_begun_leaves_no_state_behind(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())
    run.keep_classes(["h100"])
    keep_hosts(tmp_path / "run", {"h": HostReport("h", "EPYC 9554", 128, 1500.0, "6.1", None)})
    tell(tmp_path / "run", VIEW)
    run.discard()
    run.close(complete=False)

    assert not (tmp_path / "run").exists()


# What leads


def speeds(spec: Any, point: Any) -> float:
    """Depth 2 is the fastest."""
    depth: int = dict(spec.settings).get("speculative_num_steps", 0)
    return 1.0 / (1 + depth)


def swept(root: Path, scenario: Scenario) -> tuple[GridLeaders, list[BestSoFar]]:
    run = RunDirectory.create(root, scenario)
    told: list[BestSoFar] = []
    leaders = GridLeaders(scenario, run, Keeper(), told.append)
    plan = run.plan(scenario, [""], finished_work(run.state))
    Sweep(plan, [FakeSlot("h/0", slowness=speeds)], run, lambda t: launch_spec(scenario, "run", t), leaders).run()
    leaders.look()
    run.close(complete=True)
    return leaders, told


def test_a_grid_tells_what_leads_by_the_mean_of_each_config(tmp_path: Path) -> None:
    scenario = small_scenario()
    _, told = swept(tmp_path / "run", scenario)
    ranked = rank_run(tmp_path / "run").rankings[0].rows[0]

    assert told[-1].number == pytest.approx(ranked.value)
    assert replace(told[-1], number=None) == BestSoFar("fast", ranked.config_id, f"{ranked.value:.4g} tok/s at C=1", "")


def test_a_resumed_grid_knows_what_led_before(tmp_path: Path) -> None:
    scenario = small_scenario()
    _, before = swept(tmp_path / "run", scenario)
    run = RunDirectory.reopen(tmp_path / "run", scenario)
    told: list[BestSoFar] = []
    GridLeaders(scenario, run, Keeper(), told.append).look()
    run.close(complete=True)

    assert told[-1] == before[-1]


# Shown


def running() -> WatchedRun:
    return WatchedRun("run", "run-1", "small", "running", VIEW, 0.5)


def test_the_section_of_a_report_has_slots_and_what_leads() -> None:
    section = live_section(running())
    slots, best = (block for block in section.blocks if isinstance(block, Table))

    assert section.title == "Now"
    assert [[cell.text for cell in row] for row in slots.rows] == [
        ["h/0", "depth=3", "chat C=4", "12 s", "512", "4 +2", "-", "5.5"],
        ["h/1", "depth=1", "starting: graph_target 3/12", "40 s", "-", "-", "-", "-"],
    ]
    assert [cell.text for cell in best.rows[0]] == ["fast", "depth=3", "512.4 tok/s at C=4"]


def test_a_run_of_a_thousand_slots_shows_some_of_them_and_says_so() -> None:
    view = replace(VIEW, slots=tuple(replace(VIEW.slots[0], name=f"h/{i}") for i in range(1000)))
    (slots, _) = (block for block in live_section(replace(running(), view=view)).blocks if isinstance(block, Table))

    assert (len(slots.rows), slots.note) == (256, "744 more slots not shown")


def test_prometheus_reads_base_units_and_nothing_that_nobody_knows() -> None:
    lines = metrics_text(running()).decode().splitlines()

    for line in (
        'specsweep_run_state{run="run-1",state="running"} 1.0',
        'specsweep_run_state{run="run-1",state="ended"} 0.0',
        'specsweep_run_left_seconds{bound="low",run="run-1"} 30.0',
        'specsweep_trials{outcome="measured",run="run-1"} 1.0',
        'specsweep_points_planned{run="run-1"} 6.0',
        'specsweep_slots{run="run-1",state="measuring"} 1.0',
        'specsweep_slot_output_tokens_per_second{run="run-1",slot="h/0"} 512.4',
        'specsweep_slot_gpu_free_bytes{run="run-1",slot="h/0"} 5.905580032e+09',
        'specsweep_best_value{config="depth=3",host_class="",objective="fast",run="run-1"} 512.4',
    ):
        assert line in lines
    assert not [line for line in lines if 'slot="h/1"' in line and "tokens_per_second" in line]


def test_lines_that_were_seen_are_not_shown_again() -> None:
    assert new_lines((), ("a", "b")) == ("a", "b")
    assert new_lines(("a", "b"), ("a", "b")) == ()
    assert new_lines(("a", "b"), ("b", "b", "c")) == ("c",)
    assert new_lines(("a",), ("x", "y")) == ("x", "y")


# A whole run, at its end


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = finished_run(tmp_path_factory.mktemp("runs") / "whole", small_scenario(), FakeSlot("h/0", slowness=speeds))
    account = RunAccount(None, Console(file=io.StringIO()))
    account.scenario, account.directory = small_scenario(), RunDirectory.reopen(root, small_scenario())
    account.ranking = rank_run(root)
    with account.told_at_the_end():
        pass
    account.directory.close(complete=True)
    return root


def everything_in(folder: Path) -> dict[str, tuple[int, int]]:
    return {str(p): (s.st_mtime_ns, s.st_size) for p in sorted(folder.rglob("*")) if (s := p.lstat())}


def test_a_run_that_has_ended_is_shown_with_its_picks(whole: Path) -> None:
    done = CliRunner().invoke(main, ["watch", str(whole)])

    assert done.exit_code == 0
    assert done.output.splitlines()[0].startswith(
        "whole: ended: complete; 3 of 3 trials, 6 of 6 points, 0 infeasible, 0 failed, "
    )
    assert done.output.splitlines()[1].startswith("fast: speculative_num_steps=2, ")


def test_for_machines_the_end_is_one_line(whole: Path) -> None:
    (line,) = CliRunner().invoke(main, ["watch", str(whole), "--json"]).output.splitlines()
    told = json.loads(line)

    assert (told["status"], told["verdict"], told["exit_code"]) == ("ended", "complete", 0)
    assert told["live"]["counts"]["measured"] == 3


def test_a_run_of_a_release_that_left_no_result_is_known_by_its_journal(whole: Path, tmp_path: Path) -> None:
    old = tmp_path / "old"
    shutil.copytree(whole, old)
    (old / "result.json").unlink()

    run = RunWatch(old).look()
    assert (run.status, run.verdict, run.view.counts.measured) == ("ended", "complete", 3)


def test_the_report_is_made_of_a_mirror_and_nothing_is_written_beside_the_run(whole: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "whole"
    shutil.copytree(whole, run)
    for kept in (run / "derived").iterdir():
        kept.write_bytes(b"of another release")  # a ranking would write it anew
    before = everything_in(run)
    run_watch = RunWatch(run)
    (tmp_path / "scratch").mkdir()

    seen = run_watch.look()

    told = markdown(watched_document(seen, report_maker(run_watch.root, tmp_path / "scratch")(seen)))

    assert everything_in(run) == before
    assert "# small" in told
    assert "speculative" in told
    assert str(run) in told.replace("\\", "")
    assert "scratch" not in told


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5, 0.8])
def test_a_run_that_is_half_written_has_a_report(whole: Path, tmp_path: Path, share: float) -> None:
    run = tmp_path / "run"
    shutil.copytree(whole, run)
    paths = RunPaths(run)
    for file in (paths.result, paths.ranking):
        file.unlink()
    for name in ("derived", "dataset/points"):
        shutil.rmtree(run / name, ignore_errors=True)
    lines = paths.journal.read_bytes().splitlines(keepends=True)
    kept = lines[: round(share * len(lines))]
    paths.journal.write_bytes(b"".join(kept) + b'{"event":"point_done","poi')
    for table, event, key in (("trials", "trial_ended", "trial_id"), ("loads", "point_done", "point_id")):
        ids = {told[key] for line in kept if (told := json.loads(line))["event"] == event}
        for part in paths.table(table).glob("*.parquet"):
            if not any(known in part.name for known in ids):
                part.unlink()
    (tmp_path / "scratch").mkdir()
    run_watch = RunWatch(run)
    tell(run, VIEW)

    seen = run_watch.look()

    report = report_maker(run_watch.root, tmp_path / "scratch")(seen)

    assert [s.section_id for s in watched_document(seen, report).sections][:2] == ["now", "ranking"]


@pytest.mark.parametrize(
    ("part", "value"),
    [("elapsed_s", "a while"), ("slots", [{"name": None}]), ("slots", [{"name": "h/0", "for_s": None}]),
     ("counts", {"trials": {}}), ("recent", 7), ("best", [{"objective": 1, "config": "c", "text": "t"}])],
)  # fmt: skip
def test_a_state_with_values_of_other_kinds_is_none(run_dir: Path, part: str, value: object) -> None:
    (run_dir / "live.json").write_text(json.dumps({**VIEW.as_json(), part: value}))

    assert read_live(run_dir / "live.json") is None
    assert RunWatch(run_dir).look().status == "starting"


def test_a_state_of_a_later_release_that_says_more_is_read(run_dir: Path) -> None:
    (run_dir / "live.json").write_text(json.dumps({**VIEW.as_json(), "weather": "fine"}))

    assert read_live(run_dir / "live.json") == VIEW


def test_a_run_that_was_removed_ends_its_viewer_with_a_message(run_dir: Path) -> None:
    seen = RunWatch(run_dir)
    shutil.rmtree(run_dir)

    with pytest.raises(SpecsweepError, match="run: is gone"):
        seen.look()
