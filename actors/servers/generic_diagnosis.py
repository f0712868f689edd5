"""Why a server of an unknown engine died: what most programs say in the same words, its exit code, its last line. Pure.

Nothing here knows an engine's phases, so that a memory failure is only that: `out_of_memory`. Among causes the first
line wins, among bare exceptions the last, since servers log exceptions that they survive.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from actors.diagnosis.reading import EVIDENCE_LENGTH
from actors.diagnosis.verdict import SIGKILLED, ending_words, label_of_exit_code
from actors.servers.follower import Segment
from actors.servers.log_line import clean
from orchestrator.outcome import Diagnosis, Label, Phase


class Weight(IntEnum):
    """How much a line says about the cause."""

    ECHO = 1
    EXCEPTION = 2
    HINT = 3
    CAUSE = 4


_FLAGS = re.IGNORECASE
_RULES: tuple[tuple[Label, Weight, re.Pattern[str]], ...] = tuple(
    (label, weight, re.compile(pattern, _FLAGS))
    for label, weight, pattern in (
        # argparse, click (trtllm-serve), llama-server.
        (Label.FLAG_INVALID, Weight.CAUSE, r"\berror: (?:argument |unrecognized |ambiguous |the following )"),
        (Label.FLAG_INVALID, Weight.CAUSE, r"^[\w./-]+: error: "),
        (Label.FLAG_INVALID, Weight.CAUSE, r"^error: (?:no such option|invalid value for|missing (?:option|argument))"),
        (Label.FLAG_INVALID, Weight.CAUSE, r"^error: (?:invalid argument: |unknown argument: )"),
        (Label.COMMAND_NOT_FOUND, Weight.CAUSE, r"can't open file '[^']*': \[Errno 2\]"),
        (Label.COMMAND_NOT_FOUND, Weight.CAUSE, r"^\S+: No module named \S+$"),
        (Label.COMMAND_NOT_FOUND, Weight.CAUSE, r": (?:command )?not found$"),
        (Label.GPU_OCCUPIED, Weight.CAUSE, r"\bfree memory on device\b.* on startup is less than"),
        (Label.KV_BUDGET, Weight.CAUSE, r"\bno available memory for the cache blocks\b"),
        (Label.KV_BUDGET, Weight.CAUSE, r"\blarger than the (?:available KV cache memory|maximum number of tokens)\b"),
        (Label.OUT_OF_MEMORY, Weight.CAUSE, r"\b(?:CUDA|HIP|NPU|XPU) out of memory\b"),
        (Label.OUT_OF_MEMORY, Weight.CAUSE, r"\b(?:CUDA|HIP) error: out of memory\b"),
        (Label.OUT_OF_MEMORY, Weight.CAUSE, r"\b(?:cuda|hip)Malloc failed: out of memory\b"),
        (Label.OUT_OF_MEMORY, Weight.CAUSE, r"\bCuda Runtime \(out of memory\)"),
        (Label.OUT_OF_MEMORY, Weight.CAUSE, r"\binsufficient memory \(attempted to allocate\b"),
        (Label.OUT_OF_MEMORY, Weight.CAUSE, r"\bstd::bad_alloc\b|^MemoryError\b"),
        (Label.HOST_OOM, Weight.CAUSE, r"^(?:\[[\d. ]+\] )?(?:Out of memory: Killed process|oom-kill:)"),
        (Label.PORT_IN_USE, Weight.CAUSE, r"\baddress already in use\b|\[Errno (?:98|48)\]"),
        (Label.PORT_IN_USE, Weight.CAUSE, r"\bcouldn't bind HTTP server socket\b"),
        (Label.MODEL_MISSING, Weight.CAUSE, r"\bfailed to open GGUF file\b|\binvalid magic characters\b"),
        (Label.MODEL_MISSING, Weight.CAUSE, r"\bis not a local folder and is not a valid model identifier\b"),
        (Label.MODEL_MISSING, Weight.CAUSE, r"No such file or directory.*(?:config\.json|\.safetensors|\.gguf)"),
        (Label.MODEL_MISSING, Weight.CAUSE, r"\b(?:RepositoryNotFoundError|GatedRepoError): "),
        (Label.MODEL_MISSING, Weight.HINT, r"\bfailed to load model\b"),
    )
)
_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception)(?:: |$)|^Exception: ")
# The parent's account of a child that has told its reason before.
_ECHO = re.compile(
    r"root cause above|(?:engine|worker|executor|subprocess)[\w ]* (?:failed|died|initialization)", _FLAGS
)
# Some engines fall back to something smaller: what failed before was then not the end.
_RETRIES = re.compile(r"\bretrying\b", _FLAGS)


@dataclass(frozen=True, slots=True)
class _Finding:
    label: Label
    weight: Weight
    evidence: str
    number: int


class _Reading:
    """One pass over a log."""

    def __init__(self) -> None:
        self.best: _Finding | None = None
        self.last = ""
        self.last_number = 0

    def take(self, segment: Segment) -> None:
        text = segment.text.strip()
        self.last, self.last_number = text, segment.number
        if segment.is_bar:
            return
        message = clean(segment.text).message.strip()
        if _RETRIES.search(message) and self.best is not None and self.best.label is Label.OUT_OF_MEMORY:
            self.best = None
            return
        # A line of source in a traceback says what may be raised, not what was.
        found = None if message.startswith("raise ") else _judge(message)
        if found is None:
            return
        label, weight = found
        newer = weight == Weight.EXCEPTION and self.best is not None and self.best.weight == weight
        if self.best is None or weight > self.best.weight or newer:
            self.best = _Finding(label, weight, text[:EVIDENCE_LENGTH], segment.number)


def _judge(message: str) -> tuple[Label, Weight] | None:
    for label, weight, pattern in _RULES:
        if pattern.search(message):
            return label, weight
    if not _EXCEPTION.match(message):
        return None
    return Label.UNKNOWN, Weight.ECHO if _ECHO.search(message) else Weight.EXCEPTION


def diagnose_any(
    log: Iterable[Segment],
    *,
    exit_code: int | None = None,
    stopped_at_line: int | None = None,
    timed_out: str | None = None,
    oom_kills: int = 0,
    phase: Phase = Phase.LAUNCH,
    since_line: int = 0,
) -> Diagnosis:
    """The verdict on a dead server, or on one that we gave up; arguments as of `diagnosis.diagnose`.

    `phase` is where the server was by what it answered, `since_line` how long its log was when it was ready: what it
    said before that is not why it died later.
    """
    reading = _Reading()
    for segment in log:
        if stopped_at_line is not None and segment.number > stopped_at_line:
            break
        if segment.number > since_line:
            reading.take(segment)
    best, last = reading.best, reading.last
    if timed_out is not None and (best is None or best.weight is not Weight.CAUSE):
        told = f"{timed_out}; last line: {last}" if last else f"{timed_out}, without a line in its log"
        return Diagnosis(Label.START_TIMEOUT, phase, told[:EVIDENCE_LENGTH], reading.last_number, exit_code)
    if best is not None and best.weight is Weight.CAUSE:
        return Diagnosis(best.label, phase, best.evidence, best.number, exit_code)
    if stopped_at_line is not None:
        evidence = last[:EVIDENCE_LENGTH] or "stopped before it wrote a line"
        return Diagnosis(Label.STOP_REQUESTED, phase, evidence, reading.last_number, exit_code)
    if oom_kills and exit_code in SIGKILLED:
        why = f"meanwhile the kernel of the host ended {oom_kills} process(es) for lack of memory"
        return Diagnosis(Label.HOST_OOM, phase, ending_words(exit_code, last, why), 0, exit_code)
    if best is not None:
        return Diagnosis(best.label, phase, best.evidence, best.number, exit_code)
    return _by_exit_code(reading, exit_code, phase)


def _by_exit_code(reading: _Reading, exit_code: int | None, phase: Phase) -> Diagnosis:
    """What the code alone can tell when no line does."""
    label = label_of_exit_code(exit_code, Phase.SERVING)
    # The last words of a program that ends with an error of its own are about it; before a signal they are not.
    is_error = exit_code is not None and 0 < exit_code < 128
    if reading.last and is_error:
        return Diagnosis(label, phase, reading.last[:EVIDENCE_LENGTH], reading.last_number, exit_code)
    return Diagnosis(label, phase, ending_words(exit_code, reading.last), 0, exit_code)
