"""Starts that are sure to die are not made, and are listed as predicted; whatever is doubtful is tried."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actors.emulator.profiles import DEEPSEEK_V4_FLASH
from orchestrator.happening import TrialEnded
from orchestrator.hosts.host_match import HostFacts
from orchestrator.memory.config_shape import model_shape
from orchestrator.memory.emulated_memory import emulated_memory_model
from orchestrator.memory.hopeless import hopeless, predicted_failure
from orchestrator.memory.memory_forecast import Forecast
from orchestrator.memory.memory_model import GpuRoom, ModelFacts, memory_model
from orchestrator.memory.weight_budget import Checkpoint
from orchestrator.outcome import Label, Measured, Phase
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files import dataset
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.sweep_space import expand
from orchestrator.server_start import ServerReady
from orchestrator.slots.slot_port import SlotFacts
from orchestrator.starts.start_history import PastStart
from orchestrator.sweeps.foresight import Foresight, run_foresight
from orchestrator.sweeps.run_sweep import smallest_gpu_gib
from orchestrator.sweeps.sweep import Sweep
from orchestrator.trial import EngineConfig, Trial, freeze_settings
from tests.fakes.emulated_start import emulated_start
from tests.fakes.killable_sweep import Silent
from tests.fakes.slot import FakeSlot
from tests.orchestrator import model_configs as models
from tests.orchestrator.memory.test_memory_calibration import v4
from tests.orchestrator.scenario_samples import small_scenario

QWEN = "Qwen/Qwen3.5-122B-A10B"


def forecast(checkpoint: Checkpoint | None, *starts: PastStart, config: dict[str, Any] = models.LLAMA_8B) -> Forecast:
    facts = ModelFacts(model_shape(config), checkpoint)
    return Forecast(lambda s, v: memory_model(facts, s, GpuRoom(15.9), v), "0.5.23", starts)


def test_weights_of_known_size_that_leave_no_cache_are_hopeless() -> None:
    death = hopeless(forecast(Checkpoint(16060522496)).of({"mem_fraction_static": 0.85}))

    assert death is not None
    assert (death.label, death.phase) == (Label.KV_BUDGET, Phase.KV_POOL)
    said = "weights leave nothing for the KV cache under any mem_fraction_static; short by at least"
    assert death.evidence.startswith(f"predicted: {said} 1.")
    assert death.evidence.endswith("by arithmetic")


def test_a_size_that_was_only_guessed_is_not_enough() -> None:
    prediction = forecast(None).of({"mem_fraction_static": 0.85})

    assert prediction.verdict == "does_not_fit"
    assert hopeless(prediction) is None


def test_weights_beyond_the_whole_gpu_are_hopeless_by_the_config_alone() -> None:
    death = hopeless(forecast(None, config=models.QWEN3_14B).of({}))

    assert death is not None
    assert (death.label, death.phase) == (Label.OOM_WEIGHTS, Phase.WEIGHTS)
    assert death.evidence == "predicted: weights do not fit on the GPU; short by at least 11.3 GiB; by arithmetic"


def test_what_is_unknown_of_a_model_keeps_it_from_being_called_hopeless() -> None:
    odd = {**models.QWEN3_14B, "architectures": ["BrandNewForCausalLM"]}

    assert hopeless(forecast(None, config=odd).of({})) is None


def test_graphs_are_hopeless_only_once_starts_showed_their_scratch() -> None:
    def by(*starts: PastStart) -> Forecast:
        return Forecast(lambda s, v: emulated_memory_model(DEEPSEEK_V4_FLASH, s, v), None, starts)

    small = emulated_start(DEEPSEEK_V4_FLASH, v4(0.6, cuda_graph_max_bs_decode=16)).past
    wanted = v4(0.7, cuda_graph_max_bs_decode=16)
    death = hopeless(by(small).of(wanted))

    assert hopeless(by().of(wanted)) is None
    assert death is not None
    assert death.label is Label.OOM_GRAPH_DRAFT
    assert "graphs of the draft do not fit; short by at least 4." in death.evidence
    assert "learnt from earlier starts: KV cache, draft weights, free before the load" in death.evidence
    guessed = by(small).of(wanted)
    guessed = replace(guessed, model=replace(guessed.model, learnt=frozenset({"weights", "KV cache"})))
    assert guessed.verdict == "does_not_fit"
    assert hopeless(guessed) is None  # if it were by a guess


def test_a_start_earlier_in_the_same_run_counts_for_the_next() -> None:
    foresight = Foresight(Forecast(lambda s, v: emulated_memory_model(DEEPSEEK_V4_FLASH, s, v), None))
    slot = SlotFacts("a/0", "gpu-a", ("0", "1", "2", "3"))

    def trial(settings: dict[str, Any]) -> Trial:
        return Trial("t-r0", EngineConfig(freeze_settings(settings)), 0, (), 1.0)

    begun, wanted = trial(v4(0.6, cuda_graph_max_bs_decode=16)), trial(v4(0.7, cuda_graph_max_bs_decode=16))
    phases = emulated_start(DEEPSEEK_V4_FLASH, begun.config.as_dict()).past.phases
    server = ServerReady("t-r0", "http://127.0.0.1:1", 1, 1.0, phases, {"version": "0.5.23"})

    assert foresight.death_of(wanted, 1) is None
    foresight.saw(slot, TrialEnded(begun, 1, Measured(2), server, "now", b""))
    foreseen = foresight.death_of(wanted, 1)
    assert foreseen is not None
    assert foreseen.diagnosis.label is Label.OOM_GRAPH_DRAFT


def test_a_ceiling_is_verified_by_starts_whatever_is_foreseen() -> None:
    scenario = small_scenario(
        model={"path": QWEN, "bundled_draft": True}, search="ceiling",
        engine={"kind": "emulator", "settings": {
            "speculative_algorithm": "NEXTN", "mem_fraction_static": 0.85, "max_running_requests": 512}},
        sweep={"axes": {"speculative_num_steps": [1, 10]}, "skip_hopeless": True},
        slots={"gpus": 4, "emulated_gpus": 4},
    )  # fmt: skip
    foresight = run_foresight(scenario, lambda host_class: None, lambda said: None)
    assert foresight is not None
    hopeless_one = list(expand(scenario))[-1]
    first, second = (Trial(f"t-r{repeat}", hopeless_one, repeat, (), 1.0) for repeat in (0, 1))

    death = foresight.death_of(first, 1)
    assert death is not None
    assert death.diagnosis.evidence.startswith("predicted: ")
    assert foresight.death_of(second, 1) is None


def swept(tmp_path: Path, depths: list[int], mode: str = "off", **sweep: Any) -> tuple[FakeSlot, Path]:
    """A run over emulated Qwen: depth 10 with 512 requests has no room for its states."""
    scenario = small_scenario(
        model={"path": QWEN, "bundled_draft": True},
        engine={"kind": "emulator", "settings": {
            "speculative_algorithm": "NEXTN", "mem_fraction_static": 0.85, "max_running_requests": 512,
        }},
        sweep={"axes": {"speculative_num_steps": depths}, **sweep},
        slots={"gpus": 4, "emulated_gpus": 4},
        recovery={"mode": mode},
    )  # fmt: skip
    run = RunDirectory.create(tmp_path / "run", scenario)
    slot = FakeSlot("a/0")
    foresight = run_foresight(scenario, lambda _: None, print)
    Sweep(make_plan(scenario, 1), [slot], run, lambda t: launch_spec(scenario, "run", t), Silent(), foresight).run()
    run.close(complete=True)
    return slot, tmp_path / "run"


def test_a_hopeless_config_is_not_started_and_is_listed_as_predicted(tmp_path: Path) -> None:
    slot, root = swept(tmp_path, [1, 10], skip_hopeless=True)

    rows = {row["outcome"]: row for row in dataset.read_rows(RunPaths(root), "trials")}
    assert len(slot.launched) == 1
    assert (rows["infeasible"]["label"], rows["infeasible"]["phase"]) == ("kv_budget", "kv_pool")
    assert rows["infeasible"]["phases"] == []
    listed = rank_run(root).infeasible
    assert [c.settings["speculative_num_steps"] for c in listed] == [10]
    assert listed[0].evidence.startswith("predicted: states for 11 draft tokens of 512 requests need 18.7 GiB of 17.6")
    assert rows["measured"]["settings_json"].count('"speculative_num_steps": 1,') == 1


def test_a_predicted_death_is_repaired_without_a_start_of_what_was_asked(tmp_path: Path) -> None:
    slot, root = swept(tmp_path, [10], mode="apply", skip_hopeless=True)

    ranked = rank_run(root)
    assert len(slot.launched) == 1
    assert [config.settings["max_running_requests"] for config in ranked.repaired] == [512]
    (served,) = ranked.rankings[0].rows
    assert served.settings["speculative_num_steps"] == 10
    # By the numbers of the prediction, as a log would have told them: pools were there, states of requests took all.
    assert (served.settings["mem_fraction_static"], served.settings["max_running_requests"]) == (0.85, 256)


def test_a_predicted_death_has_the_numbers_that_a_log_would_have_told() -> None:
    prediction = forecast(Checkpoint(16060522496)).of({"mem_fraction_static": 0.85})
    death = hopeless(prediction)
    assert death is not None

    failed = predicted_failure(prediction, death)

    assert (failed.label, failed.fraction, failed.total_gib) == (Label.KV_BUDGET, 0.85, 15.9)
    assert failed.before_load_gib == pytest.approx(14.8)
    assert failed.loaded_gib is not None
    assert failed.least_fraction == pytest.approx(1 - failed.loaded_gib / 14.8)  # the weights alone take the fraction
    assert (failed.short_gib, failed.graph_begin_gib, failed.has_states) == (None, None, False)


def test_a_run_with_a_predicted_death_is_complete_and_resume_does_not_try_it_again(tmp_path: Path) -> None:
    from orchestrator.run_files.journal import finished_work, read_events, replay

    _, root = swept(tmp_path, [10], skip_hopeless=True)

    done = finished_work(replay(read_events(RunPaths(root).journal)))
    assert any(trial.endswith("-r0") for trial in done)


@pytest.mark.parametrize("sweep", [{}, {"skip_hopeless": False}])
def test_emulated_servers_are_started_all_the_same_unless_it_is_asked(tmp_path: Path, sweep: dict[str, Any]) -> None:
    slot, _ = swept(tmp_path, [1, 10], **sweep)

    assert len(slot.launched) == 2


def test_real_servers_are_spared_by_default_where_the_model_is_known(tmp_path: Path) -> None:
    import json

    file = tmp_path / "config.json"
    file.write_text(json.dumps(models.QWEN3_14B))
    said: list[str] = []

    def foreseen(**changes: Any) -> Foresight | None:
        model = {"path": "org/nowhere", "bundled_draft": True, **changes.pop("model", {})}
        slots = {"gpus": 1, **changes.pop("slots", {})}
        scenario = small_scenario(engine={"kind": "sglang"}, model=model, slots=slots, sweep=changes)
        return run_foresight(scenario, lambda _: None, said.append)

    known = {"model": {"config": str(file)}, "slots": {"gpu_memory_gib": 15.9}}
    assert foreseen(**known) is not None
    assert foreseen(**known, skip_hopeless=False) is None
    assert said == []
    assert foreseen() is None
    assert foreseen(model={"config": str(file)}) is None
    assert [line.split(":")[1].split(" ")[1] for line in said] == ["no", "the"]  # no config.json; the size of the GPUs


def test_the_smallest_gpu_of_the_hosts_that_match_decides() -> None:
    def host(name: str, gpus: int, kind: str) -> HostFacts:
        return HostFacts(name, "10.0.0.1", name, gpus, 8.0, 64.0, {"ray.io/accelerator-type": kind})

    sizes = {"a": [95.6, 95.0], "b": [94.97], "other": [23.9]}

    class FakeCluster:
        def hosts(self) -> list[HostFacts]:
            return [host("a", 2, "X"), host("b", 1, "X"), host("other", 1, "Y"), host("driver", 0, "X")]

        def gpu_states(self, host: HostFacts) -> list[dict[str, Any]] | None:
            return [{"total_gib": gib} for gib in sizes[host.node_id]] if host.node_id in sizes else None

    scenario = small_scenario(engine={"kind": "sglang"}, sweep={}, slots={"gpus": 1, "accelerator": "X"})
    cluster: Any = FakeCluster()
    assert smallest_gpu_gib(cluster, scenario) == 94.97
    sizes.clear()
    assert smallest_gpu_gib(cluster, scenario) is None
