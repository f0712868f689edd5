"""A verification as a user makes it: an ordinary run on Ray, judged, with the verdict as exit code."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario_file import load_scenario
from tests.fakes.stall_witness import undisturbed
from tests.integration.programs import QUICK, marked_processes, run
from tests.orchestrator.paced_slot import PacedSlot
from tests.orchestrator.sweeping import sweep_on

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

# Decided by medians over requests: one that a busy machine held up says nothing of a server.
BY_MEDIANS = {
    "sweep": {"axes": {"speculative_num_steps": [0, 3]}},
    "workloads": [{"name": "chat", "input_tokens": 32, "output_tokens": 32, "concurrency": [1]}],
    "measure": {"warmup_s": 0.2, "duration_s": 2},
    "objectives": [{"name": "fast", "minimize": "tpot_p50_ms", "at": {"concurrency": 1}}],
}


def without_lateness(root: Path) -> None:
    """As if nothing else had run beside the load: its points are short, and one look at a busy CPU makes them void."""
    for file in (root / "dataset/loads").glob("*.parquet"):
        table = pq.read_table(file)
        told = [json.loads(report) for report in table["client_json"].to_pylist()]
        punctual = [json.dumps(report | {"loop_lag_p99_ms": 0.0, "gc_pause_max_ms": 0.0}) for report in told]
        column = table.schema.get_field_index("client_json")
        field = table.schema.field(column)
        pq.write_table(table.set_column(column, field, pa.array(punctual, field.type)), file)


def test_a_pick_that_does_not_hold_is_refuted_before_anybody_deploys_it(tmp_path: Path) -> None:
    file = tmp_path / "quick.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(QUICK) | BY_MEDIANS))
    scenario = load_scenario(file)
    lucky = RunDirectory.create(tmp_path / "run", scenario)
    # As if the config without speculation had been the faster one, which the emulated servers are not.
    sweep_on(
        lucky, scenario, [PacedSlot("a", lambda settings, repeat: 1.0 if "speculative_algorithm" in settings else 2.0)]
    )
    lucky.close(complete=True)
    rank_run(tmp_path / "run")

    def verified() -> tuple[int, Path, str]:
        root = Path(tempfile.mkdtemp(dir=tmp_path)) / "v"
        words = ("--repeats", "4", "--address", "local", "--run-dir", str(root))
        done = run("verify", str(tmp_path / "run"), *words)
        assert done.returncode in {4, 5}, done.stdout + done.stderr  # 5: pairs are void, since the load came late
        its_own = json.loads((root / "verify.json").read_text())
        assert its_own["verdict"] == {4: "refuted", 5: "not_told_apart"}[done.returncode]
        assert marked_processes(its_own["run"]) == []
        without_lateness(root)
        judged = run("verify", str(tmp_path / "run"), "--judge", str(root))
        return judged.returncode, root, judged.stdout

    exit_code, root, told = undisturbed(verified, lambda done: done[0] == 4)

    assert exit_code == 4, told
    assert "Refuted: fast, speculative_num_steps=0 is" in told
    verdict = json.loads(run("verify", str(tmp_path / "run"), "--judge", str(root), "--json").stdout)
    (comparison,) = verdict["comparisons"]
    assert (verdict["verdict"], comparison["pairs"], comparison["standing"]) == ("refuted", 4, "behind")
