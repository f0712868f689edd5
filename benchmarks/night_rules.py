"""False alarms and found steps of nightly rules, over simulated quarters of 90 nights x 50 series.

    python -m benchmarks.night_rules [--quick] [--luck 0,0.5,1,2] [--levels 10] [--configs 5] [--worlds 3] [--futures 3]
        [--common] [--otava PYTHON] [--otava-worlds 1] [--seed 1]

`--luck`: sd, in percent, of what all pairs of a config (`--common`: of all configs) share in a night. `--otava` is the
Python of an environment with apache-otava, made by:
    python3.11 -m venv /tmp/otava && /tmp/otava/bin/pip install --no-deps apache-otava==0.8.0 && \\
    /tmp/otava/bin/pip install numpy scipy

An alarm says that a series got worse. Alarms of a series less than 7 nights apart are one. False alarms are those of 90
nights without a change. The same past goes on in other futures in which a step comes in night 60 in all series of three
configs (3, 5 and 8 % in turn): found means an alarm in its first or second night, and the delay is the median over
those found within 8 nights. All but the numbers is the product's own code, and every rule sees the same numbers.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import click
import numpy as np

from benchmarks.simulated_nights import CONFIGS, LEVELS, Quarter, World
from orchestrator.history.history_changes import changes
from orchestrator.nights.night import Verdict

NIGHTS, STEP_AT, LATEST, RECENT = 90, 60, 8, 7
STEPS = (0.03, 0.05, 0.08)
TYPICAL_SHARE, TYPICAL_NIGHTS = 0.10, 10

# (series of log values, nights to judge) -> which of those nights give an alarm, by series id
Alarms = dict[str, set[int]]
Logs = Mapping[str, Sequence[float]]


def tonight_alarms(quarter: Quarter, *, alone: bool = False) -> Alarms:
    """Nights that told a regression; `alone`: by their own pairs, without the night before."""
    found: Alarms = {series_id: set() for series_id in quarter.raw}
    for night, seen in enumerate(quarter.history):
        for one in seen.of(Verdict.REGRESSED):
            if not alone or "two nights" not in one.reason:
                found[one.key.series_id].add(night)
    return found


def history_alarms(ratios: Logs, nights: range) -> Alarms:
    """A worsening among the change points of the last nights, sure over all series."""
    found: Alarms = {series_id: set() for series_id in ratios}
    for night in nights:
        for series_id, own in changes({name: values[: night + 1] for name, values in ratios.items()}).items():
            if any(c.sure and c.point.difference < 0 and c.point.index > night - RECENT for c in own):
                found[series_id].add(night)
    return found


def typical_alarms(logs: Logs, nights: range) -> Alarms:
    """10 % below the mean of the 10 nights before."""
    found: Alarms = {series_id: set() for series_id in logs}
    for series_id, values in logs.items():
        speeds = np.exp(values)
        for night in nights:
            before = speeds[max(0, night - TYPICAL_NIGHTS) : night]
            if len(before) == TYPICAL_NIGHTS and speeds[night] < (1 - TYPICAL_SHARE) * before.mean():
                found[series_id].add(night)
    return found


OTAVA = """
import json, sys
from otava.analysis import compute_change_points
task = json.load(open(sys.argv[1]))
found = {}
for name, values in task["series"].items():
    found[name] = []
    for night in task["nights"]:
        points, _ = compute_change_points(values[:night + 1], 50, task["p"], task["magnitude"])
        if any(p.index > night - 7 and p.stats.mean_2 < p.stats.mean_1 for p in points):
            found[name].append(night)
