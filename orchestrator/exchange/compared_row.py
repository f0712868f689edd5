"""Two sides of a comparison, point by point: ratios with intervals, and what they say. Pure.

For each metric, workload and load level the trials of all matched configs of both sides are estimated together, on the
log scale, as a ranking estimates its configs (estimates.py): log y = config of a side + host + error. The ratio of a
pair is the difference d of its two means, with the interval d +- t(df) * error. What the trials cannot show is assumed
and added to the error: that two starts differ, where there is one of each; that two hosts differ, where none connects
the two of a pair (such pairs have a fit of their own, without hosts). p is two-sided for d = 0; q is p controlled for
false discoveries over the whole comparison (Benjamini and Hochberg 1995).

better, worse: q at most 0.05, and the estimate beyond the floor. same: the interval lies within the floor, or the
difference is sure and below it. open: the data do not say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from orchestrator.estimation.estimates import Estimates, Kind, estimate, parts_of
from orchestrator.estimation.false_discoveries import false_discoveries
from orchestrator.estimation.student import quantile_t, share_t
from orchestrator.exchange.compared_side import Match, Side
from orchestrator.objectives.aim import Observation, PointValue
from orchestrator.points.batch_means import WithinRun
from orchestrator.points.metric_names import METRICS, Metric
from orchestrator.trial import LoadLevel

CONFIDENCE = 0.95
DISCOVERIES = 0.05
# Of what a start yields: caches hardly differ between two starts, times of starts do.
KV_FLOOR, START_FLOOR = 0.01, 0.10
START = Metric("s", "min", "seconds from the launch of the server until it served")
KV_TOKENS = Metric("tok", "max", "tokens that the KV cache holds")
DEFAULT_METRICS = (
    "output_throughput_tok_s", "goodput_rps", "ttft_p50_ms", "ttft_p95_ms", "tpot_p50_ms", "tpot_p95_ms", "e2e_p50_ms",
    "accept_length", "joules_per_output_token",
)  # fmt: skip
Place = tuple[str, LoadLevel]


class Standing(StrEnum):
    """Where the second stands against the first."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One metric of a matched config at one place. `ratio` is second / first, with its interval; None where nothing is
    known of the spread. `kind`: what the interval comes from. `trials` of each side. `hosts_differ`: what their hosts
    differ by is in the ratio. `config`: the label of the match. `workload` and `level` are empty for facts of starts.
    """

    metric: str
    config: str
    workload: str
    level: str
    first: float
    second: float
    maximize: bool
    floor: float
    kind: Kind
    trials: tuple[int, int]
    ratio: float
    low: float | None = None
    high: float | None = None
    p: float | None = None
    q: float | None = None
    hosts_differ: bool = False
    standing: Standing = Standing.OPEN
    reason: str = ""

    @property
    def unit(self) -> str:
        return START.unit if self.metric == "start_s" else (METRICS.get(self.metric) or KV_TOKENS).unit

    @property
    def strength(self) -> tuple[float, float]:
        """Sorts the surest and largest difference first."""
        return (1.0 if self.q is None else self.q, -abs(math.log(self.ratio)))

    def as_json(self) -> dict[str, Any]:
        names = ("metric", "unit", "config", "workload", "level", "first", "second", "ratio", "low", "high", "p", "q",
                 "kind", "floor", "hosts_differ", "reason")  # fmt: skip
        told = {name: getattr(self, name) for name in names}
        direction = "maximize" if self.maximize else "minimize"
        return told | {"direction": direction, "trials": list(self.trials), "standing": self.standing.value}


@dataclass(frozen=True, slots=True)
class Doubt:
    """Shares: `floor`, below which a difference does not matter; what starts of one server on one host, and hosts of
    one class, are assumed to differ by (standard deviations) where the trials cannot show it.
    """

    floor: float = 0.02
    start_noise: float = 0.025
    host_spread: float = 0.05


@dataclass(frozen=True, slots=True)
class _Group:
    """Observations of one metric at one place, configs as "1:id" and "2:id", and errors of single trials."""

    metric: str
    place: Place
    maximize: bool
    seen: list[Observation] = field(default_factory=list)
    within: dict[tuple[str, str], WithinRun] = field(default_factory=dict)

    def add(self, side: int, value: PointValue) -> None:
        found = value.metrics.get(self.metric)
        if found is None or found <= 0:
            return
        config, trial = f"{side}:{value.config_id}", f"{side}:{value.trial_id or value.repeat}"
        self.seen.append(Observation(config, trial, value.host, found))
        if (error := value.within_run.get(self.metric)) is not None:
            self.within[config, trial] = error


def compared_rows(
    first: Side, second: Side, matches: Sequence[Match], pairs: dict[str, str], metrics: Iterable[str], doubt: Doubt
) -> list[ComparedRow]:
    """Rows of points, not yet judged. `pairs`: workload of the first -> of the second."""
    rows: list[ComparedRow] = []
    own, others = _by_place(first), _by_place(second)
    for metric in metrics:
        for place in own:
            if place[0] not in pairs:
                continue
            group = _Group(metric, place, METRICS[metric].direction == "max")
            for side, values in ((1, own[place]), (2, others.get((pairs[place[0]], place[1]), ()))):
                for value in values:
                    group.add(side, value)
            rows += _rows(group, first, second, matches, doubt)
    return rows


def _by_place(side: Side) -> dict[Place, list[PointValue]]:
    """Its values that count, and all its places, in their order."""
    found: dict[Place, list[PointValue]] = {}
    for value in side.values:
        own = found.setdefault((value.workload, value.level), [])
        if not value.void_reasons and not value.spared:
            own.append(value)
    return found


def start_rows(first: Side, second: Side, matches: Sequence[Match], doubt: Doubt) -> list[ComparedRow]:
    """Rows of starts, not yet judged but for caches. Sizes of the KV cache, and seconds of starts."""
    nowhere = ("", LoadLevel("concurrency", 0))
    starts = _Group("start_s", nowhere, maximize=False)
    for number, side in ((1, first), (2, second)):
        for config in side.configs.values():
            for i, (host, seconds) in enumerate(config.start_s):
                if seconds > 0:
                    starts.seen.append(Observation(f"{number}:{config.config_id}", f"{number}:{i}", host, seconds))
    found = [row for match in matches if (row := _kv_row(first, second, match)) is not None]
    timed = _rows(starts, first, second, matches, replace(doubt, floor=START_FLOOR))
    return [*found, *(replace(row, level="") for row in timed)]


def _kv_row(first: Side, second: Side, match: Match) -> ComparedRow | None:
    """No statistics: what memory leaves hardly varies, so all starts of the one must be beyond those of the other."""
    a, b = first.configs[match.first], second.configs[match.second]
    if not a.kv_tokens or not b.kv_tokens:
        return None
    middle = [sorted(side.kv_tokens)[len(side.kv_tokens) // 2] for side in (a, b)]
    ratio = middle[1] / middle[0]
    low, high = min(b.kv_tokens) / max(a.kv_tokens), max(b.kv_tokens) / min(a.kv_tokens)
    standing, reason = Standing.OPEN, "starts of one side differ by more than the sides do"
    if high < 1 - KV_FLOOR:
        standing, reason = Standing.WORSE, "smaller at every start"
    elif low > 1 + KV_FLOOR:
        standing, reason = Standing.BETTER, "larger at every start"
    elif low >= 1 - KV_FLOOR and high <= 1 + KV_FLOOR:
        standing, reason = Standing.SAME, f"within {KV_FLOOR:.0%} at every start"
    return ComparedRow(
        "kv_tokens", _label(first, second, match), "", "", middle[0], middle[1], True, KV_FLOOR, "replicates",
        (len(a.kv_tokens), len(b.kv_tokens)), ratio, low, high, standing=standing, reason=reason,
    )  # fmt: skip


def _label(first: Side, second: Side, match: Match) -> str:
    a, b = first.configs[match.first].label, second.configs[match.second].label
    return a if a == b or match.how in {"same settings", "by name"} else f"{a} / {b}"


def _rows(group: _Group, first: Side, second: Side, matches: Sequence[Match], doubt: Doubt) -> list[ComparedRow]:
    there = {seen.config_id for seen in group.seen}
    measured = [m for m in matches if {f"1:{m.first}", f"2:{m.second}"} <= there]
    if not measured:
        return []
    wanted = {f"1:{m.first}" for m in measured} | {f"2:{m.second}" for m in measured}
    seen = [s for s in group.seen if s.config_id in wanted]
    parts = parts_of(seen)
    apart = {m for m in measured if parts[f"1:{m.first}"] != parts[f"2:{m.second}"]}
    fits: dict[bool, Estimates] = {}
    hosts: dict[str, set[str]] = {}
    if len(apart) < len(measured):
        fits[False] = estimate(seen, maximize=group.maximize, within=group.within)
    if apart:  # what hosts differ by is assumed, so they have no effect of their own in this fit
        for s in seen:
            hosts.setdefault(s.config_id, set()).add(s.host)
        alike = [replace(s, host="") for s in seen]
        fits[True] = estimate(alike, maximize=group.maximize, within=group.within)
    return [
        _row(group, fits[m in apart], _label(first, second, m), m, doubt, hosts if m in apart else None)
        for m in measured
    ]


def _row(
    group: _Group, found: Estimates, label: str, match: Match, doubt: Doubt, hosts: Mapping[str, set[str]] | None
) -> ComparedRow:
    """`hosts`: of each config, if none connects the two."""
    a, b = f"1:{match.first}", f"2:{match.second}"
    i, j = found.index[a], found.index[b]
    difference = float(found.means[j] - found.means[i])
    workload, level = group.place
    row = ComparedRow(
        metric=group.metric, config=label, workload=workload, level=str(level), first=found.value(a),
        second=found.value(b), maximize=group.maximize, floor=doubt.floor, kind=found.kind,
        trials=(int(found.trials[i]), int(found.trials[j])), ratio=math.exp(difference), hosts_differ=hosts is not None,
    )  # fmt: skip
    if found.kind == "single":
        return replace(row, reason="one value each, and nothing is known of its spread: repeat the measurement")
    error = _error(found, i, j, doubt, hosts=None if hosts is None else (len(hosts[a]), len(hosts[b])))
    half = quantile_t(found.df, 0.5 + CONFIDENCE / 2) * error
    low, high = math.exp(difference - half), math.exp(difference + half)
    return replace(row, low=low, high=high, p=_two_sided(difference, error, found.df))


def _error(found: Estimates, i: int, j: int, doubt: Doubt, hosts: tuple[int, int] | None) -> float:
    """Standard error of the difference of two means, with what is assumed. `hosts`: of each, if they share none."""
    variance = found.error_of_difference(found.config_ids[i], found.config_ids[j]) ** 2
    if found.kind == "within_run":
        variance += doubt.start_noise**2 * sum(1 / found.trials[k] for k in (i, j))
    if hosts is not None:
        variance += doubt.host_spread**2 * sum(1 / n for n in hosts)
    return math.sqrt(variance)


def _two_sided(difference: float, error: float, df: int) -> float:
    if error <= 0:
        return 1.0 if difference == 0 else 0.0
    return 2 * share_t(df, -abs(difference) / error)


def judged(rows: Sequence[ComparedRow]) -> list[ComparedRow]:
    """The rows with q over all of them, and what each says."""
    tested = [i for i, row in enumerate(rows) if row.p is not None]
    if not tested:
        return list(rows)
    q = false_discoveries([p for row in rows if (p := row.p) is not None])
    of_row = dict(zip(tested, q, strict=True))
    return [_judged(row, of_row[i]) if i in of_row else row for i, row in enumerate(rows)]


def _judged(row: ComparedRow, q: float) -> ComparedRow:
    row = replace(row, q=q)
    assert row.low is not None
    assert row.high is not None
    limit = math.log1p(row.floor)
    if row.low >= math.exp(-limit) and row.high <= math.exp(limit):
        return replace(row, standing=Standing.SAME, reason=f"the interval lies within the floor of {row.floor:.1%}")
    if q > DISCOVERIES:
        return replace(row, standing=Standing.OPEN, reason="not told apart: more repeats would tell")
    if abs(math.log(row.ratio)) <= limit:
        return replace(row, standing=Standing.SAME, reason=f"surely different, but by less than {row.floor:.1%}")
    better = (row.ratio > 1) == row.maximize
    return replace(
        row, standing=Standing.BETTER if better else Standing.WORSE, reason=f"beyond the floor of {row.floor:.1%}"
    )
