"""Which config stands for which, without a run around it."""

from __future__ import annotations

from typing import Any

from orchestrator.outcome import Diagnosis, Failed, Infeasible, Label, Phase
from orchestrator.planning.planner import make_plan
from orchestrator.recoveries.failed_lineage import Needs
from orchestrator.recoveries.failed_start import FailedStart
from orchestrator.recoveries.lineages import Lineages, needs_of
from orchestrator.recoveries.recovery import NoMove, Repair
from orchestrator.scenarios.scenario import Scenario
from orchestrator.trial import Trial
from tests.orchestrator.scenario_samples import small_scenario

SETTINGS = {"speculative_algorithm": "NEXTN", "speculative_num_steps": 2}


def asked(**changes: Any) -> Scenario:
    parts: dict[str, Any] = {
        "engine": {"kind": "emulator", "settings": SETTINGS},
        "sweep": {"axes": {"mem_fraction_static": [0.7, 0.75]}},
    }
    return small_scenario(**{**parts, **changes})


def trials_of(scenario: Scenario) -> dict[float, Trial]:
    return {t.config.as_dict()["mem_fraction_static"]: t for t in make_plan(scenario, 1).trials}


def death(lineages: Lineages, trial: Trial, label: Label) -> Any:
    diagnosis = Diagnosis(label, Phase.KV_POOL, "the line that shows it")
    outcome = Infeasible(diagnosis) if diagnosis.infeasible else Failed(diagnosis)
    recovery = lineages.after(trial, outcome, FailedStart(label, Phase.KV_POOL, diagnosis.evidence), 1)
    return recovery.decision if recovery else None


def test_settings_of_another_config_that_died_are_not_tried_again() -> None:
    scenario = asked()
    lineages, trials = Lineages(scenario), trials_of(scenario)

    assert isinstance(death(lineages, trials[0.75], Label.CONFIG_CONFLICT), NoMove)
    decision = death(lineages, trials[0.7], Label.KV_BUDGET)
    assert isinstance(decision, Repair)
    assert {c.name: c.now for c in decision.changes}.get("mem_fraction_static") != 0.75


def test_a_death_in_another_repeat_decides_nothing_anew() -> None:
    scenario = asked(measure={"duration_s": 5, "repeats": 2}, sweep={"axes": {"mem_fraction_static": [0.7]}})
    lineages = Lineages(scenario)
    first, second = make_plan(scenario, 1).trials

    assert isinstance(death(lineages, first, Label.KV_BUDGET), Repair)
    assert death(lineages, second, Label.KV_BUDGET) is None
    runs = [lineages.trial_to_run(trial) for trial in (first, second)]
    assert [(t.config.as_dict()["mem_fraction_static"], t.repeat) for t in runs if t] == [
        (0.75, first.repeat), (0.75, second.repeat)
    ]  # fmt: skip


def test_settings_of_servers_that_are_not_sglangs_are_left_alone() -> None:
    scenario = small_scenario(
        model={"path": "org/model"},
        engine={"kind": "command", "command": ["serve", "--port", "{port}"]},
        sweep={},
        slots={"gpus": 0},
        workloads=[{"name": "chat", "api": "completions", "concurrency": [1]}],
    )
    decision = death(Lineages(scenario), make_plan(scenario, 1).trials[0], Label.RUNTIME_OOM)

    assert isinstance(decision, NoMove)
    assert decision.reason == "Specsweep changes no settings of kind `command`"


def test_what_the_load_needs_is_its_largest_level_and_its_longest_request_with_reserves() -> None:
    chat = {"name": "chat", "input_tokens": 1000, "output_tokens": 500, "concurrency": [1, 16]}
    rates = {"name": "open", "rates": [2.0], "max_concurrency": 40}

    # (1500 + 10 %) + 256 = 1906, in steps of 256.
    assert needs_of(small_scenario(workloads=[chat])) == Needs(16, 2048)
    objective = {"name": "fast", "maximize": "output_throughput_tok_s", "workload": "chat", "at": {"concurrency": 1}}
    assert needs_of(small_scenario(workloads=[chat, rates], objectives=[objective])).running == 40
    assert needs_of(small_scenario(workloads=[{**chat, "dataset": "file:prompts.txt"}])) == Needs(16, None)


def test_a_repair_keeps_the_environment_and_says_everything_that_differs_from_what_was_asked() -> None:
    engine = {"kind": "emulator", "settings": SETTINGS, "env": {"NCCL_DEBUG": "INFO"}}
    scenario = asked(engine=engine, sweep={"axes": {"mem_fraction_static": [0.9]}})
    lineages = Lineages(scenario)
    (trial,) = make_plan(scenario, 1).trials

    death(lineages, trial, Label.OOM_GRAPH_TARGET)
    second = lineages.trial_to_run(trial)
    assert second is not None
    death(lineages, second, Label.OOM_GRAPH_TARGET)
    third = lineages.trial_to_run(trial)

    assert third is not None
    assert third.config.env == (("NCCL_DEBUG", "INFO"),)
    assert third.repaired is not None
    assert third.repaired.from_id == second.config.config_id
    assert third.repaired.changes == (("cuda_graph_max_bs_decode", None, 4), ("mem_fraction_static", 0.9, 0.85))
