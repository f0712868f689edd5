"""A verification as a user makes it: an ordinary run on Ray, judged, with the verdict as exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario_file import load_scenario
from tests.integration.programs import QUICK, marked_processes, run
from tests.orchestrator.paced_slot import PacedSlot
from tests.orchestrator.sweeping import sweep_on

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


def test_a_pick_that_does_not_hold_is_refuted_before_anybody_deploys_it(tmp_path: Path) -> None:
    file = tmp_path / "quick.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(QUICK) | {"sweep": {"axes": {"speculative_num_steps": [0, 3]}}}))
    scenario = load_scenario(file)
    lucky = RunDirectory.create(tmp_path / "run", scenario)
    # As if the config without speculation had been the faster one, which the emulated servers are not.
    sweep_on(
        lucky, scenario, [PacedSlot("a", lambda settings, repeat: 1.0 if "speculative_algorithm" in settings else 2.0)]
    )
    lucky.close(complete=True)
    rank_run(tmp_path / "run")

    told = run(
        "verify", str(tmp_path / "run"), "--repeats", "4", "--address", "local", "--run-dir", str(tmp_path / "v")
    )

    assert told.returncode == 4, told.stdout + told.stderr
    verdict = json.loads((tmp_path / "v" / "verify.json").read_text())
    (comparison,) = verdict["comparisons"]
    assert (verdict["verdict"], comparison["pairs"], comparison["standing"]) == ("refuted", 4, "behind")
    assert "Refuted: fast, speculative_num_steps=0 is" in told.stdout
    again = run("verify", str(tmp_path / "run"), "--judge", str(tmp_path / "v"), "--json")
    assert (again.returncode, json.loads(again.stdout)["comparisons"]) == (4, verdict["comparisons"])
    assert marked_processes(verdict["run"]) == []