json.dump(found, sys.stdout)
"""


def otava_alarms(python: str, p: float, magnitude: float) -> Callable[[Logs, range], Alarms]:
    """A worsening among otava's change points of the last nights; of ratios, not of their logarithms."""

    def alarms(logs: Logs, nights: range) -> Alarms:
        series = {name: [float(v) for v in np.exp(values)] for name, values in logs.items()}
        task = {"series": series, "nights": list(nights), "p": p, "magnitude": magnitude}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "task.json"
            file.write_text(json.dumps(task))
            said = subprocess.run([python, "-c", OTAVA, str(file)], check=True, capture_output=True, text=True)
        return {name: set(found) for name, found in json.loads(said.stdout).items()}

    return alarms


def both(one: Alarms, other: Alarms) -> Alarms:
    return {name: one[name] | other[name] for name in one}


def episodes(nights: set[int]) -> int:
    """Alarms less than RECENT nights apart are one."""
    ordered = sorted(nights)
    return sum(1 for i, night in enumerate(ordered) if not i or night - ordered[i - 1] >= RECENT)


class Score:
    """What a rule did over all worlds."""

    def __init__(self) -> None:
        self.false: list[int] = []
        self.delays: dict[float, list[int | None]] = {step: [] for step in STEPS}

    def null(self, alarms: Alarms) -> None:
        self.false += [episodes(nights) for nights in alarms.values()]

    def stepped(self, world: World, alarms: Alarms) -> None:
        for config, step in world.steps.items():
            for key in world.keys(config):
                after = [n - STEP_AT for n in sorted(alarms[key.series_id]) if 0 <= n - STEP_AT < LATEST]
                self.delays[step].append(after[0] if after else None)

    def row(self, name: str) -> str:
        cells = [name, f"{np.mean(self.false):.3f} ({sum(self.false)} of {len(self.false)})"]
        for delays in self.delays.values():
            early = sum(1 for d in delays if d is not None and d < 2) / max(len(delays), 1)
            found = [d for d in delays if d is not None]
            late = f", {np.median(found) + 1:.0f} n" if found else ""
            cells.append(f"{early:.2f} ({len(found) / max(len(delays), 1):.2f}{late})")
        return f"| {' | '.join(cells)} |"


ALONE, TONIGHT, HISTORY = "one night alone", "tonight's verdict: alone, or with the night before", "history"
ALL = "**tonight's verdict or history**"


def our_alarms(quarter: Quarter, nights: range) -> dict[str, Alarms]:
    """Those of the product."""
    tonight, history = tonight_alarms(quarter), history_alarms(night_ratios(quarter), nights)
    alone = tonight_alarms(quarter, alone=True)
    return {ALONE: alone, TONIGHT: tonight, HISTORY: history, ALL: both(tonight, history)}


def rivals_of(otava: str | None) -> dict[str, tuple[str, Callable[[Logs, range], Alarms]]]:
    """By name: what they are fed, and their alarms."""
    found: dict[str, tuple[str, Callable[[Logs, range], Alarms]]] = {
        "10 % below the mean of 10 nights, raw speeds": ("raw", typical_alarms),
        "the same, ratios to the reference": ("ratio", typical_alarms),
    }
    if otava:
        found["otava p .001 and 3 %, ratios"] = ("ratio", otava_alarms(otava, 0.001, 0.03))
        found["otava p .001, ratios"] = ("ratio", otava_alarms(otava, 0.001, 0.0))
        found["otava p .001 (its default), raw speeds"] = ("raw", otava_alarms(otava, 0.001, 0.0))
    return found


