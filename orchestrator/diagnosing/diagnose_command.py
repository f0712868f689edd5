"""`specsweep diagnose`: why a server died, from its logs or from a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator.diagnosing.log_diagnosis import LogVerdict, diagnose_log, first_cause
from orchestrator.errors import BadInput
from orchestrator.outcome import INFEASIBLE, Confidence, Diagnosis, Label, Phase
from orchestrator.paths import RunPaths
from orchestrator.run_files.journal import read_events
from orchestrator.run_files.run_manifest import read_manifest
from orchestrator.terminal import print_json


@dataclass(frozen=True, slots=True)
class StartVerdict:
    """A failed start of a run: what the run recorded, and what its log tells today's rules."""

    trial_id: str
    attempt: int
    outcome: str
    recorded: str
    verdict: LogVerdict

    def as_json(self) -> dict[str, Any]:
        about = {"trial_id": self.trial_id, "attempt": self.attempt, "outcome": self.outcome, "recorded": self.recorded}
        return about | self.verdict.as_json()


def show_diagnosis(sources: Sequence[str], exit_code: int | None, *, as_json: bool, console: Console) -> None:
    """Print the verdict on logs, or on all failed starts of a run directory. BadInput if something cannot be read."""
    folders = [source for source in sources if Path(source).is_dir()]
    if folders and (len(sources) > 1 or exit_code is not None):
        raise BadInput(f"{folders[0]}: is a folder; give one run directory alone (without --exit-code), or log files")
    if folders:
        starts = run_verdicts(Path(folders[0]))
        if as_json:
            told: Any = {"run": Path(folders[0]).resolve().name, "starts": [start.as_json() for start in starts]}
            print_json(told, console)
        else:
            _print_run(starts, console)
        return
    verdicts = [diagnose_log(source, exit_code=exit_code) for source in sources]
    cause = first_cause(verdicts)
    if as_json:
        others = {"files": [verdict.as_json() for verdict in verdicts]} if len(verdicts) > 1 else {}
        print_json(cause.as_json() | others, console)
        return
    _print(cause, console)
    for verdict in verdicts:
        if verdict is not cause:
            found = verdict.diagnosis
            console.print(
                Text(f"{verdict.file}: {found.label} ({found.phase}): {found.evidence[:160]}"), soft_wrap=True
            )


def run_verdicts(root: Path) -> list[StartVerdict]:
    """All failed starts of a run in the order in which they ended, judged anew."""
    engine = str(read_manifest(root)["engine"])
    return [_start_verdict(RunPaths(root), event, engine) for event in _failed(root)]


def _failed(root: Path) -> Iterator[dict[str, Any]]:
    for event in read_events(RunPaths(root).journal):
        if event.get("event") == "trial_ended" and event.get("outcome") in {"infeasible", "failed"}:
            yield event


def _start_verdict(paths: RunPaths, event: dict[str, Any], engine: str) -> StartVerdict:
    trial_id, attempt = event["trial_id"], int(event.get("attempt", 1))
    log = paths.server_log(trial_id)
    log = log if attempt == 1 else log.with_name(f"server-{attempt}.log.zst")
    recorded = _recorded(event)
    verdict = LogVerdict(str(log), recorded)
    if log.exists():
        # A server without an exit code was ended by nobody that we know of, but it is dead: its trial has ended.
        code = recorded.exit_code
        told = diagnose_log(log, exit_code=code, engine=engine)
        # Much that a run saw is in no log: occupants of the GPUs, timeouts, stops. A guess does not overrule it.
        if told.diagnosis.confidence is not Confidence.LOW and told.diagnosis.label not in {Label.READY, Label.BENIGN}:
            verdict = replace(told, diagnosis=replace(told.diagnosis, exit_code=code))
    return StartVerdict(trial_id, attempt, str(event["outcome"]), str(recorded.label), verdict)


def _recorded(event: dict[str, Any]) -> Diagnosis:
    """What the journal holds; a label or phase that this release does not know becomes unknown."""
    label, phase = str(event.get("label")), str(event.get("phase"))
    label = label if label in set(Label) else "unknown"
    phase = phase if phase in set(Phase) else "launch"
    return Diagnosis(Label(label), Phase(phase), event.get("evidence") or "", 0, event.get("exit_code"))


def _print(verdict: LogVerdict, console: Console) -> None:
    found = verdict.diagnosis
    nature = ", infeasible" if found.label in INFEASIBLE else ""
    head = Text(f"{verdict.file}: ")
    head.append(f"{found.label}", style="bold")
    head.append(f" in phase {found.phase} (confidence {found.confidence}{nature})")
    console.print(head, soft_wrap=True)
    where = f"line {found.line_number}" if found.line_number else "no line"
    console.print(Text(f"  {where}: {found.evidence}"), soft_wrap=True)
    console.print(Text(f"  means: {verdict.explanation}"), soft_wrap=True)
    for number, move in enumerate(verdict.advice, start=1):
        console.print(Text(f"  {'change:' if number == 1 else '       '} {number}. {move}"), soft_wrap=True)


def _print_run(starts: list[StartVerdict], console: Console) -> None:
    if not starts:
        console.print("no start of this run failed")
    for start in starts:
        was = f", recorded as {start.recorded}" if start.recorded != start.verdict.diagnosis.label else ""
        console.print(
            Text(f"{start.trial_id} attempt {start.attempt}: {start.outcome}{was}", style="bold"), soft_wrap=True
        )
        _print(start.verdict, console)
