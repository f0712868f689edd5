"""False alarms and found steps where whole nights have luck of their own, with and without the rules knowing of it.

    python -m benchmarks.night_luck [--quick] [--luck 0,0.5,1,2] [--common] [--worlds 4] [--seed 1]

The worlds of `benchmarks/night_rules.py`, where all pairs of a config (`--common`: of all configs) share in each night
a luck of this sd, in percent. "between pairs" are the rules of single nights as they are if nights had none.
"""

from __future__ import annotations

import click

from benchmarks.night_rules import (
    LATEST,
    STEP_AT,
    STEPS,
    Alarms,
    Score,
    both,
    history_alarms,
    night_ratios,
    tonight_alarms,
)
from benchmarks.simulated_nights import Quarter
from orchestrator.nights.night_rules import NightRules

BLIND = NightRules(luck_nights=0, assumed_luck=0.0)
BEFORE, TONIGHT, HISTORY, BOTH = "between pairs", "and of nights", "history", "**and of nights, or history**"


def judged(quarter: Quarter, nights: range) -> dict[str, Alarms]:
    """Alarms of the rules that the quarter has."""
    quarter.run()
    tonight = tonight_alarms(quarter)
    if quarter.rules is BLIND:
        return {BEFORE: tonight}
    history = history_alarms(night_ratios(quarter), nights)
    return {TONIGHT: tonight, HISTORY: history, BOTH: both(tonight, history)}


@click.command()
@click.option("--luck", default="0,0.5,1,2", show_default=True, metavar="PERCENT,...")
@click.option("--common", is_flag=True, help="All configs of a night share its luck.")
@click.option("--worlds", type=int, default=4, show_default=True)
@click.option("--seed", type=int, default=1, show_default=True)
@click.option("--quick", is_flag=True, help="One world of 0 and 1 %.")
def main(luck: str, common: bool, worlds: int, seed: int, quick: bool) -> None:
    """Print the table of RESULTS.md."""
    worlds, luck = (1, "0,1") if quick else (worlds, luck)
    click.echo("| luck | rules | false alarms a series in 90 nights | 3 % in 2 nights (in 8, delay) | 5 % | 8 % |")
    click.echo("|---|---|---|---|---|---|")
    for sd in map(float, luck.split(",")):
        scores = {name: Score() for name in (BEFORE, TONIGHT, HISTORY, BOTH)}
        for world in range(seed, seed + worlds):
            for rules in (BLIND, NightRules()):
                null = Quarter(world, 90, luck=sd / 100, common=common, rules=rules)
                for name, alarms in judged(null, range(90)).items():
                    scores[name].null(alarms)
                stepped = Quarter(
                    world + 10_000, STEP_AT + LATEST, STEPS, STEP_AT, luck=sd / 100, common=common, rules=rules
                )
                for name, alarms in judged(stepped, range(STEP_AT, STEP_AT + LATEST)).items():
                    scores[name].stepped(alarms)
            click.echo(f"luck {sd:g} %, world {world}", err=True)
            for name, score in scores.items():
                click.echo(f"| {sd:g} % {score.row(name)}", err=True)
        for name, score in scores.items():
            click.echo(f"| {sd:g} % {score.row(name)}")


if __name__ == "__main__":
    main()
