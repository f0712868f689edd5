"""What `specsweep plan` prints."""

from __future__ import annotations

from pathlib import Path

from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.planning.search_plan import SearchPlan
from tests.orchestrator.scenario_samples import MINIMAL


def printed(tmp_path: Path, *overrides: str) -> str:
    file = tmp_path / "s.yaml"
    file.write_text(MINIMAL)
    said = CliRunner().invoke(main, ["plan", str(file), *(word for o in overrides for word in ("--set", o))])
    assert said.exit_code == 0, said.output
    return said.output


def test_a_plan_of_a_search_claims_neither_an_order_nor_slots_nor_a_number_of_trials(tmp_path: Path) -> None:
    grid, search = printed(tmp_path), printed(tmp_path, "search=halving")

    assert "slot  order  config" in grid
    assert "trials (server starts)" in grid
    assert "order" not in search.partition("Search halving")[0]
    assert "trials (server starts)" not in search


def test_a_plan_of_a_search_says_how_long_the_fewest_and_the_most_starts_take() -> None:
    told = SearchPlan("halving", 6, 6, 8, ("C=1",), True)

    assert told.lines(0.01, slots=2) == [
        "Search halving: 6 configs in question, from 6 to 8 starts (0.06 to 0.08 server-hours with all points, "
        "done in 1.8 to 2.4 min); results decide which"
    ]


def test_many_combinations_of_a_search_are_told_as_the_values_in_question_and_doubtful_memory_comes_first(
    tmp_path: Path,
) -> None:
    axes = (
        "sweep.axes={speculative_num_steps: [0, 1, 3, 10], max_running_requests: [16, 64, 256, 512], "
        "mem_fraction_static: [0.8, 0.85, 0.9]}"
    )
    model = "model={path: Qwen/Qwen3.5-122B-A10B, bundled_draft: true}"
    slots = "slots={gpus: 4, emulated_gpus: 4}"
    told = printed(tmp_path, axes, model, slots, "search=halving").splitlines()

    begin = told.index("48 combinations of")
    assert told[begin + 1 : begin + 4] == [
        "  speculative_num_steps: 0, 1, 3, 10",
        "  max_running_requests: 16, 64, 256, 512",
        "  mem_fraction_static: 0.8, 0.85, 0.9",
    ]
    (memory,) = [i for i, line in enumerate(told) if line.startswith("Memory of one GPU in GiB")]
    assert "do not fit" in told[memory]
    first = next(line for line in told[memory + 1 :] if line[:1].isdigit())
    assert "DOES NOT FIT" in first
    assert "... and 8 more configs (--json lists all)" in told


def test_a_plan_names_the_reference_that_the_scenario_wants(tmp_path: Path) -> None:
    told = printed(tmp_path, "measure.reference={speculative_num_steps: 2}")

    assert "Reference: speculative_num_steps=2, started on every host" in told


def test_an_optuna_search_starts_no_more_than_its_budget(tmp_path: Path) -> None:
    ranges = "search={method: optuna, budget_trials: 20, space: {mem_fraction_static: {low: 0.6, high: 0.9}}}"

    assert "draws from the axes and the space, from 12 to 20 starts" in printed(tmp_path, ranges)
    assert "3 configs in question, from 3 to 11 starts" in printed(tmp_path, "search=optuna")
