"""Whether a host stayed the same while a block of trials ran on it: its reference config, at the beginning and the end.

A block is what one host measured. Trials of the reference have a `repeat` from 1000 on, even at the beginning of a
block, odd at its end; else they are trials of their config like any other. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from orchestrator.estimation.estimates import estimate
from orchestrator.estimation.student import quantile_t
from orchestrator.objectives.aim import Observation, TrialPoints
from orchestrator.searches.asked_trials import FIRST_REFERENCE

# Standard deviation of one trial where the run itself says nothing of it: what two starts of a server differ by.
ASSUMED_NOISE = 0.02
# Noise floors that a reference may move by chance.
_MOST_FLOORS = 2.0
_FEWEST_DF = 3
_MANY_DF = 1000


@dataclass(frozen=True, slots=True)
class NoiseFloor:
    """What two trials of one config on one host differ by for no reason: standard deviation of the log of their ratio.

    source: "starts" of one config on one host (A/A); "fit" of configs and hosts; "assumed" where neither has enough.
    """

    share: float
    df: int
    source: Literal["starts", "fit", "assumed"]


@dataclass(frozen=True, slots=True)
class Drift:
    """A host that changed: its reference config went from `begin` to `end`. `share` is the change, `floor` the noise.

    `left_out`: other hosts measured all its configs, so that its trials do not count.
    """

    host: str
    config_id: str
    begin: float
    end: float
    share: float
    floor: float
    left_out: bool


def noise_floor(observations: Sequence[Observation]) -> NoiseFloor:
    """From trials of a config on one host if there are enough, else from how well configs and hosts explain all."""
    cells: dict[tuple[str, str], list[float]] = {}
    for seen in observations:
        if seen.value > 0:
            cells.setdefault((seen.config_id, seen.host), []).append(math.log(seen.value))
    repeated = [np.array(values) for values in cells.values() if len(values) > 1]
    df = sum(len(values) - 1 for values in repeated)
    if df >= _FEWEST_DF:
        squares = math.fsum(float(((values - values.mean()) ** 2).sum()) for values in repeated)
        return NoiseFloor(math.sqrt(2 * squares / df), df, "starts")
    fitted = estimate(observations, maximize=True)
    if fitted.df >= _FEWEST_DF and fitted.scale == "log":
        return NoiseFloor(math.sqrt(2) * fitted.sigma, fitted.df, "fit")
    return NoiseFloor(math.sqrt(2) * ASSUMED_NOISE, 0, "assumed")


def repeats_of(trials: Sequence[TrialPoints]) -> dict[tuple[str, str], int]:
    """The `repeat` of each trial by config and trial id."""
    return {(t.config_id, t.trial_id): next(iter(t.points.values())).repeat for t in trials if t.points}


def find_drifts(observations: Sequence[Observation], repeats: Mapping[tuple[str, str], int]) -> tuple[Drift, ...]:
    """The hosts whose reference moved by more than noise, in the order of their first trials."""
    blocks = _references(observations, repeats)
    if not blocks:
        return ()
    floor = noise_floor([seen for seen in observations if _repeat(seen, repeats) < FIRST_REFERENCE])
    # Of many hosts one moves by two floors each time; all of them together are to be accused by chance in 1 of 20 runs.
    by_chance = quantile_t(floor.df or _MANY_DF, 1 - 0.025 / len(blocks))
    limit = floor.share * max(_MOST_FLOORS, by_chance)
    moved: dict[str, Drift] = {}
    for host, (begin, end) in blocks.items():
        if min(begin.value, end.value) > 0 and abs(math.log(end.value / begin.value)) > limit:
            share = end.value / begin.value - 1
            moved[host] = Drift(host, begin.config_id, begin.value, end.value, share, floor.share, left_out=False)
    return _judged(observations, moved)


def _judged(observations: Sequence[Observation], moved: Mapping[str, Drift]) -> tuple[Drift, ...]:
    """Which blocks can be left out, one after the other: what is left must compare all that was compared."""
    left_out: set[str] = set()
    found = []
    for host, drift in moved.items():
        if _covered(observations, left_out, host):
            left_out.add(host)
        found.append(Drift(host, drift.config_id, drift.begin, drift.end, drift.share, drift.floor, host in left_out))
    return tuple(found)


def _covered(observations: Sequence[Observation], gone: Collection[str], host: str) -> bool:
    before = estimate([seen for seen in observations if seen.host not in gone], maximize=True)
    after = estimate([seen for seen in observations if seen.host not in gone and seen.host != host], maximize=True)
    if set(before.config_ids) - set(after.config_ids):
        return False
    parts = {config_id: int(part) for config_id, part in zip(after.config_ids, after.parts, strict=True)}
    joined: dict[int, set[int]] = {}
    for config_id, part in zip(before.config_ids, before.parts, strict=True):
        joined.setdefault(int(part), set()).add(parts[config_id])
    return all(len(now) == 1 for now in joined.values())


def _references(
    observations: Sequence[Observation], repeats: Mapping[tuple[str, str], int]
) -> dict[str, tuple[Observation, Observation]]:
    """By host the first and the last trial of its reference, of hosts that have both of one config."""
    begins: dict[str, Observation] = {}
    ends: dict[str, Observation] = {}
    for seen in observations:
        repeat = _repeat(seen, repeats)
        if repeat >= FIRST_REFERENCE:
            (ends if repeat % 2 else begins)[seen.host] = seen
    both = [host for host in begins if host in ends]
    return {host: (begins[host], ends[host]) for host in both if begins[host].config_id == ends[host].config_id}


def _repeat(seen: Observation, repeats: Mapping[tuple[str, str], int]) -> int:
    return repeats.get((seen.config_id, seen.trial_id), 0)
