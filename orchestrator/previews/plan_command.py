"""`specsweep plan`: what a run would do, without starting anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.memory.memory_forecast import NoForecast, scenario_forecast
from orchestrator.memory.memory_view import print_table, setting_heading
from orchestrator.planning.planner import Plan, make_plan
from orchestrator.planning.search_plan import search_plan
from orchestrator.planning.trial_estimate import start_estimate_s
from orchestrator.plural import plural
from orchestrator.previews.plan_warnings import plan_warnings
from orchestrator.previews.scenario_files import check_named_files
from orchestrator.previews.trial_count import plan_precision
from orchestrator.rankings.objective_text import objective_texts, objectives_json
from orchestrator.scenarios.config_label import label_values
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.sglang.auto_choices import AutoChoice, auto_choices
from orchestrator.sglang.gpu_arch import arch_of_products
from orchestrator.sglang.sglang_adjustments import adjustments
from orchestrator.sglang.sglang_rules import RULED_ENGINES
from orchestrator.terminal import print_json
from orchestrator.trial import Trial

SHOWN_TRIALS = 40
SHOWN_CONFIGS = 40
# Of more configs the first are predicted: each takes a millisecond.
_MOST_PREDICTED = 2000


def show_plan(path: Path, overrides: tuple[str, ...], slots: int | None, *, as_json: bool, console: Console) -> None:
    """Print the plan of a scenario file."""
    scenario = load_scenario(path, overrides)
    check_named_files(scenario, path)
    plan = make_plan(scenario, slots or planned_slots(scenario))
    if as_json:
        print_json(plan_json(scenario, plan), console)
    else:
        _print(scenario, plan, console)
        _print_memory(scenario, plan, console)


def planned_slots(scenario: Scenario) -> int:
    """The slots that the scenario names or that emulated GPUs give; 1 where only the cluster knows."""
    slots = scenario.slots
    if slots.count:
        return slots.count
    if slots.emulated_gpus and slots.gpus:
        return max(1, slots.emulated_gpus // slots.gpus)
    return slots.per_host or 1


def plan_json(scenario: Scenario, plan: Plan) -> dict[str, Any]:
    """The plan for machines."""
    return {
        "scenario": scenario.name,
        "configs": [{"config_id": c.config_id, "settings": c.as_dict()} for c in plan.configs],
        "trials": len(plan.trials),
        "points": plan.points,
        "left_on_auto": [{**asdict(choice), "configs": n} for choice, n in left_on_auto(scenario, plan).items()],
        "objectives": objectives_json(scenario),
        "adjustments": [{"note": note, "configs": n} for note, n in adjusted(scenario, plan).items()],
        "search": None if (search := search_plan(scenario, plan.configs)) is None else search.as_json(),
        "precision": plan_precision(scenario, len(plan.configs), len(plan.slots)).as_json(),
        "warnings": plan_warnings(scenario),
        "memory": memory_json(scenario, plan),
        "estimated_server_hours": round(plan.server_hours, 4),
        "estimated_makespan_s": round(plan.makespan_s, 1),
        "slots": [
            [
                {
                    "trial_id": t.trial_id,
                    "config_id": t.config.config_id,
                    "points": [{"workload": p.spec.workload, "at": str(p.spec.level)} for p in t.points],
                    "estimated_s": round(t.estimated_s, 1),
                }
                for t in slot
            ]
            for slot in plan.slots
        ],
    }


def memory_json(scenario: Scenario, plan: Plan) -> dict[str, Any]:
    """Every config's predicted memory by config id, or why there is none."""
    try:
        forecast = scenario_forecast(scenario)
    except NoForecast as why:
        return {"why_not": str(why)}
    return {c.config_id: forecast.of(c.as_dict()).as_json() for c in plan.configs}


def _print_memory(scenario: Scenario, plan: Plan, console: Console) -> None:
    try:
        forecast = scenario_forecast(scenario)
    except NoForecast as why:
        console.print(escape(f"Memory: {why}"))
        return
    names, values = label_values({c.config_id: c.as_dict() for c in plan.configs})
    found = [(c.config_id, forecast.of(c.as_dict())) for c in plan.configs[:_MOST_PREDICTED]]
    counts = Counter[str](prediction.verdict for _, prediction in found)
    words = {"does_not_fit": "do not fit", "unsure": "are unsure", "fits": "fit"}
    said = ", ".join(f"{counts[verdict]} {word}" for verdict, word in words.items() if counts[verdict])
    several = len(found) > SHOWN_CONFIGS
    first = f"; {said}, those in doubt first" if several else ""
    console.print(f"Memory of one GPU in GiB, predicted (from {forecast.starts} earlier starts){first}:")
    if several:
        found.sort(key=lambda one: list(words).index(one[1].verdict))
    shown = found[:SHOWN_CONFIGS]
    print_table(names, ((values[c], prediction) for c, prediction in shown), console)
    if len(plan.configs) > len(shown):
        console.print(f"... and {plural(len(plan.configs) - len(shown), 'more config')} (--json lists all)")


def left_on_auto(scenario: Scenario, plan: Plan) -> Counter[AutoChoice]:
    """What is left to SGLang and differs between the two Blackwells, each with the number of configs concerned."""
    if scenario.engine.kind not in RULED_ENGINES:
        return Counter()
    return Counter(choice for config in plan.configs for choice in auto_choices(config.as_dict()))


