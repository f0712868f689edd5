"""What becomes of a night when its run has ended, however that ended: it is judged, or it is a gap with its reason."""

from __future__ import annotations

import traceback
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from orchestrator.error_text import first_line
from orchestrator.nightly.night_pairs import are_enough, shortfall
from orchestrator.nightly.night_run import MeasuredNight, NightJudge, empty_night, measured_night
from orchestrator.nights.night import End, Gap, Night, Verdict
from orchestrator.nights.night_verdict import undecided
from orchestrator.paths import RunPaths
from orchestrator.run_files.run_manifest import read_manifest
from orchestrator.scenarios.night_scenario import resume_command
from orchestrator.scenarios.scenario import Scenario


@dataclass(frozen=True, slots=True)
class NightMade:
    """What a night is made with. `at`: when this start of it began, UTC in ISO form."""

    scenario: Scenario
    judge: NightJudge
    root: Path
    at: str


@dataclass(frozen=True, slots=True)
class Swept:
    """How the run of a night ended. `cut`: why it ended before its time, empty if it did not; `is_late`: max_hours are
    over. `fault`: of ours, which says nothing about what was measured.
    """

    cut: str = ""
    is_late: bool = False
    fault: str = ""


def night_found(made: NightMade, swept: Swept, console: Console) -> Night:
    """The night as far as it came, or a gap with its reason, also where what it left cannot be read."""
    try:
        return _found(made, swept, console)
    except Exception as error:  # noqa: BLE001 - Python would end with 1, which means that the candidate regressed
        traceback.print_exc()
        night = replace(empty_night(made.scenario, made.at), run=made.root.resolve().name)
        return _gap(night, f"what was measured cannot be judged: {type(error).__name__}: {first_line(error)}")


def _found(made: NightMade, swept: Swept, console: Console) -> Night:
    found = _measured(made)
    if swept.fault:
        return _gap(found.night, swept.fault)
    if swept.cut:
        return _cut_short(made, found, swept.cut, console)
    if not RunPaths(made.root).manifest.exists():
        return _gap(found.night, f"{made.root}: was removed while it was measured")
    if not _is_measured(found.night):
        why = "max_hours were over before any pair was measured" if swept.is_late else _why_nothing(found.night)
        return _gap(found.night, why)
    return replace(found.night, cut=_lacks(made, found, "max_hours were over")) if swept.is_late else found.night


def _cut_short(made: NightMade, found: MeasuredNight, reason: str, console: Console) -> Night:
    """What was found does not go away with the hosts, nor with a stop: it is judged where every config has the pairs
    that were planned, and says what it lacks. Else that nothing was found by then says nothing.
    """
    night, lacks = found.night, _lacks(made, found, reason)
    if lacks and made.root.exists():
        how = f"The night is not complete. Continue it: {resume_command(made.scenario, made.root)}"
        console.print(how, markup=False, soft_wrap=True, highlight=False)
    if night.verdict is Verdict.REGRESSED or are_enough(found.counts):
        return replace(night, cut=lacks)
    return _gap(night, reason)


def _lacks(made: NightMade, found: MeasuredNight, reason: str) -> str:
    rules = made.judge.rules
    return shortfall(found.counts, len(undecided(found.night.series, rules)), rules.most_pairs, reason)


def _measured(made: NightMade) -> MeasuredNight:
    if not RunPaths(made.root).manifest.exists():
        return MeasuredNight(empty_night(made.scenario, made.at), ())
    return measured_night(made.root, made.scenario, began_at(made.root, made.at), made.judge)


def _gap(night: Night, reason: str) -> Night:
    return replace(night, series=(), gap=Gap(reason))


def _is_measured(night: Night) -> bool:
    """Whether of any pair both members served or died."""
    known = {End.SERVED, End.DIED}
    starts = [start for one in night.series for start in one.measured.starts]
    return night.verdict is Verdict.REGRESSED or any({s.reference, s.candidate} <= known for s in starts)


def _why_nothing(night: Night) -> str:
    starts = [start for one in night.series for start in one.measured.starts]
    broke = [start.diagnosis for start in starts if start.diagnosis]
    told = list(dict.fromkeys([*broke, *(one.measured.missing for one in night.series if one.measured.missing)]))
    return f"no pair was measured{': ' if told else ''}{', '.join(told)}"


def began_at(root: Path, now: str) -> str:
    """When the night began; a resumed one so takes the place of what the history kept of it before."""
    if not RunPaths(root).manifest.exists():
        return now
    return str(read_manifest(root)["starts"][0]["started_at"])
