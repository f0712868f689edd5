"""What searches cost and whether their picks are right, on simulated campaigns with hidden seeds.

    python -m benchmarks.search_campaigns [--quick] [--seeds 200] [--from 1000] [--case NAME] [--out FILE]

The space is that of `joint_space.py` (7 x 4 x 4, truth by the emulator's models). No servers; all but the slots and the
noise is the product's own code.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import click

from benchmarks.joint_space import LEVELS, POINT_S, Truth, space, truth_of
from benchmarks.simulated_campaign import SPEED, Campaign, Question, World
from orchestrator.estimation.estimates import NotComparable, estimate
from orchestrator.objectives.aim import Observation, observations
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.scenarios.config_label import config_labels
from orchestrator.searches.config_places import is_ordered, places_of
from orchestrator.searches.doubt import Doubt
from orchestrator.searches.grid_search import GridSearch
from orchestrator.searches.halving_decision import HalvingRules
from orchestrator.searches.halving_search import HalvingSearch
from orchestrator.searches.optuna_search import OptunaRules, OptunaSearch
from orchestrator.searches.pooled_fit import Spread
from orchestrator.searches.race import RaceGoal, RaceRules
from orchestrator.searches.search import Search
from orchestrator.searches.search_space import Listed, Space
from orchestrator.trial import EngineConfig

AGENTIC = Question(Objective.model_validate({"name": "agentic", "maximize": SPEED, "at": {"concurrency": 1}}), (1,))
BALANCED = Question(
    Objective.model_validate(
        {"name": "balanced", "maximize": f"geomean({', '.join(f'{SPEED} @ C={level}' for level in LEVELS)})"}
    ),
    LEVELS,
)
ALL_LEVELS = replace(AGENTIC, levels=LEVELS)
GOOD = 0.01
SLOWEST = "optuna TPE, same budget"


@dataclass(frozen=True, slots=True)
class Run:
    """One campaign by one method. `losses`: how far each pick is below the true best, as a share."""

    gpu_s: float
    starts: int
    losses: tuple[float, ...]

    @property
    def good(self) -> bool:
        return max(self.losses) <= GOOD


Picks = Callable[[Campaign], dict[str, str | None]]


def smooth(config: EngineConfig) -> Truth:
    """The emulator's models: settings that do not matter to a load do not move its speed at all."""
    return truth_of(config)


@cache
def rough(config: EngineConfig) -> Truth:
    """The same with an effect of 5 % (sd) of each config's own, in which no neighbour resembles another."""
    truth = truth_of(config)
    if truth.speed is None:
        return truth
    own = math.exp(random.Random(f"rough {config.config_id}").gauss(0, 0.05))
    return Truth({level: speed * own for level, speed in truth.speed.items()}, truth.start_s)


CONFIGS = space()
PLACES = places_of(CONFIGS)
BY_ID = {config.config_id: config for config in CONFIGS}


def halving(questions: Sequence[Question], rules: HalvingRules) -> HalvingSearch:
    goals = [RaceGoal(q.goal.name, q.goal.aim.maximize, q.goal.near_tie) for q in questions]
    labels = config_labels({config_id: config.as_dict() for config_id, config in BY_ID.items()})
    return HalvingSearch(CONFIGS, goals, RaceRules(PLACES, Spread()), rules, labels)


def drawn(questions: Sequence[Question], sampler: str, starts: int, seed: int) -> OptunaSearch:
    """The same space to optuna; nothing is known of who dies."""
    axes = {}
    for name in ("speculative_num_steps", "max_running_requests", "mem_fraction_static"):
        values = sorted({config.as_dict().get(name, 0) for config in CONFIGS})
        axes[name] = Listed(tuple(values), is_ordered(values))
    of = {tuple(config.as_dict().get(name, 0) for name in axes): config for config in CONFIGS}
    goals = [RaceGoal(q.goal.name, q.goal.aim.maximize, q.goal.near_tie) for q in questions]
    rules = OptunaRules(starts, "random" if sampler == "random" else "tpe", 3, 3, seed)
    return OptunaSearch(Space(axes, lambda draw: of[tuple(draw.values())]), goals, rules)


