"""Measurements of earlier runs: found, taken over with their origin, and refused where anything differs."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from orchestrator.cli import main
from orchestrator.errors import BadInput
from orchestrator.paths import RunPaths
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files import dataset
from orchestrator.run_files.earlier_runs import read_earlier
from orchestrator.run_files.journal import finished_work
from orchestrator.run_files.reuse_command import offer_reuse, runs_to_reuse, take_over_all
from orchestrator.run_files.reuse_match import Question, reusable
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import LaunchSpec
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import MINIMAL, small_scenario
from tests.orchestrator.sweeping import rows_per_point, sweep_on

CLASS = "1x B200"


def silent() -> Console:
    return Console(file=io.StringIO(), width=200)


def said(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def account(spec: LaunchSpec) -> dict[str, Any]:
    return {"version": "0.5.23"}


def run_of(root: Path, scenario: Scenario, slot: FakeSlot | None = None, host_class: str = CLASS) -> Path:
    run = RunDirectory.create(root, scenario)
    run.keep_classes([host_class])
    sweep_on(run, scenario, [slot or FakeSlot("a", account=account)])
    run.close(complete=True)
    rank_run(root)
    return root


def wider(**changes: Any) -> Scenario:
    """The small scenario with one more depth."""
    return small_scenario(**{"sweep": {"axes": {"speculative_num_steps": [0, 1, 2, 3]}}, **changes})


def begun(root: Path, scenario: Scenario, *sources: Path) -> RunDirectory:
    found = runs_to_reuse(scenario, sources)
    run = RunDirectory.create(root, scenario)
    take_over_all(run, found, silent())
    return run


def test_what_was_measured_before_is_not_measured_again_and_tells_where_it_comes_from(tmp_path: Path) -> None:
    old = run_of(tmp_path / "old", small_scenario())
    run = begun(tmp_path / "new", wider(), old)
    slot = FakeSlot("a", account=account)
    sweep_on(run, wider(), [slot])
    run.close(complete=True)
    result = rank_run(tmp_path / "new")

    assert len(slot.launched) == 1
    old_id = json.loads((old / "manifest.json").read_text())["run_id"]
    loads = dataset.read_rows(RunPaths(tmp_path / "new"), "loads")
    assert sorted(str(row["reused_from"]) for row in loads) == sorted(["None"] * 2 + [old_id] * 6)
    assert any(note.startswith(f"6 of 8 points were taken over from run {old_id} (measured ") for note in result.notes)
    assert [row.value is not None for row in result.rankings[0].rows] == [True] * 4
    assert rows_per_point(RunPaths(tmp_path / "new")).items() >= rows_per_point(RunPaths(old)).items()


def test_a_run_that_took_everything_over_has_nothing_left_to_do_also_after_it_is_resumed(tmp_path: Path) -> None:
    old = run_of(tmp_path / "old", small_scenario())
    begun(tmp_path / "new", small_scenario(), old).close(complete=False)
    run = RunDirectory.reopen(tmp_path / "new", small_scenario())

    assert run.plan(small_scenario(), (), finished_work(run.state)).trials == []
    assert run.host_classes == (CLASS,)
    assert run.reused_version == "0.5.23"
    run.close(complete=True)


def test_of_a_trial_that_was_measured_in_part_only_the_rest_is_measured(tmp_path: Path) -> None:
    old = run_of(tmp_path / "old", small_scenario(workloads=[{"name": "chat", "concurrency": [1]}]))
    run = begun(tmp_path / "new", small_scenario(), old)
    slot = FakeSlot("a", account=account)
    sweep_on(run, small_scenario(), [slot])
    run.close(complete=True)

    # max_running_requests follows from the levels, and is the same for these two.
    assert (len(slot.launched), len(slot.measured)) == (3, 3)
    trials = dataset.read_rows(RunPaths(tmp_path / "new"), "trials")
    assert sorted((t["attempt"], t["reused_from"] is None) for t in trials) == [(1, False)] * 3 + [(2, True)] * 3


def test_void_and_damaged_points_are_not_taken(tmp_path: Path) -> None:
    class Late(FakeSlot):
        """Its client was the bottleneck at C=4."""

        def run_point(self, url: str, point: Any, attempt: int, processes: int = 1) -> Any:
            from dataclasses import replace

            for part in super().run_point(url, point, attempt, processes):
                is_late = point.spec.level.value == 4 and hasattr(part, "loop_lag_p99_ms")
                yield replace(part, loop_lag_p99_ms=9e9) if is_late else part

    old = run_of(tmp_path / "old", small_scenario(), Late("a", account=account))
    assert len(read_earlier(old).points) == 3
    damaged = sorted(read_earlier(old).points)[0]
    (old / "dataset" / "requests" / f"{damaged}-1.parquet").write_bytes(b"no parquet")
    run = begun(tmp_path / "new", small_scenario(), old)

    assert set(run.state.done_points) == set(read_earlier(old).points) - {damaged}
    assert len(run.state.done_points) == 2
    run.close(complete=False)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"engine": {"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}, "extra_args": ["--x"]}},
         r"was measured otherwise: engine.extra_args: nothing there, \['--x'\] here"),
        ({"seed": 7}, r"has none of the points that are asked for \(differs in: seed\)"),
        ({"measure": {"duration_s": 6}}, r"has none of the points that are asked for \(differs in: measure\)"),
    ],
)  # fmt: skip
def test_what_differs_is_refused_with_the_difference(tmp_path: Path, changes: dict[str, Any], why: str) -> None:
    old = run_of(tmp_path / "old", small_scenario())

    with pytest.raises(BadInput, match=why):
        runs_to_reuse(small_scenario(**changes), [old])


def test_another_release_than_the_scenario_wants_is_refused_and_with_none_given_that_of_the_run_is_wanted(
    tmp_path: Path,
) -> None:
    def served(version: str | None) -> Scenario:
        return small_scenario(engine={"kind": "sglang", "version": version}, slots={"gpus": 1}, sweep={})

    old = run_of(tmp_path / "old", served(None))
    with pytest.raises(BadInput, match=r"was measured with SGLang 0.5.23, engine.version is 0.5.21"):
        runs_to_reuse(served("0.5.21"), [old])
    run = begun(tmp_path / "new", served(None), old)
    assert run.reused_version == "0.5.23"
    run.close(complete=False)


def test_runs_on_hosts_of_other_classes_or_of_none_are_never_mixed(tmp_path: Path) -> None:
    one = run_of(tmp_path / "one", small_scenario())
    other = run_of(tmp_path / "other", small_scenario(seed=1), host_class="1x H100")
    scenario = small_scenario()
    run = RunDirectory.create(tmp_path / "new", scenario)
    with pytest.raises(BadInput, match="on hosts of class 1x H100, another run that is reused on 1x B200"):
        take_over_all(run, runs_to_reuse(scenario, [one, other]), silent())
    run.close(complete=False)

    manifest = json.loads((one / "manifest.json").read_text())
    del manifest["host_classes"]
    (one / "manifest.json").write_text(json.dumps(manifest))
    assert reusable(Question(scenario), read_earlier(one)).refusal == (
        "does not tell the class of its hosts (a run of an earlier release)"
    )


def test_a_run_offers_what_stands_beside_it_and_takes_nothing_unasked(tmp_path: Path) -> None:
    old = run_of(tmp_path / "old", small_scenario())
    run = RunDirectory.create(tmp_path / "new", wider())
    console = silent()
    offer_reuse(wider(), run, console)

    assert said(console).strip() == (
        f"6 of 8 points were measured before in {old} (the same engine, settings and workload; SGLang 0.5.23 on hosts "
        f"of class {CLASS}); add --reuse {old} to take them over"
    )
    assert run.state.done_points == {}
    run.close(complete=False)


def test_reuse_lists_runs_with_what_they_have_and_why_others_have_nothing(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    run_of(runs / "same", small_scenario())
    run_of(runs / "other-seed", small_scenario(seed=9))
    run_of(runs / "other-model", small_scenario(model={"path": "org/other", "bundled_draft": True}))
    (runs / "no-run").mkdir()
    (tmp_path / "s.yaml").write_text(MINIMAL)
    told = CliRunner().invoke(main, ["reuse", str(tmp_path / "s.yaml"), "--runs", str(runs), "--json"])

    assert told.exit_code == 0, told.output
    found = [(Path(r["run"]).name, r["points"], r["asked"], r["refusal"]) for r in json.loads(told.output)]
    assert found == [
        ("same", 6, 6, None),
        ("other-seed", 0, 6, "has none of the points that are asked for (differs in: seed)"),
    ]


def test_of_a_search_nobody_knows_how_many_points_it_will_ask(tmp_path: Path) -> None:
    old = run_of(tmp_path / "old", small_scenario())
    scenario = small_scenario(search="halving")
    run = RunDirectory.create(tmp_path / "new", scenario)
    console = silent()
    offer_reuse(scenario, run, console)

    assert said(console).startswith(f"6 points were measured before in {old} (the same engine")
    run.close(complete=False)
