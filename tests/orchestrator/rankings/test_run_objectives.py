"""Expressions, cost, facts of a start and fronts of a whole run, on slots that answer from a script."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.errors import BadInput
from orchestrator.rankings.ranking_table import print_rankings
from orchestrator.rankings.run_ranking import RunRanking, only_objective, rank_run
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.server_start import LaunchSpec
from orchestrator.trial import Point
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import sweep_on

SPEED = "output_throughput_tok_s"
SCENARIO = small_scenario(
    sweep={"axes": {"speculative_num_steps": [1, 2, 3]}},
    slots={"gpus": 2, "emulated_gpus": 4, "gpu_hour_cost": 3.0, "currency": "USD"},
    measure={"duration_s": 5, "repeats": 2},
    engine={"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN", "tp_size": 2}},
    objectives=[
        {"name": "mixed", "maximize": f"geomean({SPEED} @ C=1 weight 3, {SPEED} @ C=4)"},
        {"name": "cheap", "minimize": "cost_per_million_output_tokens @ C=4"},
        {"name": "plain", "maximize": "simplicity"},
        {"name": "frugal", "minimize": "joules_per_output_token @ C=4"},
        {"name": "agent", "preset": "agentic"},
    ],
    pareto=[{"name": "levels", "axes": [{"maximize": f"{SPEED} @ C=1"}, {"maximize": f"{SPEED} @ C=4"}]}],
)
# How slow each depth is at C=1 and at C=4.
SLOWNESS = {1: (4.0, 1.0), 2: (2.0, 2.0), 3: (5.0, 5.0)}


def slowness(spec: LaunchSpec, point: Point) -> float:
    depth: Any = dict(spec.settings)["speculative_num_steps"]
    return SLOWNESS[depth][point.spec.level.value == 4.0]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> RunRanking:
    root = Path(tmp_path_factory.mktemp("run")) / "run"
    run = RunDirectory.create(root, SCENARIO)
    _, result = sweep_on(run, SCENARIO, [FakeSlot("a", batches=8, slowness=slowness)])
    run.close(complete=result.complete)
    assert result.complete
    return rank_run(root)


def depths(ranked: RunRanking, objective: str) -> list[int]:
    (found,) = only_objective(ranked, objective).rankings
    return [row.settings["speculative_num_steps"] for row in found.rows if row.value is not None]


def test_each_objective_orders_the_configs_by_what_it_computes(ranked: RunRanking) -> None:
    assert depths(ranked, "mixed") == [2, 1, 3]
    assert depths(ranked, "cheap") == [1, 2, 3]
    assert depths(ranked, "plain") == [1, 2, 3]
    assert depths(ranked, "agent") == [2, 1, 3]


def test_the_cost_is_that_of_both_gpus(ranked: RunRanking) -> None:
    cheap = next(r for r in ranked.rankings if r.objective == "cheap")
    at_four = next(f for f in ranked.fronts if f.name == "levels").rows
    speeds = {row.config_id: row.values[1] for row in at_four}

    assert "cost is in USD: 3 USD an hour for each of 2 GPUs" in ranked.notes
    for row in cheap.rows:
        speed = speeds[row.config_id]
        assert speed is not None
        assert row.value == pytest.approx(3.0 * 2 / (speed * 3600) * 1e6)


def test_what_emulated_gpus_do_not_tell_is_absent_with_the_reason(ranked: RunRanking) -> None:
    frugal = next(r for r in ranked.rankings if r.objective == "frugal")

    assert {row.value for row in frugal.rows} == {None}
    assert "the server's GPUs tell no power" in frugal.rows[0].gates_failed[0]


def test_the_front_of_a_run_stands_in_its_tables_and_in_its_json(ranked: RunRanking) -> None:
    out = io.StringIO()
    print_rankings(ranked, Console(file=out, width=160))

    (front,) = ranked.fronts
    assert [(ranked.configs[r.config_id]["speculative_num_steps"], r.place) for r in front.rows] == [
        (2, "on"),
        (1, "on"),
        (3, "dominated"),
    ]
    assert f"levels: highest {SPEED} @ C=1; highest {SPEED} @ C=4" in out.getvalue()
    assert "on the front" in out.getvalue()
    stored = json.loads(json.dumps(ranked.as_json()))["pareto"]["levels"]
    assert [c["place"] for c in stored["configs"]] == ["on", "on", "dominated"]


def test_a_front_can_be_asked_for_alone(ranked: RunRanking) -> None:
    alone = only_objective(ranked, "levels")

    assert (alone.rankings, len(alone.fronts)) == ((), 1)
    assert only_objective(ranked, "cheap").fronts == ()
    with pytest.raises(BadInput, match="the run has mixed, cheap, plain, frugal, agent, levels"):
        only_objective(ranked, "other")