def by_verdict(search: HalvingSearch | OptunaSearch) -> Picks:
    return lambda _: {name: verdict.winner for name, verdict in search.verdicts.items()}


def by_estimates(among: Callable[[str], Sequence[str]]) -> Picks:
    """The best estimate as a ranking makes it (two-way least squares), of these configs of each objective; of all where
    there are none. Hosts that no config connects are compared as they are.
    """

    def pick(campaign: Campaign) -> dict[str, str | None]:
        found: dict[str, str | None] = {}
        for question in campaign.questions:
            goal = question.goal
            seen = observations(goal.aim, campaign.trials)
            allowed = set(among(goal.name)) or {o.config_id for o in seen}
            value = _values(seen, goal.aim.maximize)
            found[goal.name] = max((c for c in value if c in allowed), key=lambda c: (value[c], c))
        return found

    return pick


def _values(seen: Sequence[Observation], maximize: bool) -> dict[str, float]:
    try:
        estimates = estimate(seen, maximize=maximize)
        leader = max(estimates.config_ids, key=estimates.value)
        for config_id in estimates.config_ids:
            estimates.gap(config_id, leader)
    except NotComparable:
        estimates = estimate([replace(o, host="") for o in seen], maximize=maximize)
    return {config_id: estimates.value(config_id) for config_id in estimates.config_ids}


def run(
    world: World, questions: Sequence[Question], search: Search, picks: Sequence[Picks], judge: Doubt | None = None
) -> list[Run]:
    """One campaign, once for each way to pick from it."""
    campaign = Campaign(world, questions, judge)
    campaign.run(search)
    found = []
    for pick in picks:
        picked, losses = pick(campaign), []
        for question in questions:
            true, chosen = true_values(question, world.truth), picked[question.goal.name]
            losses.append(1.0 if chosen is None else 1 - true[chosen] / max(true.values()))
        found.append(Run(campaign.gpu_s, campaign.starts, tuple(losses)))
    return found


@cache
def true_values(question: Question, truth: Callable[[EngineConfig], Truth]) -> dict[str, float]:
    """Config id -> what the objective makes of its true speeds, without those that cannot run."""
    return {c: question.of(t.speed) for c, config in BY_ID.items() if (t := truth(config)).speed is not None}


def halving_run(world: World, questions: Sequence[Question], rules: HalvingRules, judge: Doubt | None) -> list[Run]:
    """By the search's own verdict, and as a ranking has it: the best estimate of those that were not left behind."""
    search = halving(questions, rules)

    def kept(name: str) -> list[str]:
        dropped = {c for step in search.steps if step.objective == name for c in step.dropped}
        return [c for c in BY_ID if c not in dropped]

    return run(world, questions, search, [by_verdict(search), by_estimates(kept)], judge)


def grid_run(world: World, questions: Sequence[Question], repeats: int) -> Run:
    return run(world, questions, GridSearch(CONFIGS, repeats), [by_estimates(lambda _: ())])[0]


def drawn_run(world: World, questions: Sequence[Question], sampler: str, budget_s: float) -> Run:
    """As many starts as cost what halving cost with the same seed."""
    alive = [t for config in CONFIGS if (t := world.truth(config)).speed is not None]
    dead = len(CONFIGS) - len(alive)
    levels = len({level for question in questions for level in question.levels})
    one_s = sum(t.start_s for t in alive) / len(alive) + POINT_S * levels
    starts = max(8, round(budget_s / (one_s * (1 - dead / len(CONFIGS) / 2))))
    search = drawn(questions, sampler, starts, world.seed)
    return run(world, questions, search, [by_verdict(search)])[0]


def table(title: str, runs: dict[str, list[Run]], grid_s: float) -> str:
    """One row a method: share of good picks, loss, cost against the replicated grid, starts."""
    rows = [f"{title} (grid with 3 repeats: {grid_s / 3600:.1f} host-hours)", ""]
    rows.append("| method | campaigns | pick within 1 % | mean loss | worst loss | GPU-hours of the grid | starts |")
    rows.append("|---|---|---|---|---|---|---|")
    for name, of in runs.items():
        losses, n = [max(r.losses) for r in of], len(of)
        cost = [r.gpu_s / grid_s for r in of]
        rows.append(
            f"| {name} | {n} | {sum(r.good for r in of) / n:.1%} | {sum(losses) / n:.2%} | {max(losses):.1%} "
            f"| {sum(cost) / n:.1%} (most {max(cost):.1%}) | {sum(r.starts for r in of) / n:.0f} |"
        )
    return "\n".join(rows) + "\n"


