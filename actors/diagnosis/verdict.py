"""Why a server died, from its log, its exit code and what we did to it. Pure.

Causes beat hints, hints beat bare exceptions; among equals the first line wins, since the later ones are echoes of it
(`Received sigquit`, `kill_process_tree`, a second traceback, other ranks). What a server works on after is no cause.
Exit codes decide last: most deaths of SGLang are its own SIGKILL, and no SIGKILL tells by itself who sent it and why.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable
from dataclasses import dataclass, replace

from actors.diagnosis.finding import Finding
from actors.diagnosis.reading import EVIDENCE_LENGTH, Reading
from actors.diagnosis.rule import Weight
from actors.servers.follower import Segment
from orchestrator.outcome import Confidence, Diagnosis, Label, Phase

SIGKILLED = frozenset({-9, 137})
SIGTERMED = frozenset({-15, 143})
_CRASHED = frozenset({-11, 139, -6, 134, -4, 132, -8, 136, -7, 135})
_SIGNALS = {int(known): known.name for known in signal.Signals}
# Where the last line tells more than the timeline: no request of the warm-up was seen yet; the pool of the states.
_FINER = (
    ("Uvicorn running on", Phase.WARMUP, Phase.HTTP_BIND),
    ("Mamba Cache is allocated", Phase.KV_POOL, Phase.STATE_POOL),
)
_LOADING = frozenset({Phase.WEIGHTS, Phase.DRAFT_WEIGHTS})
_UNTOLD = frozenset({Phase.LAUNCH, Phase.ARGS})


@dataclass(frozen=True, slots=True)
class Ending:
    """What is known besides the log; as of `diagnose`."""

    exit_code: int | None = None
    stopped: bool = False
    timed_out: str | None = None
    oom_kills: int = 0
    is_dead: bool = True


def diagnose(
    log: Iterable[Segment],
    *,
    exit_code: int | None = None,
    stopped_at_line: int | None = None,
    timed_out: str | None = None,
    oom_kills: int = 0,
    is_dead: bool = True,
) -> Diagnosis:
    """The verdict on a dead server, or on one that we gave up.

    `stopped_at_line`: how many lines the log had when we asked the server to stop; what it says after that is about the
    stop. `timed_out`: in words, in what way its start takes too long; a cause in the log still comes first.
    `oom_kills`: how many processes the host's kernel killed for lack of memory while the server lived. Unless
    `is_dead`, the log may be a living server's, and the verdict `ready` or `benign`.
    The evidence is never empty; it has line number 0 where no line shows it.
    """
    reading = read(log, stopped_at_line)
    return judge(reading, Ending(exit_code, stopped_at_line is not None, timed_out, oom_kills, is_dead))


def read(log: Iterable[Segment], stopped_at_line: int | None = None) -> Reading:
    """The log up to the line at which we asked the server to stop."""
    reading = Reading()
    for segment in log:
        if stopped_at_line is not None and segment.number > stopped_at_line:
            break
        reading.take(segment)
    return reading


def judge(reading: Reading, ending: Ending) -> Diagnosis:
    """The verdict on what was read."""
    best = reading.found
    conclusive = best is not None and best.is_conclusive
    if ending.timed_out is not None and not conclusive:
        words, last, phase = ending.timed_out, reading.last.strip(), reading.timeline.phase
        told = f"{words}; last line: {last}" if last else f"{words}, without a line in its log"
        return Diagnosis(Label.START_TIMEOUT, phase, told[:EVIDENCE_LENGTH], reading.last_number, ending.exit_code)
    if best is not None and conclusive:
        return _told(best, reading, ending)
    if ending.stopped:
        return _by_last_line(Label.STOP_REQUESTED, reading, ending, Confidence.HIGH)
    if best is not None and (best.weight is Weight.HINT or best.label not in {Label.UNKNOWN, Label.SOFTWARE_BUG}):
        return _told(best, reading, ending)
    if ending.oom_kills and ending.exit_code in SIGKILLED and not reading.ends_itself:
        why = f"meanwhile the kernel of the host ended {ending.oom_kills} process(es) for lack of memory"
        evidence = ending_words(ending.exit_code, reading.last.strip(), why)
        return Diagnosis(Label.HOST_OOM, reading.timeline.phase, evidence, 0, ending.exit_code, Confidence.MEDIUM)
    if best is None and reading.broken_at in {Phase.GRAPH_TARGET, Phase.GRAPH_DRAFT}:
        in_capture = _by_last_line(Label.CAPTURE_ERROR, reading, ending, Confidence.MEDIUM)
        return replace(in_capture, phase=reading.broken_at)
    if best is not None:
        return _told(best, reading, ending)
    return _peaceful(reading, ending) or _by_exit_code(reading, ending)


def _told(finding: Finding, reading: Reading, ending: Ending) -> Diagnosis:
    rule = finding.rule
    return Diagnosis(
        finding.label,
        _place_of(finding, reading),
        f"{finding.evidence}{finding.rest}"[:EVIDENCE_LENGTH],
        finding.number,
        ending.exit_code,
        _confidence(finding),
        rule.name if rule is not None else "",
    )


def _place_of(finding: Finding, reading: Reading) -> Phase:
    """Where it struck; in an excerpt without a mark of the start, where this usually strikes."""
    if finding.phase is not None:
        return finding.phase
    if finding.rule is not None and finding.rule.name == "crash_below_python" and reading.broken_at is not None:
        return reading.broken_at  # its frames stand after it
    usual = finding.rule.usual if finding.rule is not None else None
    if usual is Phase.SERVING and reading.is_starting:
        usual = Phase.GRAPH_TARGET
    return usual or reading.broken_at or reading.timeline.phase


def _confidence(finding: Finding) -> Confidence:
    if finding.rule is not None and finding.rule.confidence is not None:
        return finding.rule.confidence
    if finding.label in {Label.UNKNOWN, Label.OUT_OF_MEMORY}:
        return Confidence.LOW
    return Confidence.HIGH if finding.weight is Weight.CAUSE else Confidence.MEDIUM


def _by_last_line(label: Label, reading: Reading, ending: Ending, confidence: Confidence) -> Diagnosis:
    last = reading.last.strip()[:EVIDENCE_LENGTH]
    evidence = (last, reading.last_number) if last else ("stopped before it wrote a line", 0)
    return Diagnosis(label, reading.timeline.phase, *evidence, ending.exit_code, confidence)


def _peaceful(reading: Reading, ending: Ending) -> Diagnosis | None:
    """The log of a server that lives, or whose start goes well so far."""
    if ending.is_dead or ending.exit_code is not None or reading.has_trouble:
        return None
    phase, note, aside = reading.timeline.phase, reading.note, reading.aside
    if phase in _UNTOLD and reading.is_answering:
        phase = Phase.SERVING
    if note is not None:
        told = _told(note, reading, ending)
        return replace(told, confidence=Confidence.HIGH if reading.timeline.is_ready else told.confidence)
    if phase in _UNTOLD:
        return _told(aside, reading, ending) if aside is not None else None
    confidence = Confidence.HIGH if reading.timeline.is_ready else Confidence.MEDIUM
    told = replace(_by_last_line(Label.READY, reading, ending, confidence), phase=phase)
    for words, coarse, fine in _FINER:
        if phase is coarse and words in reading.last:
            return replace(told, phase=fine)
    return replace(told, phase=Phase.SERVING) if phase is Phase.READY else told


def _by_exit_code(reading: Reading, ending: Ending) -> Diagnosis:
    """What the code alone can tell when the log says nothing.

    The last words of a program that ends with an error of its own are about it; before a signal they are not.
    """
    code, last, phase = ending.exit_code, reading.last.strip(), reading.timeline.phase
    if reading.killed_at is not None and not reading.ends_itself and phase in _LOADING:
        # Somebody's SIGKILL while the weights were loaded: when a host needs most memory.
        return Diagnosis(Label.HOST_OOM, phase, *reading.killed_at, code, Confidence.LOW)
    is_error = code is not None and code > 0 and code not in SIGKILLED | SIGTERMED | _CRASHED
    shown = (last[:EVIDENCE_LENGTH], reading.last_number) if last and is_error else (ending_words(code, last), 0)
    where = phase if phase not in _UNTOLD else reading.broken_at or phase
    label = label_of_exit_code(code, phase)
    if label is Label.COMMAND_NOT_FOUND and phase not in _UNTOLD:
        label = Label.UNKNOWN  # a wrapper's, or of a later command: the server itself had been found
    return Diagnosis(label, where, *shown, code, Confidence.LOW)


def label_of_exit_code(code: int | None, phase: Phase) -> Label:
    """The likeliest label for a program that ended with this code and said nothing of why."""
    if code == 127:
        return Label.COMMAND_NOT_FOUND
    if code == 2 and phase in _UNTOLD:
        return Label.FLAG_INVALID
    if code in SIGTERMED:
        return Label.STOP_REQUESTED
    return Label.SEGFAULT_ABORT if code in _CRASHED else Label.UNKNOWN


def ending_words(exit_code: int | None, last: str, why: str = "") -> str:
    """How it ended and what is known of why, in words."""
    how = "ended without an exit code" if exit_code is None else f"ended with exit code {exit_code}"
    if exit_code is not None and (name := _SIGNALS.get(-exit_code)):
        how = f"ended by {name}"
    elif exit_code is not None and (name := _SIGNALS.get(exit_code - 128)):
        how = f"{how} ({name})"
    if not last:
        return f"{how} without a word{why and '; '}{why}"
    return f"{how}; {why or 'the log says nothing about why'} (last line: {last})"[:EVIDENCE_LENGTH]
