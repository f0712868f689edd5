"""How far the pairs of a night have come, and what its two builds are called in a report. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.nightly.night_series import NightTables, TablesByTrial, class_of, couples_of, members_of
from orchestrator.nights.night import End
from orchestrator.scenarios.engine_build import BUILDS
from orchestrator.scenarios.pair_names import config_names
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.sweep_space import build_pairs


@dataclass(frozen=True, slots=True)
class PairCount:
    """The pairs of one config on one class of hosts. `wanted` at first; `measured`: both members served; `died`: one of
    them cannot run; `broken`: says nothing, and was made anew; `half`: one member has not ended.
    """

    config: str
    label: str
    host_class: str
    wanted: int
    measured: int = 0
    died: int = 0
    broken: int = 0
    half: int = 0

    @property
    def is_enough(self) -> bool:
        """Whether the first pairs are there, or deaths say more than further pairs would (pair_search.py)."""
        return self.measured >= self.wanted or (self.died > 0 and self.died >= self.measured)

    @property
    def text(self) -> str:
        """`2 of 3 pairs of speculative_num_steps=2, a member died in 1`."""
        died = f", a member died in {self.died}" if self.died else ""
        wanted = f" of {self.wanted}" if self.measured < self.wanted else ""
        on = f" on {self.host_class}" if self.host_class else ""
        one = "" if self.wanted == 1 or (not wanted and self.measured == 1) else "s"
        return f"{self.measured}{wanted} pair{one} of {self.label}{on}{died}"


def pair_counts(scenario: Scenario, tables: NightTables, classes: Sequence[str] = ()) -> tuple[PairCount, ...]:
    """Of every config. `classes`: those of the run, also where nothing has ended yet."""
    assert scenario.nightly is not None, "checked with the scenario"
    pairs = build_pairs(scenario)
    labels = config_names(scenario, pairs)
    by_trial, seen = TablesByTrial(tables), dict.fromkeys(map(class_of, tables.trials))
    known = list(dict.fromkeys([*seen, *(classes if len(classes) > 1 else ())])) or [""]
    found = []
    for pair in pairs:
        for host_class in known:
            begun = [members_of(config.config_id, host_class, by_trial) for config in pair.members]
            couples = couples_of(pair, by_trial, host_class)
            measured = sum(not couple.why_apart for couple in couples)
            ends = [{couple.reference.end, couple.candidate.end} for couple in couples]
            died = sum(End.DIED in end and End.FAILED not in end for end in ends)
            found.append(
                PairCount(
                    pair.config_id, labels[pair.config_id], host_class if len(known) > 1 else "",
                    scenario.nightly.pairs, measured, died, len(couples) - measured - died,
                    len(begun[0].keys() ^ begun[1].keys()),
                )
            )  # fmt: skip
    return tuple(found)


def ended_pairs(scenario: Scenario, ends: Iterable[Mapping[str, Any]]) -> tuple[PairCount, ...]:
    """The same by the last end of each trial in the journal: a look each second may cost no more."""
    assert scenario.nightly is not None, "checked with the scenario"
    pairs = build_pairs(scenario)
    labels = config_names(scenario, pairs)
    found: dict[tuple[str, str], dict[str, list[str]]] = {}
    base_of = {config.config_id: pair.config_id for pair in pairs for config in pair.members}
    for end in ends:
        if (base := base_of.get(str(end.get("config_id")))) is not None:
            number = str(end["trial_id"]).rpartition("-r")[2]
            own = found.setdefault((base, str(end.get("host_class") or "")), {})
            own.setdefault(number, []).append(str(end.get("outcome")))
    classes = sorted({host_class for _, host_class in found}) or [""]

    def counted(config_id: str, host_class: str) -> PairCount:
        told = list(found.get((config_id, host_class), {}).values())
        whole = [outcomes for outcomes in told if len(outcomes) == len(BUILDS)]
        measured = sum(set(outcomes) == {"measured"} for outcomes in whole)
        died = sum("infeasible" in outcomes and "failed" not in outcomes for outcomes in whole)
        left = len(whole) - measured - died
        label = labels[config_id]
        wanted = scenario.nightly.pairs if scenario.nightly else 0
        return PairCount(config_id, label, host_class, wanted, measured, died, left, len(told) - len(whole))

    return tuple(counted(pair.config_id, host_class) for pair in pairs for host_class in classes)


def counts_line(counts: Sequence[PairCount]) -> str:
    """`2 of 3 pairs of speculative_num_steps=2; 3 pairs of speculative_num_steps=4`."""
    return "; ".join(count.text for count in counts) or "no pair"


def are_enough(counts: Sequence[PairCount]) -> bool:
    """Whether every config has been measured as planned, on every class of hosts."""
    return bool(counts) and all(count.is_enough for count in counts)


def build_names(scenario: Scenario) -> dict[str, str]:
    """By the id of the config of each build: `candidate`, with the config's name before it where there are several."""
    pairs = build_pairs(scenario)
    labels = config_names(scenario, pairs)
    return {
        config.config_id: f"{labels[pair.config_id]}, {build}" if len(pairs) > 1 else build
        for pair in pairs
        for config, build in zip(pair.members, BUILDS, strict=True)
    }


def shortfall(counts: Sequence[PairCount], left_open: int, most_pairs: int, reason: str) -> str:
    """What a night that was cut short lacks, after why it was; empty where it lacks nothing. `left_open`: its series
    that more pairs would have decided.
    """
    if not are_enough(counts):
        return f"{reason}; only {counts_line(counts)} were measured"
    if left_open:
        open_ = "a series is" if left_open == 1 else f"{left_open} series are"
        return f"{reason}; after {counts_line(counts)} {open_} open, and up to {most_pairs} pairs would have been made"
    return ""
