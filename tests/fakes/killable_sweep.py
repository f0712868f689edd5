"""A driver to be killed: `main` runs or resumes a sweep on fake slots, `search` one that follows a search."""

from __future__ import annotations

from pathlib import Path

from orchestrator.happening import Happening
from orchestrator.outcome import Label
from orchestrator.planning.planner import Plan, make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.run_files.journal import finished_work
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.sweep_space import expand
from orchestrator.server_start import LaunchSpec
from orchestrator.slots.slot_port import SlotPort
from orchestrator.sweeps.search_conductor import SearchConductor
from orchestrator.sweeps.sweep import Sweep
from tests.fakes.playoff import FarBehind, Playoff, deeper_is_faster
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario

SCENARIO = small_scenario(sweep={"axes": {"speculative_num_steps": [0, 1, 2, 3, 4, 9]}})


SEARCHED = small_scenario(search="halving", sweep={"axes": {"speculative_num_steps": [0, 1, 2, 3, 4, 9]}})


class Silent:
    """Watches nothing."""

    def saw(self, slot: str, happening: Happening) -> None:
        pass


def script(name: str, spec: LaunchSpec) -> Label | None:
    """Depth 9 has no memory until the second repair."""
    settings = dict(spec.settings)
    short = settings.get("speculative_num_steps") == 9 and settings.get("mem_fraction_static", 0.85) != 0.95
    return Label.KV_BUDGET if short else None


def main(root: Path) -> None:
    if (root / "manifest.json").exists():
        run = RunDirectory.reopen(root, SCENARIO)
    else:
        run = RunDirectory.create(root, SCENARIO)
    slots: list[SlotPort] = [FakeSlot(f"s{i}", script, batches=4, pause_s=0.02) for i in range(2)]
    plan = make_plan(SCENARIO, 2, finished_work(run.state), run.lineages_of().stand_ins)
    result = Sweep(plan, slots, run, lambda t: launch_spec(SCENARIO, "run", t), Silent()).run()
    run.close(complete=result.complete)


def search(root: Path) -> None:
    if (root / "manifest.json").exists():
        run = RunDirectory.reopen(root, SEARCHED)
    else:
        run = RunDirectory.create(root, SEARCHED)
    slots: list[SlotPort] = [
        FakeSlot(f"{host}/0", script, batches=4, pause_s=0.02, host=host, slowness=deeper_is_faster)
        for host in ("east", "west")
    ]
    conductor = SearchConductor(SEARCHED, run, lambda _: Playoff(list(expand(SEARCHED))), lambda _: FarBehind())
    sweep = Sweep(Plan((), ()), slots, run, lambda t: launch_spec(SEARCHED, "run", t), Silent())
    sweep.follow(conductor)
    run.close(complete=sweep.run().complete)
