"""Values of nightly regression: one night, its series, their pairs and verdicts; or a gap with its reason. Pure.

A night compares a pinned reference build with a candidate, in pairs of fresh starts one after the other on one host.
A **series** is one metric of one config at one load level on one class of hosts; it goes on from night to night. Its
value of a night is the mean of d = log(candidate / reference) over the pairs: neither the host nor its slow drift is
in it.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from orchestrator.points.metric_names import RANKABLE, START_S

NIGHT_SCHEMA = 1
# An error of fewer degrees of freedom says nothing, unless the pairs have no more.
_LEAST_DF = 4.0
FEASIBLE = "feasible"


# What the luck of nights is from: nights of the series, of its metric, or nothing yet.
NightSource = Literal["history", "metric", "assumed"]


class Kind(StrEnum):
    """What sort of series: they differ in noise, and in how small a change matters."""

    SPEED = "speed"  # throughput, latencies, goodput: everything that is measured under load
    ACCEPT_LENGTH = "accept_length"
    KV_TOKENS = "kv_tokens"  # the same at every start of one build on one host, but for a little
    START = START_S  # seconds from launch to ready
    FEASIBLE = FEASIBLE  # served, or died with a diagnosis


class Verdict(StrEnum):
    """Of a series, and of a night: the worst of its series, in the order regressed, inconclusive, improved, same."""

    REGRESSED = "regressed"
    IMPROVED = "improved"
    SAME = "same"
    INCONCLUSIVE = "inconclusive"


class End(StrEnum):
    """How a start, or a load on it, ended. died: cannot run, by its diagnosis. failed: broke, which may be chance."""

    SERVED = "served"
    DIED = "died"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class SeriesKey:
    """What a series is of. `config` is the id of the config as it is without a build; facts of a start have neither
    `workload` nor `level`; a level is written as LoadLevel is (`C=16`, `5 req/s`).
    """

    metric: str
    config: str
    workload: str
    level: str
    host_class: str

    @property
    def series_id(self) -> str:
        """12 hex digits, the same in every night and on every machine."""
        parts = (self.metric, self.config, self.workload, self.level, self.host_class)
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]

    @property
    def place(self) -> str:
        """`chat C=16`; empty for a fact of a start."""
        return f"{self.workload} {self.level}".strip()


@dataclass(frozen=True, slots=True)
class Pair:
    """One metric of both members of a pair, in the metric's own unit. `candidate_first`: which was measured first."""

    host: str
    candidate_first: bool
    reference: float
    candidate: float

    @property
    def log_ratio(self) -> float | None:
        """log(candidate / reference); None where one of them is not positive, or no number."""
        if 0 < self.reference < math.inf and 0 < self.candidate < math.inf:
            return math.log(self.candidate / self.reference)
        return None


@dataclass(frozen=True, slots=True)
class StartPair:
    """How both members of a pair ended. `diagnosis` and `evidence` (a log line) are of the candidate where it did not
    serve, else of the reference.
    """

    host: str
    candidate_first: bool
    reference: End
    candidate: End
    diagnosis: str = ""
    evidence: str = ""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a night brought of one series, before it is judged: `pairs` of a metric, `starts` of feasibility.

    `label` is how people call the config. `missing` says why pairs have no value, where some have none.
    """

    key: SeriesKey
    label: str
    pairs: tuple[Pair, ...] = ()
    starts: tuple[StartPair, ...] = ()
    missing: str = ""

    @property
    def kind(self) -> Kind:
        return kind_of(self.key.metric)

    @property
    def log_ratios(self) -> list[float]:
        return [d for pair in self.pairs if (d := pair.log_ratio) is not None]


@dataclass(frozen=True, slots=True)
class Noise:
    """Standard deviation of d of one pair, its degrees of freedom, and what it is from (history, series, metric).
    `night_sd`: of what all pairs of a night share by luck, with the same; nights of the first weeks do not know it.
    """

    sd: float
    df: int
    source: Literal["history", "series", "metric"]
    night_sd: float = 0.0
    night_df: float = 0.0
    night_source: NightSource | None = None

    def error(self, pairs: float) -> float:
        """Standard error of the mean of a night's pairs."""
        return math.sqrt(self._error(pairs)[0])

    def error_df(self, pairs: float) -> float:
        """Its degrees of freedom (Satterthwaite 1946)."""
        return self._error(pairs)[1]

    def _error(self, pairs: float) -> tuple[float, float]:
        """Variance and degrees of freedom. Where almost nothing is known of the luck of nights and tonight's pairs are
        far quieter than what it was taken from, so few would be left that no quantile means anything: then the
        variance is raised by what is not known of it, instead.
        """
        of_pairs, of_night = self.sd**2 / pairs, self.night_sd**2
        if not of_night:
            return of_pairs, self.df
        variance, unknown = of_pairs + of_night, of_pairs**2 / self.df + of_night**2 / self.night_df
        least = min(_LEAST_DF, self.df)
        if variance**2 < least * unknown:
            return math.sqrt(least * unknown), least
        return variance, variance**2 / unknown


