"""Whether what a halving search states at its end is how often it is true, on spaces that are less and less regular.

    python -m benchmarks.search_calibration [--campaigns 100] [--from 1000] [--truth NAME] [--out FILE]

A campaign: 50 configs (two ordered axes of five values, one of two names), four hosts that differ by 5 %, starts by
1.5 %, points by 2 %, near_tie 2 %. Each campaign has a truth of its own. No servers; all but the slots and the noise is
the product's own code, down to the ranking.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import click

from benchmarks.calibration import Statement, report
from benchmarks.joint_space import Truth
from benchmarks.simulated_campaign import SPEED, Campaign, Question, World
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.rankings.ranking import rank
from orchestrator.scenarios.config_label import config_labels
from orchestrator.searches.config_places import places_of
from orchestrator.searches.halving_decision import HalvingRules
from orchestrator.searches.halving_search import HalvingSearch
from orchestrator.searches.pooled_fit import Spread
from orchestrator.searches.race import RaceGoal, RaceRules
from orchestrator.trial import EngineConfig, freeze_settings

NEAR_TIE = 0.02
RISKS = (0.0, 0.02, 0.05, 0.1, 0.2, 0.4, 1.01)
AXES = {
    "max_running_requests": (16, 32, 64, 128, 256),
    "chunked_prefill_size": (1024, 2048, 4096, 8192, 16384),
    "attention_backend": ("fa3", "triton"),
}
CONFIGS = [EngineConfig(freeze_settings(dict(zip(AXES, values, strict=True)))) for values in product(*AXES.values())]
IDS = [config.config_id for config in CONFIGS]
PLACES = places_of(CONFIGS)
QUESTION = Question(
    Objective.model_validate({"name": "fast", "maximize": SPEED, "at": {"concurrency": 1}, "near_tie": NEAR_TIE}), (1,)
)
Cell = tuple[int, int, int]
CELLS: list[Cell] = [(a, b, c) for a in range(5) for b in range(5) for c in range(2)]
Surface = Callable[[random.Random], dict[Cell, float]]


def smooth(rng: random.Random) -> dict[Cell, float]:
    """A hill with its top somewhere."""
    top, steep, backend = (rng.uniform(0, 4), rng.uniform(0, 4)), rng.uniform(0.005, 0.02), rng.gauss(0, 0.03)
    return {(a, b, c): -steep * ((a - top[0]) ** 2 + (b - top[1]) ** 2) + backend * c for a, b, c in CELLS}


def unordered(rng: random.Random) -> dict[Cell, float]:
    """Each value of an axis has an effect of its own (3 %), in no order; the effects add up."""
    effects = [[rng.gauss(0, 0.03) for _ in values] for values in AXES.values()]
    return {cell: sum(effect[i] for effect, i in zip(effects, cell, strict=True)) for cell in CELLS}


def interacting(rng: random.Random) -> dict[Cell, float]:
    """The same, and each pair of values of the two long axes has another (4 %)."""
    added, pairs = unordered(rng), {(a, b): rng.gauss(0, 0.04) for a in range(5) for b in range(5)}
    return {cell: value + pairs[cell[:2]] for cell, value in added.items()}


def cliffs(rng: random.Random) -> dict[Cell, float]:
    """A hill; beyond an edge through both axes, another for each name, all is 10 to 30 % lower."""
    hill = smooth(rng)
    edges = [(rng.uniform(0.4, 1.6), rng.uniform(3, 7), rng.uniform(0.1, 0.3)) for _ in range(2)]
    return {
        (a, b, c): value - (edges[c][2] if a + edges[c][0] * b > edges[c][1] else 0.0)
        for (a, b, c), value in hill.items()
    }


def islands(rng: random.Random, own: float) -> dict[Cell, float]:
    """No config resembles any other."""
    return {cell: rng.gauss(0, own) for cell in CELLS}


TRUTHS: dict[str, Surface] = {
    "smooth": smooth,
    "unordered effects": unordered,
    "interactions": interacting,
    "cliffs": cliffs,
    "islands of 2 %": partial(islands, own=0.02),
    "islands of 5 %": partial(islands, own=0.05),
}


@dataclass(frozen=True, slots=True)
class Ended:
    """One campaign. `risk`, `overlooked`: what the verdict states; `wrong`: a finalist was better by more than
    near_tie, `missed`: any config was. `statements`: P(best) of the ranking, about all configs.
    """

    starts: int
    settled: bool
    risk: float
    overlooked: float
    wrong: bool
    missed: bool
    loss: float
    statements: tuple[Statement, ...]


def campaign(surface: Surface, seed: int) -> Ended:
    """A search from its beginning to the ranking."""
    cells = surface(random.Random(f"truth {seed}"))
    true = dict(zip(IDS, cells.values(), strict=True))
    world = World(lambda config: Truth({1: 100 * math.exp(true[config.config_id])}, 60.0), seed)
    goal = RaceGoal("fast", QUESTION.goal.aim.maximize, NEAR_TIE)
    labels = config_labels({config.config_id: config.as_dict() for config in CONFIGS})
    search = HalvingSearch(CONFIGS, [goal], RaceRules(PLACES, Spread()), HalvingRules(), labels)
    played = Campaign(world, [QUESTION])
    played.run(search)
    verdict = search.verdicts["fast"]
    assert verdict.winner is not None
    assert verdict.risk is not None
    assert verdict.overlooked is not None
    best, mine = max(true.values()), true[verdict.winner]
    rivals = max((true[c] for c in verdict.finalists), default=mine)
    return Ended(
        played.starts,
        verdict.settled,
        verdict.risk,
        verdict.overlooked,
        rivals - mine > goal.margin,
        best - mine > goal.margin,
        1 - math.exp(mine - best),
        tuple(_stated(played, search, true)),
    )


def _stated(played: Campaign, search: HalvingSearch, true: dict[str, float]) -> Iterable[Statement]:
    """What the ranking says of each config that it gives a probability."""
    points = [point for trial in played.trials for point in trial.points.values()]
    measured = {point.config_id for point in points}
    settings = {config.config_id: config.as_dict() for config in CONFIGS if config.config_id in measured}
    out = {c: why for step in search.steps if step.objective == "fast" for c, why in step.dropped.items()}
    ranking = rank(QUESTION.objective, settings, points, workload="chat", out=out)
    best = max(true.values())
    for row in ranking.rows:
        if row.p_best is not None:
            yield Statement(
                row.p_best,
                true[row.config_id] == best,
                row is ranking.rows[0],
                row.told_apart is not True,
                1 - math.exp(true[row.config_id] - best),
            )


def table(found: dict[str, list[Ended]]) -> list[str]:
    """Markdown: one row for each kind of truth."""
    lines = [
        "| truth | campaigns | starts | settled | a finalist is better: stated | true | any config is: stated | true | "
        "mean loss | first: stated P(best) | true |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, of in found.items():
        settled = [one for one in of if one.settled] or of
        first = [s for one in of for s in one.statements if s.first]
        lines.append(
            f"| {name} | {len(of)} | {_mean(one.starts for one in of):.0f} | {_mean(one.settled for one in of):.0%} | "
            f"{_mean(one.risk for one in settled):.1%} | {_mean(one.wrong for one in settled):.1%} | "
            f"{_mean(one.overlooked for one in of):.1%} | {_mean(one.missed for one in of):.1%} | "
            f"{_mean(one.loss for one in of):.2%} | "
            f"{_mean(s.stated for s in first):.2f} | {_mean(s.best for s in first):.2f} |"
        )
    return lines


def risk_table(of: Sequence[Ended]) -> list[str]:
    """Markdown: how often any config was better by more than near_tie, by what the verdict said of that."""
    lines = ["| stated: any config is better | campaigns | mean stated | true |", "|---|---|---|---|"]
    for low, high in pairwise(RISKS):
        inside = [one for one in of if low <= one.overlooked < high]
        if inside:
            stated, true = _mean(one.overlooked for one in inside), _mean(one.missed for one in inside)
            lines.append(f"| {low:g} to {min(high, 1.0):g} | {len(inside)} | {stated:.3f} | {true:.3f} |")
    return lines


def _mean(values: Iterable[float]) -> float:
    of = list(values)
    return math.fsum(of) / len(of)


@click.command()
@click.option("--campaigns", default=100, show_default=True, help="Of each truth.")
@click.option("--from", "first", default=1000, show_default=True, help="The first seed.")
@click.option("--truth", "names", multiple=True, type=click.Choice(list(TRUTHS)), help="Default: all.")
@click.option(
    "--out", type=click.Path(path_type=Path), help="One JSON line a campaign; those it has are not run again."
)
def main(campaigns: int, first: int, names: Sequence[str], out: Path | None) -> None:
    """Print a table of all truths, then how stated and true P(best) agree for each."""
    known = _known(out)
    found: dict[str, list[Ended]] = {}
    for seed in range(first, first + campaigns):
        for name in names or tuple(TRUTHS):
            if (name, seed) not in known:
                known[name, seed] = campaign(TRUTHS[name], seed)
                _keep(out, name, seed, known[name, seed])
            found.setdefault(name, []).append(known[name, seed])
    click.echo("\n".join(table(found)))
    every = [one for of in found.values() for one in of]
    click.echo("\n" + "\n".join(risk_table(every)))
    click.echo("\nAll:\n" + "\n".join(report([s for one in every for s in one.statements])))
    for name, of in found.items():
        click.echo(f"\n{name}:\n" + "\n".join(report([s for one in of for s in one.statements])))


def _known(out: Path | None) -> dict[tuple[str, int], Ended]:
    lines = out.read_text(encoding="utf-8").splitlines() if out is not None and out.exists() else []
    found = {}
    for row in map(json.loads, lines):
        statements = tuple(Statement(**s) for s in row["ended"].pop("statements"))
        found[row["truth"], row["seed"]] = Ended(**row["ended"], statements=statements)
    return found


def _keep(out: Path | None, name: str, seed: int, ended: Ended) -> None:
    if out is not None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"truth": name, "seed": seed, "ended": asdict(ended)}) + "\n")


if __name__ == "__main__":
    # Matrices of a hundred rows: more threads only get into each other's way.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    main()
