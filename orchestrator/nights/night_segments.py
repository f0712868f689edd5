"""Parts of a series whose nights can be compared: change points are never looked for across their borders. Pure.

A new one begins where a fact of the reference build is another (release, torch, CUDA, commit, image: whatever the night
knows), where a host that measured before has another fact (driver, GPU), where hosts come that share nothing known with
those before, and where an expected change begins or ends. Facts of the candidate are what is tested: they never do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.nights.expected_changes import ExpectedChange
from orchestrator.nights.night import Build, Night, SeriesKey


@dataclass(frozen=True, slots=True)
class Segment:
    """Positions `begin` to `end` (not included) of a series' nights. `why` it began; empty for the first."""

    begin: int
    end: int
    why: str


def segments(
    nights: Sequence[Night], key: SeriesKey, label: str, expected: Sequence[ExpectedChange] = ()
) -> tuple[Segment, ...]:
    """Of the nights that measured a series, oldest first."""
    borders: list[tuple[int, str]] = []
    known = _Known()
    for i, night in enumerate(nights):
        changed, others = known.changed(night, key.host_class), known.other_hosts(night, key.host_class)
        told = "; ".join(text for text in (changed, others, *_expected(nights, i, key, label, expected)) if text)
        if not i or told:
            borders.append((i, told if i else ""))
        if told != others:  # hosts that take turns are no change when the first is back
            known = _Known()
        known.add(night, key.host_class)
    ends = [*(begin for begin, _ in borders[1:]), len(nights)]
    return tuple(Segment(begin, end, why) for (begin, why), end in zip(borders, ends, strict=True))


def is_one_segment(
    before: Night, after: Night, key: SeriesKey, label: str, expected: Sequence[ExpectedChange] = ()
) -> bool:
    """Whether what two nights measured of a series can be taken together."""
    return len(segments((before, after), key, label, expected)) == 1


class _Known:
    """Facts of the segment so far."""

    def __init__(self) -> None:
        self._reference: dict[str, str] = {}
        self._hosts: dict[str, dict[str, str]] = {}

    def add(self, night: Night, host_class: str) -> None:
        self._reference |= dict(night.reference.facts)
        for name, facts in _hosts_of(night, host_class).items():
            self._hosts.setdefault(name, {}).update(facts)

    def changed(self, night: Night, host_class: str) -> str:
        """What is not as it was, of the reference and of hosts that measured before; empty for nothing."""
        told = [f"reference: {line}" for line in fact_changes(self._reference, dict(night.reference.facts))]
        for name, facts in _hosts_of(night, host_class).items():
            told += [f"{name}: {line}" for line in fact_changes(self._hosts.get(name, {}), facts)]
        return ", ".join(told)

    def other_hosts(self, night: Night, host_class: str) -> str:
        """If none of the hosts is known: what they are otherwise than those seen."""
        hosts, told = _hosts_of(night, host_class), []
        if set(hosts) & set(self._hosts):
            return ""
        for fact in sorted({name for facts in hosts.values() for name in facts}):
            before = {facts[fact] for facts in self._hosts.values() if fact in facts}
            now = {facts[fact] for facts in hosts.values() if fact in facts}
            if before and not before & now:
                told.append(f"other hosts: {fact} {' / '.join(sorted(before))} -> {' / '.join(sorted(now))}")
        return ", ".join(told)


def fact_changes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """`sglang 0.5.8 -> 0.5.9` for every fact that is known on both sides and differs."""
    return [
        f"{name} {before[name]} -> {after[name]}"
        for name in sorted(before)
        if after.get(name, before[name]) != before[name]
    ]


def build_changes(before: Build, after: Build) -> list[str]:
    """What differs between two builds; their names if nothing that is known does."""
    told = fact_changes(dict(before.facts), dict(after.facts))
    return told or ([f"{before.name} -> {after.name}"] if before.name != after.name else [])


def between(before: Night, after: Night, host_class: str) -> tuple[str, ...]:
    """What changed between two nights: candidate, reference, hosts."""
    told = [f"candidate: {line}" for line in build_changes(before.candidate, after.candidate)]
    told += [f"reference: {line}" for line in build_changes(before.reference, after.reference)]
    hosts, now = _hosts_of(before, host_class), _hosts_of(after, host_class)
    for name in sorted(set(hosts) & set(now)):
        told += [f"{name}: {line}" for line in fact_changes(hosts[name], now[name])]
    if set(hosts) != set(now):
        told.append(f"hosts {', '.join(sorted(hosts)) or 'none'} -> {', '.join(sorted(now)) or 'none'}")
    return tuple(told)


def _hosts_of(night: Night, host_class: str) -> dict[str, dict[str, str]]:
    return {host.name: dict(host.facts) for host in night.hosts if host.host_class == host_class}


def _expected(
    nights: Sequence[Night], i: int, key: SeriesKey, label: str, expected: Sequence[ExpectedChange]
) -> list[str]:
    """Changes that hold in this night and not in the one before, or the other way round."""
    if not i:
        return []
    told = []
    for change in expected:
        was, is_ = change.holds(nights[i - 1].at), change.holds(nights[i].at)
        if was is not is_ and change.names(key, label, nights[i].scenario):
            told.append(f"{'expected' if is_ else 'over'}: {change.why}")
    return told