class Worlds:
    """Scores of all rules over worlds of one luck, and what the nights without a change cost."""

    def __init__(self, otava: str | None, otava_worlds: int) -> None:
        self.rivals, self._otava_worlds = rivals_of(otava), otava_worlds
        self.scores = {name: Score() for name in (ALONE, TONIGHT, HISTORY, ALL, *self.rivals)}
        self.worlds = self.more = self.open = self.nights = self.config_nights = 0

    def add(self, world: World, futures: int) -> None:
        """A world without a change, and `futures` of it in which configs get slower."""
        null = Quarter(world).run(NIGHTS)
        for name, alarms in self._alarms(null, range(NIGHTS)).items():
            self.scores[name].null(alarms)
        for future in range(futures):
            steps = {i: STEPS[(i + future) % len(STEPS)] for i in range(min(len(STEPS), world.configs))}
            ahead = null.ahead(steps=steps, step_at=STEP_AT, future=future + 1).run(STEP_AT + LATEST)
            for name, alarms in self._alarms(ahead, range(STEP_AT, STEP_AT + LATEST)).items():
                self.scores[name].stepped(ahead.world, alarms)
        self.worlds += 1
        verdicts = [night.verdict for night in null.history[10:]]
        self.open += sum(1 for v in verdicts if v is Verdict.INCONCLUSIVE)
        self.nights += len(verdicts)
        self.more += null.more_pairs
        self.config_nights += NIGHTS * world.configs

    def _alarms(self, quarter: Quarter, nights: range) -> dict[str, Alarms]:
        raw = {name: [float(np.log(v)) for v in values] for name, values in quarter.raw.items()}
        found, ratios = our_alarms(quarter, nights), night_ratios(quarter)
        for name, (fed, alarms) in self.rivals.items():
            if not name.startswith("otava") or self.worlds < self._otava_worlds:
                found[name] = alarms(ratios if fed == "ratio" else raw, nights)
        return found

    @property
    def cost(self) -> str:
        return (
            f"without a change {self.more / self.config_nights:.0%} of configs a night needed 3 more pairs, "
            f"{self.open / self.nights:.1%} of nights from the 11th on stayed inconclusive"
        )


@click.command()
@click.option("--luck", default="0,0.5,1,2", show_default=True, metavar="PERCENT,...")
@click.option("--common", is_flag=True, help="All configs of a night share its luck.")
@click.option("--configs", type=int, default=CONFIGS, show_default=True)
@click.option("--levels", type=int, default=LEVELS, show_default=True, help="Load levels, that is series, of a config.")
@click.option("--worlds", type=int, default=3, show_default=True)
@click.option("--futures", type=int, default=3, show_default=True, help="Of each world, with steps.")
@click.option("--otava", metavar="PYTHON", help="Compare with otava in this environment.")
@click.option("--otava-worlds", type=int, default=1, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--quick", is_flag=True, help="One world of 0.5 %, without otava.")
def main(  # noqa: PLR0913, PLR0917
    luck: str, common: bool, configs: int, levels: int, worlds: int, futures: int, otava: str | None,
    otava_worlds: int, seed: int, quick: bool,
) -> None:  # fmt: skip
    """Print the table of RESULTS.md."""
    if quick:
        luck, worlds, futures, otava = "0.5", 1, 1, None
    click.echo("| luck | rule | false alarms a series in 90 nights | 3 % in 2 nights (in 8, delay) | 5 % | 8 % |")
    click.echo("|---|---|---|---|---|---|")
    costs = []
    for sd in map(float, luck.split(",")):
        began, tried = time.monotonic(), Worlds(otava, otava_worlds)
        for i in range(worlds):
            tried.add(World(seed + i, configs, levels, luck=sd / 100, common=common), futures)
            click.echo(f"luck {sd:g} %, world {i + 1} of {worlds}, {time.monotonic() - began:.0f} s", err=True)
            for name, score in tried.scores.items():
                click.echo(score.row(name), err=True)
        for name, score in tried.scores.items():
            click.echo(f"| {sd:g} % {score.row(name)}")
        costs.append(f"Luck {sd:g} %: {tried.cost}.")
    click.echo("\n".join(costs))


def night_ratios(quarter: Quarter) -> dict[str, list[float]]:
    """Mean log ratios by series id."""
    ratios: dict[str, list[float]] = {name: [] for name in quarter.raw}
    for night in quarter.history:
        for one in night.series:
            ratios[one.key.series_id].append(one.difference or 0.0)
    return ratios


if __name__ == "__main__":
    main()
