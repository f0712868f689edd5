"""What servers came to decides what is compared: through a whole run, from the sweep to the printed ranking."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from orchestrator.errors import BadInput
from orchestrator.paths import RunPaths
from orchestrator.rankings.ranking_table import print_rankings
from orchestrator.rankings.run_ranking import RunRanking, rank_run
from orchestrator.run_files import dataset
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import LaunchSpec
from orchestrator.sweeps.run_command import scenario_to_resume
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import finished_run

BACKENDS = [{"attention_backend": "triton"}, {}, {"attention_backend": "fa3"}]


def account(spec: LaunchSpec, **told: Any) -> dict[str, Any]:
    """A server that runs what it was asked for, triton where nothing was, and what is given here."""
    asked = dict(spec.settings)
    algorithm = asked.get("speculative_algorithm")
    whole = {"version": "0.5.23", "attention_backend": "triton", "speculative_algorithm": algorithm, "page_size": 1}
    running = told.pop("running", asked["max_running_requests"])
    state = {"effective_max_running_requests_per_dp": running}
    return {**whole, **asked, "internal_states": [state], **told}


def ranked(root: Path, scenario: Scenario, told: Any = account) -> tuple[RunRanking, str]:
    finished_run(root, scenario, FakeSlot("a", account=told))
    result = rank_run(root)
    console = Console(file=io.StringIO(), width=300)
    print_rankings(result, console)
    assert isinstance(console.file, io.StringIO)
    return result, console.file.getvalue()


def plain(*configs: dict[str, Any], **engine: Any) -> Scenario:
    return small_scenario(
        engine={"kind": "sglang", "settings": {"max_running_requests": 512}, **engine},
        slots={"gpus": 1},
        sweep={"configs": list(configs)},
    )


def test_two_configs_that_came_to_the_same_server_are_ranked_as_one(tmp_path: Path) -> None:
    result, printed = ranked(tmp_path / "run", plain(*BACKENDS))

    (ranking,) = result.rankings
    by_backend = {row.settings.get("attention_backend"): row for row in ranking.rows}
    assert {backend: row.trials for backend, row in by_backend.items()} == {"triton": 2, "fa3": 1}
    assert len(result.merged) == 1
    assert "same server as attention_backend=-" in printed
    rows = result.as_json()["objectives"]["fast"]["ranking"]
    assert [len(row["same_server"]) for row in rows if row["settings"].get("attention_backend") == "triton"] == [1]


def test_repeats_of_merged_configs_count_together(tmp_path: Path) -> None:
    scenario = small_scenario(
        engine={"kind": "sglang"},
        slots={"gpus": 1},
        sweep={"configs": BACKENDS},
        measure={"duration_s": 5, "repeats": 2},
    )
    result, _ = ranked(tmp_path / "run", scenario)

    assert sorted(row.trials for row in result.rankings[0].rows) == [2, 4]


def test_a_setting_that_came_out_otherwise_stands_in_the_ranking_unasked(tmp_path: Path) -> None:
    def capped(spec: LaunchSpec) -> dict[str, Any]:
        return account(spec, running=8, max_total_num_tokens=16)

    result, printed = ranked(tmp_path / "run", plain({"page_size": 1}, {"page_size": 64}), capped)

    assert printed.count("max_running_requests 512 asked, 8 run (the KV cache holds 16 tokens)") == 2
    (row, _) = result.as_json()["objectives"]["fast"]["ranking"]
    assert row["changes"] == [
        {"name": "max_running_requests", "asked": 512, "resolved": 8, "why": "the KV cache holds 16 tokens"}
    ]


def test_what_was_left_open_and_came_out_differently_is_a_note(tmp_path: Path) -> None:
    def other_kernels_on_larger_pages(spec: LaunchSpec) -> dict[str, Any]:
        return account(spec, attention_backend="trtllm_mha" if dict(spec.settings)["page_size"] == 64 else "flashinfer")

    _, printed = ranked(tmp_path / "run", plain({"page_size": 1}, {"page_size": 64}), other_kernels_on_larger_pages)

    assert "attention_backend was left open and resolved differently" in printed
    assert "trtllm_mha for page_size=64" in printed


def test_a_config_that_never_speculated_although_asked_is_void_and_says_why(tmp_path: Path) -> None:
    class Deaf(FakeSlot):
        """Starts whatever it is asked for, and serves without speculation."""

        def launch(self, spec: LaunchSpec) -> Any:
            yield from super().launch(spec)
            self._speculates = False

    scenario = small_scenario(
        engine={"kind": "sglang", "settings": {"speculative_algorithm": "NEXTN"}}, slots={"gpus": 1}
    )
    finished_run(tmp_path / "run", scenario, Deaf("a"))
    (ranking,) = rank_run(tmp_path / "run").rankings

    told = {row.settings.get("speculative_num_steps", 0): row.gates_failed for row in ranking.rows}
    assert told[0] == ()
    assert told[2] == (
        "void at C=1: asked for NEXTN with 2 steps, but the server made no verify pass: it served without speculation",
    )
    points = dataset.read_rows(RunPaths(tmp_path / "run"), "points")
    assert sorted(p["valid"] for p in points) == [False] * 4 + [True] * 2


@pytest.mark.parametrize("kind", ["attach"])
def test_nothing_was_asked_of_an_attached_server_so_nothing_is_void(tmp_path: Path, kind: str) -> None:
    scenario = small_scenario(engine={"kind": kind, "url": "http://127.0.0.1:1"}, slots={"gpus": 0}, sweep={})

    class Speculating(FakeSlot):
        def launch(self, spec: LaunchSpec) -> Any:
            yield from super().launch(spec)
            self._speculates = True

    finished_run(tmp_path / "run", scenario, Speculating("a"))

    assert rank_run(tmp_path / "run").rankings[0].rows[0].gates_failed == ()


def test_a_run_whose_settings_are_refused_by_now_is_ranked_as_it_was_but_not_resumed(tmp_path: Path) -> None:
    root = tmp_path / "run"
    ranked(root, plain({"page_size": 1}, {"page_size": 64}))
    manifest = json.loads((root / "manifest.json").read_text())
    manifest["scenario"]["engine"]["settings"]["schedule_conservativeness"] = -1.0
    (root / "manifest.json").write_text(json.dumps(manifest))

    assert len(rank_run(root).rankings[0].rows) == 2
    with pytest.raises(BadInput, match=r"schedule_conservativeness: .*\(refused by now\)"):
        scenario_to_resume(root, None)
