"""Did it start, does it serve: verdicts on deaths, for which no statistics are needed. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from orchestrator.nights.night import End, Measured, Night, SeriesNight, StartPair, Verdict
from orchestrator.outcome import Label

# Deaths that are of the host, the network or the user, whatever build ran. Others that meet every start of the
# candidate, while the reference serves beside it, are of the candidate, even if once they might be chance.
OF_THE_PLACE = frozenset(
    {
        Label.HOST_LOST,
        Label.HOST_OOM,
        Label.PORT_IN_USE,
        Label.GPU_OCCUPIED,
        Label.GPU_UNEQUAL,
        Label.SHM_OR_DISK,
        Label.NET_CONFIG,
        Label.MODEL_DOWNLOAD,
        Label.MODEL_MISSING,
        Label.STOP_REQUESTED,
        Label.COMMAND_NOT_FOUND,
        Label.USER_COMMAND,
    }
)
_FEWEST_FAILURES = 2


def judge_starts(one: Measured, earlier: Sequence[Night]) -> SeriesNight:
    """By how the starts of a config (or one load on them) ended, tonight and before."""
    verdict, reason = _judge(one, earlier)
    shown = next((s.evidence for s in one.starts if s.evidence), "")
    return SeriesNight(one, verdict, reason, evidence=(shown,) if shown and verdict is not Verdict.SAME else ())


def _judge(one: Measured, earlier: Sequence[Night]) -> tuple[Verdict, str]:
    starts = one.starts
    if not starts:
        return Verdict.INCONCLUSIVE, one.missing or "no pair of starts came to its end"
    served = [s for s in starts if s.candidate is End.SERVED]
    beside = [s for s in starts if s.reference is End.SERVED]
    lost = [s for s in beside if _of_the_build(s)]
    if len(served) == len(starts):
        if len(beside) == len(starts):
            return Verdict.SAME, "served in every pair, as the reference did"
        return _better(starts, earlier, one)
    if _counts(lost, starts):
        return Verdict.REGRESSED, f"{_died(lost)} in {len(lost)} of {len(starts)} starts; the reference served"
    if lost:
        return (
            Verdict.INCONCLUSIVE,
            f"{_died(lost)} in {len(lost)} of {len(starts)} starts, which more pairs would tell from chance",
        )
    if not beside:
        return _both(starts, earlier, one)
    return Verdict.INCONCLUSIVE, f"{_died([s for s in starts if s not in served])}: says nothing about the build"


def _counts(lost: Sequence[StartPair], starts: Sequence[StartPair]) -> bool:
    """Half of the starts died by nature; or all of them, and more than one, by what may be chance once."""
    if any(s.candidate is End.DIED for s in lost):
        return 2 * len(lost) >= len(starts)
    return len(lost) == len(starts) >= _FEWEST_FAILURES


def _of_the_build(start: StartPair) -> bool:
    """Did not serve, and not by the place."""
    return start.candidate is not End.SERVED and not (start.candidate is End.FAILED and start.diagnosis in OF_THE_PLACE)


def _better(starts: Sequence[StartPair], earlier: Sequence[Night], one: Measured) -> tuple[Verdict, str]:
    missing = [s for s in starts if s.reference is not End.SERVED]
    if any(s.reference is End.FAILED for s in missing):
        return Verdict.INCONCLUSIVE, f"the reference {_died(missing)} in {len(missing)} of {len(starts)} starts"
    if any(s.reference is End.SERVED for s in _before(one, earlier)):
        return (
            Verdict.INCONCLUSIVE,
            f"the pinned reference {_died(missing)}, and served before: something changed on the hosts",
        )
    return Verdict.IMPROVED, f"served; the reference {_died(missing)}"


def _both(starts: Sequence[StartPair], earlier: Sequence[Night], one: Measured) -> tuple[Verdict, str]:
    """Neither served."""
    before = list(_before(one, earlier))
    if any(s.reference is End.SERVED for s in before):
        return (
            Verdict.INCONCLUSIVE,
            f"{_died(starts)}, and so did the pinned reference, which served before: something changed on the hosts",
        )
    all_died = all(s.candidate is End.DIED for s in starts)
    if all_died and any(s.candidate is End.SERVED for s in before[-1:]):
        return Verdict.REGRESSED, f"{_died(starts)}; the candidate of the night before served"
    if all_died and all(s.reference is End.DIED for s in starts):
        return Verdict.SAME, f"{_died(starts)}, as the reference did"
    return Verdict.INCONCLUSIVE, f"{_died(starts)}, and the reference did not serve either"


def _before(one: Measured, earlier: Sequence[Night]) -> Iterator[StartPair]:
    """All pairs of starts of the series in earlier nights, oldest first."""
    for night in earlier:
        for seen in night.series:
            if seen.key == one.key:
                yield from seen.measured.starts


def _died(starts: Sequence[StartPair]) -> str:
    """`died (kv_budget)`, by the most frequent diagnosis."""
    ((label, _),) = Counter(s.diagnosis or "no diagnosis" for s in starts).most_common(1)
    ended = [s.candidate if s.candidate is not End.SERVED else s.reference for s in starts]
    return f"{'died' if End.DIED in ended else 'failed'} ({label})"
