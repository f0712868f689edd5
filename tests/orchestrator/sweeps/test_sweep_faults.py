"""A whole sweep over emulators with faults, without Ray: what is told is what was done to them."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import actors.servers.lifeline
from actors.servers.life_state import rules_of
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.previews.scenario_files import check_fault_script
from orchestrator.run_files import dataset
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sweeps.sweep import Sweep
from tests.fakes.killable_sweep import Silent
from tests.fakes.local_slot import LocalSlot
from tests.orchestrator.scenario_samples import small_scenario

EXAMPLE = Path(__file__).resolve().parents[3] / "scenarios/faults/two-bad-depths.yaml"


def scenario_with(faults: Path, **changes: Any) -> Scenario:
    parts: dict[str, Any] = {
        "engine": {
            "kind": "emulator",
            "start_speedup": 1000.0,
            "faults": str(faults),
            "settings": {"speculative_algorithm": "NEXTN"},
        },
        "slots": {"gpus": 1, "emulated_gpus": 1},
        "workloads": [{"name": "chat", "input_tokens": 16, "output_tokens": 8, "concurrency": [1]}],
        "measure": {"warmup_s": 0.0, "warmup_requests": 0, "requests": 6},
        "recovery": {"mode": "off"},
    }
    return small_scenario(**{**parts, **changes})


def sweep(scenario: Scenario, folder: Path) -> list[dict[str, Any]]:
    """The rows of the trials table, in order of depth and attempt."""
    check_fault_script(scenario)
    run = RunDirectory.create(folder / "run", scenario)
    with LocalSlot(run.run_id, 4) as slot:
        plan = make_plan(scenario, 1)
        result = Sweep(plan, [slot], run, lambda t: launch_spec(scenario, run.run_id, t), Silent()).run()
    run.close(complete=result.complete)
    depths = {t.config.config_id: t.config.speculation_depth for t in plan.trials}
    rows = dataset.read_rows(run.paths, "trials")
    return sorted(
        ({**row, "depth": depths[row["config_id"]]} for row in rows), key=lambda r: (r["depth"], r["attempt"])
    )


def test_the_example_breaks_two_depths_and_each_is_told_for_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(actors.servers.lifeline, "rules_of", lambda spec: replace(rules_of(spec), suspect_s=2.0))
    script = Path(shutil.copy(EXAMPLE, tmp_path))
    rows = sweep(scenario_with(script, timeouts={"request_s": 6.0}), tmp_path)

    told = [(r["depth"], r["attempt"], r["outcome"], r["label"], r["phase"]) for r in rows]
    assert told == [
        (0, 1, "measured", None, None),
        (1, 1, "infeasible", "kv_budget", "kv_pool"),
        (2, 1, "failed", "hung", "serving"),
        (2, 2, "measured", None, None),
    ]


def test_a_server_that_dies_under_load_is_told_by_its_log(tmp_path: Path) -> None:
    script = tmp_path / "faults.yaml"
    script.write_text("serving: {fault: die, label: runtime_oom, request: 3, token: 2}", encoding="utf-8")
    rows = sweep(scenario_with(script, sweep={"configs": [{"speculative_num_steps": 2}]}), tmp_path)

    assert [(r["outcome"], r["label"], r["phase"], r["exit_code"]) for r in rows] == [
        ("infeasible", "runtime_oom", "serving", -9)
    ]
    assert "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.93 GiB." in rows[0]["evidence"]
