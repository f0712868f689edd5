"""Configs of which none is better in everything, and how sure it is that a config is one of them. Pure.

A config is off the front if another is at least as good on all axes and better on one. With noise the front of the
estimates has wrong members and lacks right ones, so each config gets the share of 1,000 draws in which it is on it:
draws of the estimates of all axes together, with the covariance that their residuals have in the same trials.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from orchestrator.estimation.estimates import Estimates, estimate
from orchestrator.estimation.student import quantile_t
from orchestrator.estimation.two_way import Floats, Ints
from orchestrator.objectives.aim import Aim, Observation, PointValue, TrialPoints, aim_of, front_aims, observations
from orchestrator.objectives.limits import parse_limit
from orchestrator.objectives.scenario_objective import Front
from orchestrator.rankings.evidence import Evidence

Place = Literal["on", "possible", "dominated", "gated", "absent"]
ORDER: tuple[Place, ...] = ("on", "possible", "dominated", "gated", "absent")
ON, POSSIBLE = 0.8, 0.2
DRAWS = 1000
_CHUNK = 100
# So many configs are compared each with each, for all draws at once.
_FEW = 40
# A config that is so much worse than another on all axes is not drawn: it would be on the front once in many thousands.
_BEYOND_DOUBT = 1 - 1e-5


@dataclass(frozen=True, slots=True)
class FrontRow:
    """One config: a value for each axis, in its unit, and how probable it is on the front (None without repeats).

    `why`: the gate that it failed, or why it has no value.
    """

    config_id: str
    values: tuple[float | None, ...]
    place: Place
    probability: float | None = None
    why: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"config_id": self.config_id, "values": list(self.values), "place": self.place,
                "probability": self.probability, "why": self.why}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ParetoFront:
    """All configs of a run for one front: those on it first, by the first axis."""

    name: str
    aims: tuple[Aim, ...]
    rows: tuple[FrontRow, ...]
    note: str = ""
    host_class: str = ""

    def as_json(self) -> dict[str, Any]:
        axes = [{"metric": str(aim), "direction": "maximize" if aim.maximize else "minimize", "unit": aim.unit}
                for aim in self.aims]  # fmt: skip
        return {"axes": axes, "configs": [row.as_json() for row in self.rows], "note": self.note}


def on_front(points: Floats) -> Any:
    """Which of (n, k) points, larger being better, are on the front.

    The first in lexicographic order is on it, since nothing after it is at least as good on all axes; what it dominates
    is off. So on with the rest.
    """
    kept = np.zeros(len(points), dtype=bool)
    rest = np.lexsort(points.T[::-1])[::-1]
    while len(rest):
        best, values = rest[0], points[rest]
        kept[best] = True
        worse = (values <= points[best]).all(axis=1) & (values < points[best]).any(axis=1)
        worse[0] = True
        rest = rest[~worse]
    return kept


def _times_on_front(drawn: Floats) -> Any:
    """In how many of (draws, n, k) sets each of the n points is on the front."""
    if drawn.shape[1] > _FEW:
        return np.sum([on_front(points) for points in drawn], axis=0)
    others, own = drawn[:, np.newaxis], drawn[:, :, np.newaxis]
    beaten = np.any(np.all(others >= own, axis=3) & np.any(others > own, axis=3), axis=2)
    return np.sum(~beaten, axis=0)


def pareto_front(front: Front, config_ids: Sequence[str], points: Iterable[PointValue], workload: str) -> ParetoFront:
    """The configs by their place. `workload` is the one that counts where front and axis name none."""
    aims = front_aims(front, workload)
    known = set(config_ids)
    evidence = Evidence((p for p in points if p.config_id in known), aims[0])
    whole = [trial for trial in evidence.kept if all(aim.of_trial(trial) is not None for aim in aims)]
    measured = {trial.config_id for trial in whole}
    at = aim_of(front.gated, workload)
    limits = [(limit, at.limited(limit)) for limit in map(parse_limit, front.limits)]
    out: list[tuple[str, Place, str]] = []
    for config_id in config_ids:
        if config_id not in measured:
            out.append((config_id, "absent", _why_absent(config_id, aims, evidence)))
        elif failed := [why for limit, aim in limits if (why := evidence.why_fails(config_id, limit, aim)) is not None]:
            out.append((config_id, "gated", "; ".join(failed)))
    rows = [FrontRow(c, tuple(evidence.value(c, aim) for aim in aims), place, None, why) for c, place, why in out]
    passing = measured - {config_id for config_id, *_ in out}
    found, note = _placed(aims, [trial for trial in whole if trial.config_id in passing])
    return ParetoFront(front.name, aims, tuple(sorted([*found, *rows], key=lambda row: _order(row, aims[0]))), note)


def _placed(aims: tuple[Aim, ...], trials: Sequence[TrialPoints]) -> tuple[list[FrontRow], str]:
    """The configs of these trials, all of which have a value on every axis."""
    if not trials:
        return [], "no config was measured on all axes and passed every gate"
    seen = [observations(aim, trials) for aim in aims]
    fits = [estimate(own, maximize=aim.maximize) for aim, own in zip(aims, seen, strict=True)]
    first = fits[0]
    better = np.column_stack([fit.means if aim.maximize else -fit.means for aim, fit in zip(aims, fits, strict=True)])
    note = "one trial each: how sure the front is cannot be told" if first.df == 0 else ""
    if len(set(first.parts.tolist())) > 1:
        note = "not all configs share hosts, by others either: their places hold for the hosts as they are"
    chances = membership(better, fits, seen) if first.df > 0 else None
    naive = on_front(better)
    rows = []
    for i, config_id in enumerate(first.config_ids):
        chance = None if chances is None else float(chances[i])
        place: Place = "on" if (naive[i] if chance is None else chance >= ON) else "dominated"
        if chance is not None and POSSIBLE <= chance < ON:
            place = "possible"
        rows.append(FrontRow(config_id, tuple(fit.value(config_id) for fit in fits), place, chance))
    return rows, note


def membership(
    better: Floats, fits: Sequence[Estimates], seen: Sequence[Sequence[Observation]], seed: int = 1
) -> Floats:
    """(n,) shares of DRAWS in which each config is on the front. `better`: (n, axes) means, larger being better; the
    trials of all axes are the same.

    Errors of the means are those of the trials, correlated over the axes as their residuals are, through the design
    that all axes share; all over one chi, so that they are multivariate t.
    """
    mixed = _square_root(_residual_covariance(fits, seen))
    signs = np.array([1.0 if fit.maximize else -1.0 for fit in fits])
    widest = max(fits, key=lambda fit: fit.sigma)
    if not widest.sigma > 0:
        return np.asarray(on_front(better), dtype=np.float64)
    own, shared = np.sqrt(widest.own) / widest.sigma, widest.shared / widest.sigma
    which = _candidates(better, own, shared, np.array([fit.sigma for fit in fits]), widest.df)
    rng, counts = np.random.default_rng(seed), np.zeros(len(better))
    for _ in range(DRAWS // _CHUNK):
        errors = rng.standard_normal((_CHUNK, len(which), len(fits))) * own[which][:, None]
        errors += np.einsum("nr,crk->cnk", shared[which], rng.standard_normal((_CHUNK, shared.shape[1], len(fits))))
        errors = errors @ mixed.T * signs / np.sqrt(rng.chisquare(widest.df, _CHUNK) / widest.df)[:, None, None]
        counts[which] += _times_on_front(better[which] + errors)
    return np.asarray(counts / DRAWS)


def _candidates(better: Floats, own: Floats, shared: Floats, sigmas: Floats, df: int) -> Ints:
    """Which configs can be on the front."""
    size = own**2 + (shared**2).sum(axis=1)
    wide = 2 * quantile_t(df, _BEYOND_DOUBT) * np.sqrt(size.max()) * sigmas
    alive = np.ones(len(better), dtype=bool)
    for best in np.flatnonzero(on_front(better)):
        alive &= ~(better < better[best] - wide).all(axis=1)
    return np.flatnonzero(alive)


def _residual_covariance(fits: Sequence[Estimates], seen: Sequence[Sequence[Observation]]) -> Floats:
    """(axes, axes) of what is left of a trial when config and host are taken off."""
    columns = []
    for fit, own in zip(fits, seen, strict=True):
        values = np.array([one.value for one in own])
        values = np.log(values) if fit.scale == "log" else values
        host = {name: i for i, name in enumerate(fit.hosts)}
        effects = fit.host_effects[[host[one.host] for one in own]]
        columns.append(values - fit.means[[fit.index[one.config_id] for one in own]] - effects)
    residuals = np.column_stack(columns)
    return np.asarray(residuals.T @ residuals / fits[0].df)


def _square_root(covariance: Floats) -> Floats:
    """A with A A' the covariance, which may be singular: two axes may say the same."""
    values, vectors = np.linalg.eigh(covariance)
    return np.asarray(vectors * np.sqrt(np.maximum(values, 0.0)))


def _why_absent(config_id: str, aims: tuple[Aim, ...], evidence: Evidence) -> str:
    missing = [aim for aim in aims if evidence.value(config_id, aim) is None]
    return evidence.why_absent(config_id, missing[0]) if missing else "no trial has a value on every axis"


def _order(row: FrontRow, aim: Aim) -> tuple[int, float, str]:
    value = row.values[0]
    return ORDER.index(row.place), 0.0 if value is None else -value if aim.maximize else value, row.config_id


def fronts_json(fronts: Sequence[ParetoFront]) -> Mapping[str, Any]:
    """By name, with the class of hosts behind it where there are several."""
    return {f"{f.name} on {f.host_class}" if f.host_class else f.name: f.as_json() for f in fronts}
