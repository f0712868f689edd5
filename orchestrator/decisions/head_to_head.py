"""A winner measured again beside its rivals: paired differences, and what they say of the pick. Pure.

Starts are paired on each host in their order (its first of the one with its first of the other), so that neither the
host nor a slow drift of it is in the difference. A difference is d = log(winner / rival), in the sense of better. Over
n pairs its interval is mean d +- t(n - 1) * s / sqrt(n) (paired t interval).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orchestrator.estimation.student import quantile_t
from orchestrator.objectives.aim import Observation
from orchestrator.plural import plural

LEVEL = 0.95
# Fewer pairs have no spread to speak of.
LEAST_PAIRS = 2


class Standing(StrEnum):
    """Where the winner stands against one rival.

    ahead: better beyond doubt. level: not worse by more than near_tie, beyond doubt. behind: worse by more than
    near_tie, beyond doubt. open: neither can be said with these pairs.
    """

    AHEAD = "ahead"
    LEVEL = "level"
    OPEN = "open"
    BEHIND = "behind"


class Verdict(StrEnum):
    """confirmed: ahead of every rival or level with it; refuted: behind one; open: not told apart from one, or
    something that must be known is not.
    """

    CONFIRMED = "confirmed"
    OPEN = "not_told_apart"
    REFUTED = "refuted"


EXIT_CODES = {Verdict.CONFIRMED: 0, Verdict.REFUTED: 4, Verdict.OPEN: 5}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The winner against a rival: shares by which it is better (0.02 is 2 %), estimate and 95 % interval."""

    rival_id: str
    role: str
    pairs: int
    better: float
    low: float
    high: float
    standing: Standing

    def as_json(self) -> dict[str, Any]:
        return {
            "config_id": self.rival_id,
            "role": self.role,
            "pairs": self.pairs,
            "winner_better": self.better,
            "interval": [self.low, self.high],
            "standing": self.standing.value,
        }


def paired_logs(winner: Sequence[Observation], rival: Sequence[Observation], *, maximize: bool) -> list[float]:
    """log(winner / rival) of every pair, above 0 where the winner is better; a value that is not positive has none.

    Observations are in the order in which they were made.
    """
    by_host: dict[str, tuple[list[float], list[float]]] = {}
    for side, observed in enumerate((winner, rival)):
        for seen in observed:
            by_host.setdefault(seen.host, ([], []))[side].append(seen.value)
    sign = 1.0 if maximize else -1.0
    pairs = (pair for own, other in by_host.values() for pair in zip(own, other, strict=False))
    return [sign * math.log(own / other) for own, other in pairs if own > 0 and other > 0]


def compare(
    rival_id: str,
    winner: Sequence[Observation],
    rival: Sequence[Observation],
    role: str,
    *,
    maximize: bool,
    near_tie: float,
) -> Comparison | None:
    """None where there are fewer than LEAST_PAIRS pairs."""
    logs = paired_logs(winner, rival, maximize=maximize)
    if len(logs) < LEAST_PAIRS:
        return None
    mean = math.fsum(logs) / len(logs)
    spread = math.sqrt(math.fsum((d - mean) ** 2 for d in logs) / (len(logs) - 1))
    half = quantile_t(len(logs) - 1, 0.5 + LEVEL / 2) * spread / math.sqrt(len(logs))
    low, high = mean - half, mean + half
    return Comparison(
        rival_id, role, len(logs), math.expm1(mean), math.expm1(low), math.expm1(high),
        standing(low, high, near_tie),
    )  # fmt: skip


def standing(low: float, high: float, near_tie: float) -> Standing:
    """By the interval of the log ratio. `near_tie` is a share: 0.02 is 2 % of the better one."""
    margin = math.log1p(-near_tie)
    if low > 0:
        return Standing.AHEAD
    if high < margin:
        return Standing.BEHIND
    return Standing.LEVEL if low >= margin else Standing.OPEN


def verdict_of(
    comparisons: Sequence[Comparison], gates_failed: Sequence[str] = (), unknown: Sequence[str] = ()
) -> Verdict:
    """Over all rivals; a winner that fails a limit of its objective is refuted whatever the rivals do. With something
    `unknown` (a rival that was hardly measured, a limit that noise decides) none is confirmed.
    """
    standings = {comparison.standing for comparison in comparisons}
    if gates_failed or Standing.BEHIND in standings:
        return Verdict.REFUTED
    return Verdict.OPEN if unknown or Standing.OPEN in standings else Verdict.CONFIRMED


def comparison_line(comparison: Comparison, labels: Mapping[str, str], near_tie: float) -> str:
    """One sentence, with its interval."""
    better = comparison.better
    how = f"{abs(better):.1%} {'better' if better >= 0 else 'worse'} than"
    said = {
        Standing.AHEAD: "ahead of it beyond doubt",
        Standing.LEVEL: f"not worse by more than near_tie ({near_tie:.1%})",
        Standing.OPEN: "not told apart; more --repeats narrow it",
        Standing.BEHIND: f"worse by more than near_tie ({near_tie:.1%}), beyond doubt",
    }[comparison.standing]
    interval = f"95%: {comparison.low:+z.1%} to {comparison.high:+z.1%}, {plural(comparison.pairs, 'pair')}"
    return f"{how} {labels.get(comparison.rival_id, comparison.rival_id)} ({comparison.role}; {interval}): {said}"