def adjusted(scenario: Scenario, plan: Plan) -> Counter[str]:
    """What SGLang will change by itself, each with the number of configs concerned."""
    if scenario.engine.kind not in RULED_ENGINES:
        return Counter()
    arch = arch_of_products(scenario.slots.accelerators)
    settings = [config.as_dict() for config in plan.configs]
    return Counter(note for given in settings if given.get("device") != "cpu" for note in adjustments(given, arch))


def _print_choices(scenario: Scenario, plan: Plan, console: Console) -> None:
    choices, notes = left_on_auto(scenario, plan), adjusted(scenario, plan)
    if choices:
        console.print("Left on auto, differs between SM100 (B200) and SM120 (RTX PRO 6000):")
    for choice, n in choices.items():
        both = f"{choice.setting}: SM100 {choice.sm100} | SM120 {choice.sm120}"
        console.print(escape(f"  {both} ({choice.why}) [{n} of {len(plan.configs)} configs]"))
    if notes:
        console.print("Changed by SGLang itself:")
    for note, n in notes.items():
        console.print(escape(f"  {note} [{n} of {len(plan.configs)} configs]"))


def _space_lines(scenario: Scenario, plan: Plan) -> list[str]:
    """Of a search among many configs: the values in question, instead of a row for each combination."""
    names, values = label_values({c.config_id: c.as_dict() for c in plan.configs})
    told = [
        f"  {name}: {', '.join(dict.fromkeys(of))}"
        for name, of in zip(names, zip(*values.values(), strict=True), strict=True)
    ]
    trials = [trial for slot in plan.slots for trial in slot]
    starts, wholes = ([f(t) for t in trials] for f in (lambda t: start_estimate_s(scenario, t.config), _whole_s))
    points = max(len(trial.points) for trial in trials)
    each = f"  each start: {_range(starts)} s to come up, {_range(wholes)} s with all of its {points} points"
    return [f"{len(plan.configs)} combinations of", *told, each]


def _whole_s(trial: Trial) -> float:
    return trial.estimated_s


def _range(values: Sequence[float]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low} to {high}"


def _trials_table(scenario: Scenario, plan: Plan, *, in_order: bool) -> Table:
    """The first trials of a plan; a search decides by results where and when a config is started."""
    names, values = label_values({c.config_id: c.as_dict() for c in plan.configs})
    table = Table(box=None, pad_edge=False)
    for name in (*(("slot", "order") if in_order else ()), *names, "points", "start s", "whole s"):
        table.add_column(setting_heading(name), overflow="fold")
    rows = [(i, n, t) for i, slot in enumerate(plan.slots) for n, t in enumerate(slot, 1)]
    if not in_order:
        place = {c.config_id: i for i, c in enumerate(plan.configs)}
        rows.sort(key=lambda row: place[row[2].config.config_id])
    for i, n, trial in rows[:SHOWN_TRIALS]:
        start = start_estimate_s(scenario, trial.config)
        own = values[trial.config.config_id]
        cells = (*own, str(len(trial.points)), f"{start:.0f}", f"{trial.estimated_s:.0f}")
        table.add_row(*((str(i), str(n)) if in_order else ()), *map(escape, cells))
    return table


def _print(scenario: Scenario, plan: Plan, console: Console) -> None:
    search = search_plan(scenario, plan.configs)
    described = scenario.description.strip().splitlines()[:1]
    console.print(": ".join([scenario.name, *described]))
    if search is not None and len(plan.trials) > SHOWN_TRIALS:
        for line in _space_lines(scenario, plan):
            console.print(escape(line))
    else:
        console.print(_trials_table(scenario, plan, in_order=search is None))
        if len(plan.trials) > SHOWN_TRIALS:
            console.print(f"... and {plural(len(plan.trials) - SHOWN_TRIALS, 'more trial')} (--json lists all)")
    counts = f"{plural(len(plan.trials), 'trial')} (server starts), {plural(plan.points, 'point')} on "
    console.print(
        f"{plural(len(plan.configs), 'config')}, {counts if search is None else ''}"
        f"{plural(len(plan.slots), 'slot')} of {scenario.slots.size}; seed {scenario.seed}"
    )
    each = plan.server_hours / max(1, len(plan.trials))
    count = len(plan.slots)
    lines = search.lines(each, count) if search else plan_precision(scenario, len(plan.configs), count).lines()
    for line in lines:
        console.print(escape(line))
    if not isinstance(scenario.measure.reference, str):
        reference = ", ".join(f"{name}={value}" for name, value in scenario.measure.reference.items())
        console.print(
            escape(f"Reference: {reference}, started on every host before its other trials, and besides them")
        )
    for text in objective_texts(scenario):
        console.print(escape(text))
    _print_choices(scenario, plan, console)
    for warning in plan_warnings(scenario):
        console.print(escape(f"Warning: {warning}"), style="yellow")
    if search is not None:  # the table has each config once, which is not what is done
        return
    console.print(
        f"Estimated: {plan.server_hours:.2f} server-hours, done in {plan.makespan_s / 60:.1f} min "
        "(rough: start-up times are guesses until a run has measured them)"
    )
