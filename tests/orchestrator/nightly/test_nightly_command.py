"""`specsweep nightly` as a command: what it keeps, writes, prints and returns, also when nothing can be measured."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

import pytest
import yaml
from click.testing import CliRunner
from rich.console import Console

from orchestrator import paths
from orchestrator.cli import main
from orchestrator.decisions.verify_command import VerifyRequest, contest_of
from orchestrator.errors import BadInput, ClusterRefusal, RunInterrupted, SpecsweepError
from orchestrator.history.change_alarms import ChangeAlarm
from orchestrator.history.history_lines import SeriesLine, history_lines
from orchestrator.history.history_store import HistoryStore
from orchestrator.history.night_history import History
from orchestrator.nightly import night_end, nightly_command, nightly_output
from orchestrator.nightly.night_run import measured_night
from orchestrator.nightly.nightly_command import NightRequest, nightly
from orchestrator.nightly.nightly_output import NightFiles, write_night
from orchestrator.nights.night import Night, Verdict
from orchestrator.outcome import Label
from orchestrator.reports import report_command
from orchestrator.sweeps import run_command
from orchestrator.sweeps.run_conductor import PairGuide
from orchestrator.sweeps.run_sweep import _leave_without_head
from orchestrator.sweeps.sweep import SweepResult
from tests.fakes.slot import FakeSlot
from tests.orchestrator.night_samples import build_slot, is_candidate, nightly_scenario, sweep_night


class Bench:
    """A folder with a scenario and a history; the cluster is made of `slots`. Reports of runs take a second each, and
    are made where they are asked for.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.slots: list[FakeSlot] = [build_slot()]
        self.refusal: Exception | None = None
        self.file = folder / "night.yaml"
        tree = nightly_scenario().model_dump(mode="json", exclude_defaults=True)
        self.file.write_text(yaml.safe_dump(tree))
        self.runs = 0
        self.with_reports = False
        monkeypatch.setattr(nightly_command, "leave_report", self._report)
        monkeypatch.setattr(run_command, "sweep_on_cluster", self._sweep)
        monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)

    def _sweep(self, scenario: Any, directory: Any, done: Any, use: Any, *_: Any) -> SweepResult:
        if self.refusal is not None:
            raise self.refusal
        return sweep_night(directory, scenario, self.slots, conductor=use.conductor)

    def _report(self, root: Path, console: Console) -> None:
        if self.with_reports:
            report_command.leave_report(root, console)

    def night(self, files: NightFiles | None = None, **options: Any) -> tuple[int, str]:
        """(exit code, what was printed)."""
        self.runs += 1
        told = io.StringIO()
        request = {"scenario": self.file, "history": str(self.folder / "history"), "address": "local",
                   "run_dir": self.folder / f"run{self.runs}", **options}  # fmt: skip
        code = nightly(NightRequest(files=files or NightFiles(), **request), Console(file=told, width=200))
        return code, told.getvalue()

    @property
    def kept(self) -> tuple[Night, ...]:
        return HistoryStore.at(str(self.folder / "history")).read().nights


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    return Bench(tmp_path, monkeypatch)


def test_keys_that_a_night_decides_by_itself_are_named_before_it_begins(bench: Bench) -> None:
    bench.refusal = ClusterRefusal("no cluster")
    assert "decides by itself" not in bench.night()[1]

    tree = yaml.safe_load(bench.file.read_text())
    bench.file.write_text(yaml.safe_dump({**tree, "search": {"noise": 0.01}, "recovery": {"tries": 1}}))
    _, told = bench.night()

    first = told.splitlines()[0]
    assert first == "A night decides by itself what these keys of night.yaml say to `run`: search, recovery"


def test_a_night_is_kept_told_in_one_line_and_ends_with_its_exit_code(bench: Bench) -> None:
    bench.slots = [build_slot(kv_tokens=(100_000, 85_000))]

    code, told = bench.night()

    assert code == 1
    line = next(line for line in told.splitlines() if line.startswith("regressed: "))
    assert line.startswith("regressed: kv_tokens of speculative_num_steps=2: -15.0% (-15.0% to -15.0%), 3 pairs")
    (night,) = bench.kept
    assert (night.verdict, night.scenario, night.run) == (Verdict.REGRESSED, "small", "run1")
    told_json = json.loads((bench.folder / "run1" / "night.json").read_text())
    assert (told_json["verdict"], told_json["exit_code"], told_json["headline"]) == ("regressed", 1, line)
    assert "best of" not in told  # no ranking of two builds


