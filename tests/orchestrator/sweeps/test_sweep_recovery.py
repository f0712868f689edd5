"""Repairs and retries in the loop of a run, on slots that answer from a script."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from rich.console import Console

from orchestrator.outcome import Label
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.rankings.ranking_table import print_rankings
from orchestrator.rankings.run_ranking import RunRanking, rank_run
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import finished_work
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import LaunchSpec
from orchestrator.slots.slot_port import SlotFacts
from orchestrator.sweeps.sweep import Sweep
from orchestrator.watching.progress import Progress
from tests.fakes.slot import FakeSlot, Script
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import sweep_on


def dies_unless(label: Label, **served: Any) -> Script:
    """Every server dies that does not have these settings."""
    wanted = set(served.items())

    def script(name: str, spec: LaunchSpec) -> Label | None:
        return None if wanted <= set(spec.settings) else label

    return script


def one_config(repeats: int = 1, **changes: Any) -> Scenario:
    engine = {"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN", "mem_fraction_static": 0.7}}
    parts: dict[str, Any] = {
        "engine": engine,
        "sweep": {"configs": [{"speculative_num_steps": 2}]},
        "measure": {"duration_s": 5, "repeats": repeats},
    }
    return small_scenario(**{**parts, **changes})


def swept(folder: Path, scenario: Scenario, slots: list[FakeSlot]) -> tuple[RunDirectory, str]:
    """The closed run, and what its progress said."""
    root = folder / "run"
    run = RunDirectory.reopen(root, scenario) if root.exists() else RunDirectory.create(root, scenario)
    said = Console(file=io.StringIO(), width=400)
    plan = make_plan(scenario, len(slots), finished_work(run.state), run.lineages_of().stand_ins)
    with Progress(plan, [slot.facts.name for slot in slots], said) as progress:
        result = Sweep(plan, list(slots), run, lambda t: launch_spec(scenario, "run", t), progress).run()
    run.close(complete=result.complete)
    return run, said.file.getvalue()  # type: ignore[attr-defined]


def fractions(run: RunDirectory) -> list[tuple[float | None, int, str]]:
    """(mem_fraction_static, repeat, outcome) of every start."""
    rows = dataset.read_rows(run.paths, "trials")
    told = [(json.loads(r["settings_json"]).get("mem_fraction_static"), r["repeat"], r["outcome"]) for r in rows]
    return sorted(told, key=str)


def printed(ranked: RunRanking) -> str:
    console = Console(file=io.StringIO(), width=400)
    print_rankings(ranked, console)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_a_repaired_config_is_started_at_once_linked_to_what_was_asked_and_used_by_all_repeats(tmp_path: Path) -> None:
    slot = FakeSlot("a", dies_unless(Label.KV_BUDGET, mem_fraction_static=0.75))
    run, said = swept(tmp_path, one_config(repeats=3), [slot])

    assert [(f, r) for f, r, outcome in fractions(run) if outcome == "measured"] == [(0.75, 0), (0.75, 1), (0.75, 2)]
    assert [f for f, _, outcome in fractions(run) if outcome == "infeasible"] == [0.7]
    rows = sorted(dataset.read_rows(run.paths, "trials"), key=lambda r: str(r["began_at"]))
    asked = next(r for r in rows if r["outcome"] == "infeasible")
    assert {r["repaired_from"] for r in rows if r["outcome"] == "measured"} == {asked["config_id"]}
    assert (asked["repaired_from"], asked["repair_json"]) == (None, None)
    assert json.loads(rows[-1]["repair_json"]) == {
        "asked_config": asked["config_id"],
        "changes": [{"name": "mem_fraction_static", "asked": 0.7, "now": 0.75}],
        "why": "mem_fraction_static: a step of 0.05: no number tells how much was short",
    }
    assert slot.launched[0] == asked["trial_id"]
    assert "trying again: mem_fraction_static 0.7 -> 0.75" in said
    assert "(repaired): ready after" in said


def test_the_ranking_tells_what_was_asked_what_served_and_what_died_between(tmp_path: Path) -> None:
    run, _ = swept(tmp_path, one_config(), [FakeSlot("a", dies_unless(Label.KV_BUDGET, mem_fraction_static=0.85))])
    ranked = rank_run(run.paths.root)
    told = ranked.as_json()
    (row,) = told["objectives"]["fast"]["ranking"]

    assert told["infeasible"] == []
    (died,) = told["repaired"]
    assert (died["settings"]["mem_fraction_static"], died["label"]) == (0.7, "kv_budget")
    assert died["served_as"] == row["config_id"]
    assert [(t["changes"][0]["now"], t["label"]) for t in died["tries"]] == [(0.75, "kv_budget")]
    assert (row["repaired_from"], row["repairs"]) == (
        died["config_id"],
        [{"name": "mem_fraction_static", "asked": 0.7, "now": 0.85}],
    )
    text = printed(ranked)
    assert "asked mem_fraction_static 0.7, served at 0.85" in text
    assert "Died as asked, served after repair" in text
    assert "(after 1 that died as well)" in text
    assert "Infeasible" not in text


def test_tries_are_bounded_and_the_end_says_what_was_tried(tmp_path: Path) -> None:
    slot = FakeSlot("a", dies_unless(Label.KV_BUDGET, mem_fraction_static=0.5))
    run, said = swept(tmp_path, one_config(repeats=2, recovery={"tries": 2}), [slot])
    ranked = rank_run(run.paths.root)

    assert [f for f, _, _ in fractions(run)] == [0.7, 0.75, 0.85]
    (config,) = ranked.infeasible
    assert [a.changes for a in config.story.attempts] == [
        (("mem_fraction_static", 0.7, 0.75),), (("mem_fraction_static", 0.7, 0.85),)
    ]  # fmt: skip
    assert "2 repairs died as well; all tries of recovery.tries are used" in printed(ranked)
    assert "not started again, it died in another trial" in said


def test_suggest_tells_the_repair_in_progress_table_and_json_and_starts_nothing(tmp_path: Path) -> None:
    slot = FakeSlot("a", dies_unless(Label.KV_BUDGET, mem_fraction_static=0.75))
    run, said = swept(tmp_path, one_config(recovery={"mode": "suggest"}), [slot])
    ranked = rank_run(run.paths.root)
    told = "mem_fraction_static 0.7 -> 0.75 (a step of 0.05: no number tells how much was short)"

    assert len(slot.launched) == 1
    assert f"suggested: {told}" in said
    assert f"try {told}" in printed(ranked)
    assert ranked.as_json()["infeasible"][0]["suggestion"] == [
        {"name": "mem_fraction_static", "was": 0.7, "now": 0.75,
         "why": "a step of 0.05: no number tells how much was short"}
    ]  # fmt: skip


def test_a_repair_that_the_sweep_has_already_is_not_started_twice_and_serves_for_both(tmp_path: Path) -> None:
    scenario = one_config(sweep={"axes": {"speculative_num_steps": [2], "mem_fraction_static": [0.7, 0.75, 0.8]}})
    slot = FakeSlot("a", dies_unless(Label.KV_BUDGET, mem_fraction_static=0.8))
    run, said = swept(tmp_path, scenario, [slot])
    ranked = rank_run(run.paths.root)

    assert fractions(run) == [(0.7, 0, "infeasible"), (0.75, 0, "infeasible"), (0.8, 0, "measured")]
    assert len(slot.launched) == 3
    (row,) = ranked.rankings[0].rows
    assert {c.settings["mem_fraction_static"] for c in ranked.stands_for(row.config_id)} == {0.7, 0.75}
    assert "also serves for mem_fraction_static=0.7, which died (kv_budget)" in printed(ranked)
    assert said.count("which stands for it") == 2


def test_two_configs_that_are_repaired_to_the_same_settings_share_them(tmp_path: Path) -> None:
    scenario = one_config(
        sweep={"axes": {"speculative_num_steps": [2], "cuda_graph_max_bs_decode": [32, 64]}},
        recovery={"may_change": ["cuda_graph_max_bs_decode"]},
    )
    slot = FakeSlot("a", dies_unless(Label.OOM_GRAPH_TARGET, cuda_graph_max_bs_decode=4))
    run, _ = swept(tmp_path, scenario, [slot])

    rows = dataset.read_rows(run.paths, "trials")
    assert sorted(r["outcome"] for r in rows) == ["infeasible", "infeasible", "measured"]
    assert len(rank_run(run.paths.root).repaired) == 2


def test_a_resumed_run_goes_on_with_a_lineage_and_starts_nothing_twice_that_died(tmp_path: Path) -> None:
    scenario = one_config(repeats=2)
    lost = FakeSlot("a")
    seen: list[float] = []

    def script(name: str, spec: LaunchSpec) -> Label | None:
        seen.append(float(dict(spec.settings)["mem_fraction_static"]))  # type: ignore[arg-type]
        if seen[-1] == 0.85:
            lost.lose_at = spec.trial_id
        return Label.KV_BUDGET

    lost._script = script
    run, _ = swept(tmp_path, scenario, [lost])
    assert seen == [0.7, 0.75, 0.85]
    (waiting,) = rank_run(run.paths.root).infeasible
    assert waiting.story.reason == "its repair is not measured yet: --resume goes on with it"
    assert [a.changes[0][2] for a in waiting.story.attempts] == [0.75]

    healthy = FakeSlot("b", dies_unless(Label.KV_BUDGET, mem_fraction_static=0.97))
    run, _ = swept(tmp_path, scenario, [healthy])

    assert [f for f, _, outcome in fractions(run) if outcome == "infeasible"] == [0.7, 0.75, 0.85]
    assert [(f, outcome) for f, _, outcome in fractions(run) if f == 0.97] == [(0.97, "measured")] * 2
    assert len(healthy.launched) == 3
    again = RunDirectory.reopen(tmp_path / "run", scenario)
    assert make_plan(scenario, 1, finished_work(again.state), again.lineages_of().stand_ins).trials == []
    again.close(complete=True)


def test_a_run_without_repairs_resumes_without_its_infeasible_repeats(tmp_path: Path) -> None:
    scenario = one_config(repeats=3, recovery={"mode": "off"})
    slot = FakeSlot("a", dies_unless(Label.KV_BUDGET, mem_fraction_static=0.9))
    run, _ = swept(tmp_path, scenario, [slot])
    assert len(slot.launched) == 1

    again = RunDirectory.reopen(run.paths.root, scenario)
    assert make_plan(scenario, 1, finished_work(again.state), again.lineages_of().stand_ins).trials == []
    again.close(complete=True)


def test_a_config_that_served_once_is_not_repaired_for_a_later_death(tmp_path: Path) -> None:
    scenario = one_config(repeats=2)
    slot = FakeSlot("a")
    slot._script = lambda name, spec: Label.RUNTIME_OOM if len(slot.launched) == 2 else None
    run, said = swept(tmp_path, scenario, [slot])

    assert sorted(outcome for _, _, outcome in fractions(run)) == ["infeasible", "measured"]
    assert "another start of it served" in said


def on_host(slot: FakeSlot, host: str) -> FakeSlot:
    slot.facts = SlotFacts(slot.facts.name, host, ("0",))
    return slot


def test_a_hang_is_tried_on_another_host_even_if_a_slot_of_the_same_host_is_free(tmp_path: Path) -> None:
    bad = dies_unless(Label.WATCHDOG_HANG, tp_size=99)
    slots = [
        on_host(FakeSlot("a/0", bad, pause_s=0.01), "a"), on_host(FakeSlot("a/1", bad, pause_s=0.01), "a"),
        on_host(FakeSlot("b/0", pause_s=0.05), "b"),
    ]  # fmt: skip
    scenario = small_scenario(sweep={"axes": {"speculative_num_steps": list(range(6))}})
    run = RunDirectory.create(tmp_path / "run", scenario)
    _, result = sweep_on(run, scenario, slots)
    run.close(complete=result.complete)

    assert {o.kind for o in result.outcomes.values()} == {"measured"}
    hung = [r for r in dataset.read_rows(run.paths, "trials") if r["outcome"] == "failed"]
    assert {r["host"] for r in hung} == {"a"}
    assert len({r["trial_id"] for r in hung}) == len(hung)


def test_an_occupied_gpu_is_tried_again_on_the_same_slot_and_only_once(tmp_path: Path) -> None:
    slots = [FakeSlot("a", dies_unless(Label.GPU_OCCUPIED, tp_size=99)), FakeSlot("b", pause_s=0.05)]
    scenario = one_config()
    run, said = swept(tmp_path, scenario, slots[:1])

    assert slots[0].launched == [slots[0].launched[0]] * 2
    assert "trying the same again (clean)" in said
    assert "no further try: it was tried 2 times" in said
    assert [c.story.reason for c in rank_run(run.paths.root).failed] == ["it was tried 2 times"]


def test_a_host_without_memory_is_tried_again_while_nothing_else_runs(tmp_path: Path) -> None:
    scenario = small_scenario(sweep={"axes": {"speculative_num_steps": list(range(8))}})
    up: set[str] = set()
    crowds: list[set[str]] = []

    def script(name: str, spec: LaunchSpec) -> Label | None:
        up.add(name)
        if dict(spec.settings).get("speculative_num_steps") == 3:
            crowds.append(set(up))
            return Label.HOST_OOM if len(crowds) == 1 else None
        return None

    class Leaving(FakeSlot):
        def stop(self) -> Any:
            up.discard(self.facts.name)
            return super().stop()

    slots: list[FakeSlot] = [Leaving(name, script, pause_s=0.01) for name in ("a", "b", "c")]
    run = RunDirectory.create(tmp_path / "run", scenario)
    _, result = sweep_on(run, scenario, slots)
    run.close(complete=result.complete)

    assert {o.kind for o in result.outcomes.values()} == {"measured"}
    assert [len(crowd) for crowd in crowds[1:]] == [1]


def test_what_no_start_can_change_is_started_once(tmp_path: Path) -> None:
    slot = FakeSlot("a", dies_unless(Label.KERNEL_ARCH, tp_size=99))
    run, said = swept(tmp_path, one_config(), [slot])

    assert len(slot.launched) == 1
    assert [f[2] for f in fractions(run)] == ["infeasible"]
    assert "no further try: kernel_arch is no matter of memory settings or luck" in said
