"""False alarms and found steps of nightly rules, over simulated quarters of 90 nights x 50 series.

    python -m benchmarks.night_rules [--quick] [--worlds 20] [--otava PYTHON] [--otava-worlds 3] [--seed 1]

`--otava` is the Python of an environment with apache-otava, made by:
    python3.11 -m venv /tmp/otava && /tmp/otava/bin/pip install --no-deps apache-otava==0.8.0 && \\
    /tmp/otava/bin/pip install numpy scipy

An alarm says that a series got worse. Alarms of a series less than 7 nights apart are one. A step comes in night 60 in
the 10 series of each of three configs (3, 5 and 8 %); found means an alarm in its first or second night, and the delay
is the median over those found within 8 nights. All but the numbers is the product's own code.
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

from benchmarks.simulated_nights import Quarter, keys
from orchestrator.history.history_changes import changes
from orchestrator.nights.night import Verdict

STEP_AT, LATEST, RECENT = 60, 8, 7
STEPS = {0: 0.03, 1: 0.05, 2: 0.08}
TYPICAL_SHARE, TYPICAL_NIGHTS = 0.10, 10

# (series of log values, nights to judge) -> which of those nights give an alarm, by series id
Alarms = dict[str, set[int]]
Logs = Mapping[str, Sequence[float]]


def tonight_alarms(quarter: Quarter) -> Alarms:
    """Nights whose own pairs told a regression."""
    found: Alarms = {series_id: set() for series_id in quarter.raw}
    for night, seen in enumerate(quarter.history):
        for one in seen.of(Verdict.REGRESSED):
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
        self.delays: dict[float, list[int | None]] = {step: [] for step in STEPS.values()}

    def null(self, alarms: Alarms) -> None:
        self.false += [episodes(nights) for nights in alarms.values()]

    def stepped(self, alarms: Alarms) -> None:
        for config, step in STEPS.items():
            for key in keys(config):
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


@click.command()
@click.option("--worlds", type=int, default=20, show_default=True)
@click.option("--otava", metavar="PYTHON", help="Compare with otava in this environment.")
@click.option("--otava-worlds", type=int, default=3, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--quick", is_flag=True, help="One world, without otava.")
def main(worlds: int, otava: str | None, otava_worlds: int, seed: int, quick: bool) -> None:
    """Print the table of RESULTS.md."""
    if quick:
        worlds, otava = 1, None
    rivals: dict[str, tuple[str, Callable[[Logs, range], Alarms]]] = {
        "10 % below the mean of 10 nights, raw speeds": ("raw", typical_alarms),
        "the same, ratios to the reference": ("ratio", typical_alarms),
    }
    if otava:
        rivals["otava p .001 (its default), raw speeds"] = ("raw", otava_alarms(otava, 0.001, 0.0))
        rivals["otava p .001, ratios"] = ("ratio", otava_alarms(otava, 0.001, 0.0))
        rivals["otava p .001 and 3 %, ratios"] = ("ratio", otava_alarms(otava, 0.001, 0.03))
    ours = {name: Score() for name in ("ours: tonight", "ours: history", "**ours: tonight or history**")}
    scores = ours | {name: Score() for name in rivals}
    began, more, open_, decided = time.monotonic(), 0, 0, 0
    for world in range(worlds):
        null = Quarter(seed + world, 90)
        stepped = Quarter(seed + 10_000 + world, STEP_AT + LATEST, STEPS, STEP_AT)
        for quarter, nights in ((null, range(90)), (stepped, range(STEP_AT, STEP_AT + LATEST))):
            quarter.run()
            ratios, raw = _logs(quarter)
            tonight, history = tonight_alarms(quarter), history_alarms(ratios, nights)
            found = dict(zip(ours, (tonight, history, both(tonight, history)), strict=True))
            for name, (fed, alarms) in rivals.items():
                if name.startswith("otava") and world >= otava_worlds:
                    continue
                found[name] = alarms(ratios if fed == "ratio" else raw, nights)
            for name, own in found.items():
                (scores[name].null if quarter is null else scores[name].stepped)(own)
        more += null.more_pairs
        verdicts = [night.verdict for night in null.history[10:]]
        open_ += sum(1 for v in verdicts if v is Verdict.INCONCLUSIVE)
        decided += len(verdicts)
        click.echo(f"world {world + 1} of {worlds}, {time.monotonic() - began:.0f} s", err=True)
        for name, score in scores.items():
            click.echo(score.row(name), err=True)
    click.echo("| rule | false alarms a series in 90 nights | 3 % in 2 nights (in 8, delay) | 5 % | 8 % |")
    click.echo("|---|---|---|---|---|")
    for name, score in scores.items():
        click.echo(score.row(name))
    click.echo(
        f"Without a change, {more / (worlds * 90 * 5):.0%} of configs a night needed 3 more pairs; "
        f"{open_ / decided:.1%} of nights (from the 11th on) stayed inconclusive."
    )


def night_ratios(quarter: Quarter) -> dict[str, list[float]]:
    """Mean log ratios by series id."""
    ratios: dict[str, list[float]] = {name: [] for name in quarter.raw}
    for night in quarter.history:
        for one in night.series:
            ratios[one.key.series_id].append(one.difference or 0.0)
    return ratios


def _logs(quarter: Quarter) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """(mean log ratios, log speeds) by series id."""
    speeds = {name: [float(np.log(v)) for v in values] for name, values in quarter.raw.items()}
    return night_ratios(quarter), speeds


if __name__ == "__main__":
    main()