def test_what_only_the_nights_together_show_is_told_and_kept_with_the_night(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def lines(history: History, _: object) -> tuple[SeriesLine, ...]:
        seen.append(len(history.nights))
        return history_lines(history)

    monkeypatch.setattr(nightly_command, "history_lines", lines)
    monkeypatch.setattr(nightly_command, "history_news", lambda lines: ("over the nights: slower since Tuesday",))

    code, told = bench.night(fail_on_change=True)

    assert (code, seen) == (0, [1])  # tonight's is among them, and they are looked through once
    assert "over the nights: slower since Tuesday" in told
    told_json = json.loads((bench.folder / "run1" / "night.json").read_text())
    emulated = "engine=emulator: modelled servers, no GPU was measured; never compare these numbers with real ones"
    assert told_json["notes"] == ["over the nights: slower since Tuesday", emulated]
    assert emulated in told


SLOW = ChangeAlarm("5e21e5", "20261021T020000Z-abcdef", "tpot_p50_ms at chat C=4", "2026-10-21 worse: +6.1%")


@pytest.fixture
def change(monkeypatch: pytest.MonkeyPatch) -> None:
    """A history that shows one; how it is found is tested with the history."""
    monkeypatch.setattr(nightly_command, "change_alarms", lambda lines, history: (SLOW,))


def test_a_change_over_the_nights_ends_a_night_with_1_where_that_is_asked_for(bench: Bench, change: None) -> None:
    files = NightFiles(junit=bench.folder / "j.xml", summary=bench.folder / "s.md")
    code, told = bench.night(files, fail_on_change=True)

    assert code == 1
    assert "\nsame: " in told
    assert "changed: tpot_p50_ms at chat C=4: 2026-10-21 worse: +6.1%" in told
    assert "--mark 20261021T020000Z-abcdef true|false|fixed --series 5e21e5" in told
    kept = json.loads((bench.folder / "run1" / "night.json").read_text())
    assert (kept["verdict"], kept["exit_code"], kept["fail_on_change"]) == ("same", 1, True)
    assert [alarm["series_id"] for alarm in kept["change_alarms"]] == ["5e21e5"]
    suites = ET.parse(bench.folder / "j.xml").getroot()
    (failure,) = suites.iter("failure")
    assert (suites.get("failures"), failure.get("type")) == ("1", "change")
    assert int(suites.get("tests") or 0) == len(list(suites.iter("testcase")))
    assert "Over the nights: changed" in (bench.folder / "s.md").read_text()


def test_by_default_and_in_a_self_test_a_change_over_the_nights_decides_nothing(bench: Bench, change: None) -> None:
    code, told = bench.night(NightFiles(junit=bench.folder / "j.xml"))

    assert (code, "changed: " in told, "<failure" in (bench.folder / "j.xml").read_text()) == (0, False, False)
    assert json.loads((bench.folder / "run1" / "night.json").read_text())["change_alarms"] == []
    assert bench.night(self_test=True, fail_on_change=True)[0] == 0


def test_the_scenario_may_ask_for_it_and_a_gap_stays_one(bench: Bench, change: None) -> None:
    bench.file.write_text(bench.file.read_text().replace("nightly:\n", "nightly:\n  fail_on_change: true\n"))
    assert bench.night()[0] == 1
    bench.refusal = ClusterRefusal("no host was free")
    code, told = bench.night()
    assert (code, "changed: " in told) == (3, False)


def test_the_second_night_knows_the_noise_of_the_first(bench: Bench) -> None:
    assert [bench.night()[0], bench.night()[0]] == [0, 0]

    first, second = bench.kept
    assert "history" not in {one.noise.source for one in first.series if one.noise}
    assert "history" in {one.noise.source for one in second.series if one.noise}


def test_nights_in_run_directories_of_one_name_still_know_each_other(bench: Bench) -> None:
    for day in ("mon", "tue"):
        assert bench.night(run_dir=bench.folder / day / "run")[0] == 0

    assert "history" in {one.noise.source for one in bench.kept[1].series if one.noise}


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (SpecsweepError("history h: cannot be read: no route"), 3, "specsweep: history h: cannot be read: no route"),
        (KeyError("what nobody foresaw"), 3, "what nobody foresaw"),
        (BadInput("nightly.pairs: is 0"), 2, "specsweep: nightly.pairs: is 0"),
    ],
)
def test_no_fault_of_ours_ends_with_the_code_of_a_regression(
    error: Exception, code: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> int:
        raise error

    monkeypatch.setattr(nightly_command, "_nightly", fails)

    result = CliRunner().invoke(main, ["nightly", "any.yaml", "--history", "h"])

    assert (result.exit_code, told in result.stderr) == (code, True)


def test_a_night_is_neither_continued_nor_verified_as_an_ordinary_run(bench: Bench) -> None:
    bench.night()
    root = bench.folder / "run1"

    with pytest.raises(BadInput, match=f"is a night; continue it: specsweep nightly --resume {root} --history DIR"):
        run_command.run(run_command.RunRequest(None, "local", resume=root), Console(file=io.StringIO()))
    with pytest.raises(BadInput, match="is a night, whose two builds were measured side by side already"):
        contest_of(VerifyRequest(root))


def test_a_cluster_that_gives_no_slot_makes_a_gap_with_the_reason_and_never_a_pass(bench: Bench) -> None:
    bench.refusal = ClusterRefusal("the cluster did not grant a slot within 5 s")

    code, told = bench.night()

    assert code == 3
    assert "gap: the cluster did not grant a slot within 5 s" in told
    (night,) = bench.kept
    assert night.gap is not None
    assert (night.gap.reason, night.verdict) == ("the cluster did not grant a slot within 5 s", None)


def test_a_night_of_which_every_start_broke_by_the_place_is_a_gap(bench: Bench) -> None:
    bench.slots = [build_slot(dies=lambda spec: Label.GPU_OCCUPIED)]

    code, told = bench.night()

    assert code == 3
    assert "gap: no pair was measured" in told
    assert "gpu_occupied" in told


@pytest.mark.parametrize(
    ("pairs", "kv", "code", "verdict"),
    [(1, 100_000, 3, None), (2, 85_000, 1, Verdict.REGRESSED), (3, 100_000, 0, Verdict.SAME)],
)
def test_a_lost_head_ends_the_process_with_the_night_kept_and_its_exit_code(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, pairs: int, kv: int, code: int, verdict: Verdict | None
) -> None:
    """From a thread, while the main one waits for Ray: that one comes to no end."""
    bench.slots = [build_slot(kv_tokens=(100_000, kv))]
    ended: list[int] = []

    def loses(scenario: Any, directory: Any, done: Any, use: Any, *rest: Any) -> SweepResult:
        late = PairGuide(lambda root: (), lambda: len(bench.slots[0].launched) >= 2 * pairs)
        sweep_night(directory, scenario, bench.slots, late)
        cluster = SimpleNamespace(head_address="h:1", stop_servers=lambda wait_s: None)
        _leave_without_head(cluster, directory, rest[0], use.leave, 50.0)  # type: ignore[arg-type]
        raise EndedError

    monkeypatch.setattr(run_command, "sweep_on_cluster", loses)
    monkeypatch.setattr(os, "_exit", ended.append)

    with pytest.raises(EndedError):
        bench.night()

    (night,) = bench.kept
    assert ended == [code]
    assert night.verdict is verdict
    lost = "the cluster's head (h:1) has not answered for 50 s"
    assert verdict or (night.gap and night.gap.reason == lost)
    few = f"{lost}; only 2 of 3 pairs of speculative_num_steps=2 were measured"
    assert night.cut == (few if pairs == 2 else "")


def test_a_stop_that_comes_once_all_is_measured_costs_nothing(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the night is judged, kept and told."""
    sent: list[str] = []

    def stopping(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def stopped(*given: Any, **named: Any) -> Any:
            sent.append(name)
            os.kill(os.getpid(), signal.SIGTERM)
            return work(*given, **named)

        return stopped

    monkeypatch.setattr(night_end, "measured_night", stopping("judged", measured_night))
    monkeypatch.setattr(HistoryStore, "append", stopping("kept", HistoryStore.append))
    monkeypatch.setattr(nightly_command, "write_night", stopping("told", write_night))

    assert bench.night()[0] == 0
    assert sent == ["judged", "kept", "told"]
    assert [(night.verdict, night.cut) for night in bench.kept] == [(Verdict.SAME, "")]


def test_a_stop_while_the_report_is_made_costs_the_report_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(root: Path) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(report_command, "rank_run", stopped)
    bench.with_reports = True

    code, told = bench.night()

    assert code == 0
    assert f"Stopped before its report was made: specsweep report {bench.folder / 'run1'}" in told
    assert [night.verdict for night in bench.kept] == [Verdict.SAME]
    assert json.loads((bench.folder / "run1" / "result.json").read_text())["verdict"] == "same"


class EndedError(BaseException):
    """In place of the end of the process."""


def test_a_lost_host_is_a_gap_unless_a_regression_was_found_by_then(bench: Bench) -> None:
    def lose(after: int, kv: int) -> FakeSlot:
        slot = build_slot(kv_tokens=(100_000, kv))
        script = slot._script

        def counted(name: str, spec: Any) -> Label | None:
            if len(slot.launched) > after:
                slot.lose_at = spec.trial_id
            return script(name, spec)

        slot._script = counted
        return slot

    bench.slots = [lose(4, 100_000)]
    code, told = bench.night()
    assert (code, "gap: all hosts were lost" in told) == (3, True)
    assert f"specsweep nightly --resume {bench.folder / 'run1'} --history DIR" in told

    bench.slots = [lose(4, 85_000)]
    code, told = bench.night()
    assert (code, "regressed: kv_tokens" in told) == (1, True)


def stopping_slot(after: int, **build: Any) -> FakeSlot:
    """Somebody stops the run when more servers than that were started."""

    def stop(*_: Any) -> None:
        raise RunInterrupted("stopped")

    slot = build_slot(**build)
    slot.on_point = lambda point: stop() if len(slot.launched) > after else None
    return slot


def test_a_night_that_was_stopped_is_a_gap_until_it_is_resumed_and_then_counts_once(bench: Bench) -> None:
    bench.slots = [stopping_slot(2)]
    code, told = bench.night()
    assert (code, "gap: it was stopped" in told) == (3, True)
    assert f"The night is not complete. Continue it: specsweep nightly --resume {bench.folder / 'run1'}" in told
    assert [night.gap is not None for night in bench.kept] == [True]
    result = json.loads((bench.folder / "run1" / "result.json").read_text())
    assert (result["verdict"], result["exit_code"], result["message"]) == ("gap", 3, "gap: it was stopped")
    assert result["resume"] == f"specsweep nightly --resume {bench.folder / 'run1'} --history DIR"

    bench.slots = [build_slot()]
    code, told = bench.night(scenario=None, run_dir=None, resume=bench.folder / "run1")

    assert code == 0, told
    assert [(night.verdict, night.run) for night in bench.kept] == [(Verdict.SAME, "run1")]
    result = json.loads((bench.folder / "run1" / "result.json").read_text())
    assert (result["verdict"], result["resume"], result["picks"]) == ("same", None, [])


def test_two_pairs_of_three_are_no_pass_for_a_night_that_was_stopped_and_one_for_its_time_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.night()
    store = HistoryStore.at(str(bench.folder / "history"))
    for day in ("25", "26", "27", "28", "29"):  # six nights: two pairs would do, since their noise is known
        store.append(replace(bench.kept[-1], at=f"2026-11-{day}T02:00:00.000+00:00"))
    bench.slots = [stopping_slot(4)]
    assert bench.night()[0] == 3
    assert bench.kept[-1].gap is not None

    bench.slots = [build_slot()]
    monkeypatch.setattr(nightly_command._Night, "is_late", lambda night: len(bench.slots[0].launched) >= 4)
    code, told = bench.night()

    assert (code, bench.kept[-1].verdict) == (0, Verdict.SAME)
    few = "max_hours were over; only 2 of 3 pairs of speculative_num_steps=2 were measured"
    assert bench.kept[-1].cut == few
    assert f"same: 6 of 6 series as in the reference (cut short: {few})" in told
    assert json.loads((bench.folder / "run3" / "night.json").read_text())["cut"] == few


def test_a_night_that_was_stopped_with_all_pairs_that_were_planned_is_judged_and_says_what_it_lacks(
    bench: Bench,
) -> None:
    slot = stopping_slot(6)
    slot.account = lambda spec: {
        "version": "0.5.23", "max_total_num_tokens": 85_000 if len(slot.launched) == 2 else 100_000,
        "speculative_algorithm": "NEXTN",
    }  # fmt: skip
    bench.slots = [slot]  # one start of six differs, so the pairs do not agree

    code, told = bench.night()

    (night,) = bench.kept
    assert (code, night.verdict) == (3, Verdict.INCONCLUSIVE)
    lacks = "it was stopped; after 3 pairs of speculative_num_steps=2 a series is open, and up to 6 pairs"
    assert night.cut == f"{lacks} would have been made"
    assert f"(cut short: {night.cut})" in told
    assert "The night is not complete. Continue it: specsweep nightly --resume" in told


def test_what_nobody_foresaw_is_a_gap_since_python_would_end_with_the_code_of_a_regression(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.refusal = ZeroDivisionError("a bug")

    code, _ = bench.night()

    assert code == 3
    assert "Traceback" in capsys.readouterr().err
    (night,) = bench.kept
    assert night.gap is not None
    assert night.gap.reason == "ZeroDivisionError: a bug"


def test_a_self_test_comes_out_the_same_and_leaves_the_history_alone(bench: Bench) -> None:
    code, told = bench.night(self_test=True, history=None)

    assert (code, "same: " in told, "A self-test is not kept" in told) == (0, True, True)
    assert not (bench.folder / "history").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"history": None}, "give --history DIR"),
        ({"scenario": None}, "give a scenario file, or --resume RUN"),
        ({"history": "s4://nowhere"}, "s4://nowhere"),
        ({"candidate_image": "a:1"}, "nightly.candidate.image: replaces the image"),
        ({"overrides": ("nightly.pairs=9",)}, "nightly.most_pairs: is 6, below pairs (9)"),
    ],
)
def test_bad_input_is_refused_before_anything_starts_and_leaves_no_night(
    bench: Bench, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput, match=message.replace("(", r"\(").replace(")", r"\)")):
        bench.night(**options)

    assert bench.slots[0].launched == []
    assert not (bench.folder / "history").exists() or bench.kept == ()


def test_a_history_that_cannot_be_written_is_refused_before_hours_of_measuring(bench: Bench) -> None:
    (bench.folder / "history").write_text("a file")

    with pytest.raises(BadInput, match="history"):
        bench.night()


def test_all_files_are_written_and_say_the_same(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = bench.folder / "out"
    (bench.folder / "github.md").write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(bench.folder / "github.md"))
    files = NightFiles(folder / "j.xml", None, folder / "n.json", folder / "n.html")

    code, _ = bench.night(files, candidate_image=None)

    assert code == 0
    assert json.loads((folder / "n.json").read_text())["verdict"] == "same"
    assert b"testsuites" in (folder / "j.xml").read_bytes()
    assert "Night of" in (folder / "n.html").read_text()
    summary = (bench.folder / "github.md").read_text()
    assert summary.startswith("before\n")
    assert "same" in summary
    files = NightFiles(summary=folder / "s.md")
    bench.night(files)
    assert (folder / "s.md").read_text().count("Night of") == 1
    assert (bench.folder / "github.md").read_text() == summary


def test_a_file_that_cannot_be_written_is_told_when_all_the_others_are_there_and_is_no_pass(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    files = NightFiles(junit=bench.file / "no-folder.xml", json=bench.folder / "n.json")

    code, told = bench.night(files)

    assert (code, "\nsame: " in told) == (3, True)
    assert "no-folder.xml cannot be written" in capsys.readouterr().err
    assert (bench.folder / "n.json").exists()
    assert len(bench.kept) == 1


def test_json_on_standard_output_is_alone_there(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    bench.night(NightFiles(json=Path("-")))

    assert json.loads(capsys.readouterr().out)["exit_code"] == 0


def test_candidate_and_reference_are_told_in_the_history(bench: Bench) -> None:
    bench.night(overrides=("nightly.candidate.name=abc123",))

    (night,) = bench.kept
    assert (night.reference.name, night.candidate.name) == ("pinned", "abc123")
    assert dict(night.candidate.facts)["sglang"] == "0.5.23"
    assert [host.name for host in night.hosts] == ["h"]


def test_the_candidate_alone_is_judged(bench: Bench) -> None:
    bench.slots = [build_slot(dies=lambda spec: Label.KV_BUDGET if is_candidate(spec) else None)]

    code, told = bench.night()

    assert (code, "regressed: start of speculative_num_steps=2: died (kv_budget)" in told) == (1, True)


def test_an_expected_loss_is_taken_off_and_told_with_the_difference(bench: Bench) -> None:
    bench.slots = [build_slot(slowdown=1.04)]
    changes = bench.folder / "CHANGES.yaml"
    changes.write_text("changes:\n  - {date: 2020-01-01, metric: e2e_p50_ms, shift: 4%, why: agreed}\n")

    bench.night(changes=changes)

    (night,) = bench.kept
    found = next(one for one in night.series if one.key.metric == "e2e_p50_ms")
    assert found.verdict is Verdict.SAME
    assert found.worse == pytest.approx(0.04, abs=0.005)
    assert "besides the expected +4.0%" in found.reason


def test_a_night_in_a_directory_of_the_same_name_as_last_nights_knows_last_night(bench: Bench) -> None:
    for place in ("monday", "tuesday"):
        bench.night(run_dir=bench.folder / place / "night")

    second = bench.kept[1]
    assert [night.run for night in bench.kept] == ["night", "night"]
    assert "history" in {one.noise.source for one in second.series if one.noise}


def test_a_night_whose_tables_cannot_be_read_is_a_gap_and_no_regression(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def torn(*_: object) -> Night:
        raise OSError("a damaged file")

    monkeypatch.setattr(night_end, "measured_night", torn)

    code, told = bench.night()

    reason = "what was measured cannot be judged: OSError: a damaged file"
    assert (code, f"gap: {reason}" in told) == (3, True)
    assert [(night.run, night.gap and night.gap.reason) for night in bench.kept] == [("run1", reason)]


def test_a_history_that_cannot_be_read_does_not_end_with_the_code_of_a_regression(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: HistoryStore) -> History:
        raise SpecsweepError("history x: cannot be read")

    monkeypatch.setattr(HistoryStore, "read", broken)

    assert bench.night() == (3, "")
    assert capsys.readouterr().err == "specsweep: history x: cannot be read\n"


def test_a_report_that_breaks_costs_its_file_and_not_the_verdict(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(nightly_output, "nightly_report", broken)
    bench.slots = [build_slot(kv_tokens=(100_000, 85_000))]

    code, told = bench.night(NightFiles(html=bench.folder / "n.html", json=bench.folder / "n.json"))

    assert (code, "regressed: kv_tokens" in told) == (1, True)
    assert "n.html was not written: ZeroDivisionError: a bug" in capsys.readouterr().err
    assert json.loads((bench.folder / "n.json").read_text())["exit_code"] == 1


def test_a_night_that_could_not_be_kept_says_how_and_is_kept_by_a_resume_that_measures_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with monkeypatch.context() as full:

        def refuse(*_: object) -> str:
            raise SpecsweepError("history: no space left")

        full.setattr(HistoryStore, "append", refuse)
        assert bench.night()[0] == 3
    assert f"specsweep nightly --resume {bench.folder / 'run1'} --history DIR" in capsys.readouterr().err
    bench.slots = [build_slot()]

    code, _ = bench.night(scenario=None, run_dir=None, resume=bench.folder / "run1")

    assert (code, bench.slots[0].launched, [night.verdict for night in bench.kept]) == (0, [], [Verdict.SAME])


def test_a_night_whose_disk_is_full_at_its_end_is_judged_and_kept_all_the_same(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new_file = paths._new_file

    def full(path: Path) -> IO[bytes]:
        if path.is_relative_to(bench.folder / "run1"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return new_file(path)

    def swept(*given: Any) -> SweepResult:
        result = bench._sweep(*given)
        monkeypatch.setattr(paths, "_new_file", full)
        return result

    monkeypatch.setattr(run_command, "sweep_on_cluster", swept)

    code, told = bench.night()

    assert (code, "\nsame: " in told, "\nHistory: " in told) == (3, True, True)
    assert [night.verdict for night in bench.kept] == [Verdict.SAME]
    assert "night.json cannot be written: No space left on device" in capsys.readouterr().err


def test_a_night_whose_directory_was_removed_is_a_gap_that_says_so(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swept(scenario: Any, directory: Any, *rest: Any) -> SweepResult:
        result = bench._sweep(scenario, directory, *rest)
        shutil.rmtree(directory.paths.root)
        return result

    monkeypatch.setattr(run_command, "sweep_on_cluster", swept)

    code, told = bench.night()

    assert (code, [night.verdict for night in bench.kept]) == (3, [None])
    assert f"gap: {bench.folder / 'run1'}: was removed while it was measured" in told


def test_a_night_in_a_directory_that_may_not_be_written_is_not_continued_and_no_gap(bench: Bench) -> None:
    bench.night()
    (bench.folder / "run1" / ".lock").unlink()
    (bench.folder / "run1" / ".lock").mkdir()

    with pytest.raises(BadInput, match="run1: cannot be written: Is a directory"):
        bench.night(scenario=None, run_dir=None, resume=bench.folder / "run1")

    assert [night.verdict for night in bench.kept] == [Verdict.SAME]