def campaigns(
    questions: Sequence[Question], truth: Callable[[EngineConfig], Truth], seed: int, *, slow: bool
) -> dict[str, Run]:
    """All methods on one hidden seed; those that take long if `slow`."""
    world = World(truth, seed)
    # Points can be spared where some decide nothing by themselves.
    judge = Doubt(PLACES, Spread()) if questions[0].levels != (1,) else None
    ours, ranked = halving_run(world, questions, HalvingRules(), judge)
    made = {"halving": ours, "halving, as ranked": ranked}
    made["grid, 3 repeats"] = grid_run(world, questions, 3)
    made["grid, 1 repeat"] = grid_run(world, questions, 1)
    if slow:
        made["halving without screen"] = halving_run(world, questions, HalvingRules(screen=False), judge)[0]
        made["random search, same budget"] = drawn_run(world, questions, "random", ours.gpu_s)
        made[SLOWEST] = drawn_run(world, questions, "tpe", ours.gpu_s)
    return made


CASES = {
    "agentic": ("Agentic: tokens/s at C=1", [AGENTIC], smooth),
    "agentic-levels": ("Agentic, with C=16 and C=32 measured too", [ALL_LEVELS], smooth),
    "balanced": ("Balanced: geometric mean over C=1, 16, 32", [BALANCED], smooth),
    "both": ("Agentic and balanced in one campaign", [AGENTIC, BALANCED], smooth),
    "rough": ("Balanced, where each config has 5 % of its own", [BALANCED], rough),
}


@click.command()
@click.option("--quick", is_flag=True, help="A few seeds of one case.")
@click.option("--seeds", default=200, show_default=True, help="How many.")
@click.option(
    "--from", "first", default=0, show_default=True, help="The first one; the defaults were tuned on 0 to 40."
)
@click.option("--slow", default=50, show_default=True, help="Of these, with the methods that take long.")
@click.option("--case", "cases", multiple=True, type=click.Choice(list(CASES)), help="Default: all.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="One JSON line a campaign; those it has are not run again."
)
def main(quick: bool, seeds: int, first: int, slow: int, cases: tuple[str, ...], out: Path | None) -> None:
    """Print one table a case."""
    if quick:
        cases, seeds, slow = cases or ("balanced",), 4, 0
    for case in cases or tuple(CASES):
        title, questions, truth = CASES[case]
        runs: dict[str, list[Run]] = {}
        known = _known(out, case)
        for seed in range(first, first + seeds):
            long = seed < first + slow
            if seed not in known or (long and SLOWEST not in known[seed]):
                known[seed] = campaigns(questions, truth, seed, slow=long)
                _keep(out, case, seed, known[seed])
            for name, one in known[seed].items():
                runs.setdefault(name, []).append(one)
        click.echo(table(title, runs, runs["grid, 3 repeats"][0].gpu_s))


def _known(out: Path | None, case: str) -> dict[int, dict[str, Run]]:
    """Seed -> its campaigns, of earlier calls."""
    lines = out.read_text(encoding="utf-8").splitlines() if out is not None and out.exists() else []
    rows = [row for line in lines if (row := json.loads(line))["case"] == case]
    return {
        row["seed"]: {name: Run(gpu_s, starts, tuple(losses)) for name, (gpu_s, starts, losses) in row["runs"].items()}
        for row in rows
    }


def _keep(out: Path | None, case: str, seed: int, made: dict[str, Run]) -> None:
    if out is None:
        return
    runs = {name: (one.gpu_s, one.starts, one.losses) for name, one in made.items()}
    with out.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"case": case, "seed": seed, "runs": runs}) + "\n")


if __name__ == "__main__":
    # Matrices of a hundred rows: more threads only get into each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