@dataclass(frozen=True, slots=True)
class SeriesNight:
    """One series in one night, judged.

    `difference` is the mean d, with the metric's own sign (below 0: the candidate's value is smaller), `low` and `high`
    its interval; all None where there are no pairs. `p`: how likely so bad a difference is if nothing changed; `q`: the
    same over all series of the night. `finds` is the smallest worsening (a share) that these pairs could tell.
    `too_noisy`: even with the most pairs, so much noise could not tell "same"; such a series does not decide a night
    unless it regressed. `floor` is a share. `expected`: the shift that people expect (a log ratio); the verdict is
    on what is beyond it, `difference` has all.
    """

    measured: Measured
    verdict: Verdict
    reason: str
    floor: float = 0.0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    p: float | None = None
    q: float | None = None
    noise: Noise | None = None
    finds: float | None = None
    too_noisy: bool = False
    evidence: tuple[str, ...] = ()
    expected: float = 0.0

    @property
    def key(self) -> SeriesKey:
        return self.measured.key

    @property
    def kind(self) -> Kind:
        return self.measured.kind

    @property
    def worse(self) -> float | None:
        """By which share the candidate is worse; below 0 where it is better."""
        if self.difference is None:
            return None
        return -math.expm1(self.difference) * better_sign(self.key.metric)


@dataclass(frozen=True, slots=True)
class Build:
    """A server build: what it was called (image, release, commit), and facts that change speeds: `engine` (the kind:
    sglang, emulator, ...), `sglang`, `torch`, `cuda`, `kernels` and the like of its servers, `image`, `command`,
    `arguments`, `settings`, `environment`. A fact that is not known is left out.
    """

    name: str
    facts: tuple[tuple[str, str], ...] = ()

    @property
    def is_emulated(self) -> bool:
        """Whether its servers were models of servers."""
        return dict(self.facts).get("engine") == "emulator"


@dataclass(frozen=True, slots=True)
class NightHost:
    """A host that measured; facts: `driver`, `gpu`, ..."""

    name: str
    host_class: str
    facts: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Why a night could not be measured. It is never a pass."""

    reason: str


@dataclass(frozen=True, slots=True)
class Night:
    """One night as the history keeps it. `at` is UTC in ISO form; `run` the run's directory or id, empty if there is
    none. A gap has no series that count. `cut`: why it has fewer pairs than would have been made, and how many; empty
    where nothing cut it short.
    """

    at: str
    scenario: str
    run: str
    reference: Build
    candidate: Build
    hosts: tuple[NightHost, ...] = ()
    series: tuple[SeriesNight, ...] = ()
    gap: Gap | None = None
    cut: str = ""

    @property
    def night_id(self) -> str:
        """`20261130T021500Z-<6 hex digits of all that names it>`; sorts by time."""
        mark = hashlib.sha256(json.dumps((self.at, self.scenario, self.run)).encode()).hexdigest()[:6]
        return f"{stamp_of(self.at)}-{mark}"

    @property
    def verdict(self) -> Verdict | None:
        """None for a gap."""
        return None if self.gap else night_verdict(self.series)

    def of(self, verdict: Verdict) -> tuple[SeriesNight, ...]:
        return tuple(series for series in self.series if series.verdict is verdict)


def last_measured(nights: Sequence[Night]) -> Night | None:
    """The night before, if these are the earlier ones, oldest first: a gap says nothing."""
    return next((night for night in reversed(nights) if night.gap is None), None)


def night_verdict(series: tuple[SeriesNight, ...]) -> Verdict:
    """A regression decides; else what is open, except where noise would always leave it open. Where that is all that
    was measured under load, the night is inconclusive: it would be a pass of servers whose speed nobody knows.
    """
    verdicts = {one.verdict for one in series}
    if Verdict.REGRESSED in verdicts:
        return Verdict.REGRESSED
    if any(one.verdict is Verdict.INCONCLUSIVE and not one.too_noisy for one in series):
        return Verdict.INCONCLUSIVE
    speeds = {one.verdict for one in series if one.kind is Kind.SPEED}
    if speeds == {Verdict.INCONCLUSIVE}:
        return Verdict.INCONCLUSIVE
    if Verdict.IMPROVED in verdicts:
        return Verdict.IMPROVED
    return Verdict.SAME if Verdict.SAME in verdicts else Verdict.INCONCLUSIVE


def stamp_of(at: str) -> str:
    """`20261130T021500Z` of a UTC time in ISO form; sorts by time."""
    return "".join(c for c in at[:19] if c.isdigit() or c == "T") + "Z"


def kind_of(metric: str) -> Kind:
    return Kind(metric) if metric in set(Kind) else Kind.SPEED


def better_sign(metric: str) -> float:
    """1 where more is better, -1 where less is; KeyError for a metric that has no better side or is none."""
    if metric in {FEASIBLE, START_S}:
        return 1.0 if metric == FEASIBLE else -1.0
    direction = RANKABLE[metric].direction
    if direction == "none":
        raise KeyError(metric)
    return 1.0 if direction == "max" else -1.0


def unit_of(metric: str) -> str:
    """As the table of metrics has it."""
    return {FEASIBLE: "", START_S: "s"}[metric] if metric in {FEASIBLE, START_S} else RANKABLE[metric].unit
