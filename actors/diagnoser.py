"""Why a server died, from its log, its exit code and what we did to it. Pure.

Rules are anchored at the start of a line (after log shippers' and the server's own prefixes), so that a prompt or an
advice that merely mentions memory is no evidence. Causes beat hints, hints beat bare exceptions; among equals the first
line wins, since the later ones are echoes of it (`Received sigquit`, `kill_process_tree`, a second traceback). Exit
codes decide last: most deaths of SGLang are its own SIGKILL, and no SIGKILL tells by itself who sent it and why.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

from actors.follower import Segment
from actors.log_line import LogLine, clean
from actors.startup import StartupTimeline
from orchestrator.outcome import Diagnosis, Label, Phase

EVIDENCE_LENGTH = 500
SIGKILLED = frozenset({-9, 137})
SIGTERMED = frozenset({-15, 143})
_SIGNALS = {int(known): known.name for known in signal.Signals}


class Weight(IntEnum):
    """How much a line says about the cause."""

    EXCEPTION = 1
    HINT = 2
    CAUSE = 3


@dataclass(frozen=True, slots=True)
class Rule:
    """A line that matches tells this label; label None means device memory ran out, where is told by the context."""

    label: Label | None
    pattern: re.Pattern[str]
    weight: Weight = Weight.CAUSE


def _rule(label: Label | None, pattern: str, weight: Weight = Weight.CAUSE) -> Rule:
    return Rule(label, re.compile(pattern), weight)


# "RuntimeError: ", "torch.OutOfMemoryError: ", "Exception: Capture cuda graph failed: " and chains of such.
_ERROR = r"^(?:ERROR: +)?(?:[\w.]*(?:Error|Exception): ['\"]?)*"
_GRAPH_FAILED = r"(?:Capture [\w -]*?(?:graph|draft extend) failed: )?"

RULES = (
    _rule(
        Label.FLAG_INVALID, r"^[\w./-]+(?: [\w./-]+){0,2}: error: (?:argument|unrecognized|ambiguous|the following) "
    ),
    _rule(Label.COMMAND_NOT_FOUND, r"^(?:\S+|ModuleNotFoundError): No module named '?(?:sglang|actors)\b"),
    _rule(Label.KV_BUDGET, _ERROR + r"Not enough memory\b(?!.*hybrid)"),
    _rule(Label.KV_BUDGET, _ERROR + r"Loaded weights leave no GPU memory for the KV cache"),
    _rule(Label.STATE_POOL, _ERROR + r"Not enough GPU memory for hybrid \(mamba"),
    _rule(Label.STATE_POOL, _ERROR + r"Hybrid \(mamba/linear-attention\) state cache is too small"),
    _rule(Label.STATE_POOL, _ERROR + r"SWA pool (?:\(|cap )"),
    _rule(Label.STATE_POOL, _ERROR + r".{0,80}needs ~\S+ but only \S+ HBM is free"),
    _rule(Label.RUNTIME_POOL, _ERROR + r"(?:Prefill |Decode )?[Oo]ut of memory\. Try to lower your batch size"),
    _rule(Label.RUNTIME_POOL, _ERROR + r"alloc_req_slots runs out of memory"),
    _rule(None, _ERROR + _GRAPH_FAILED + r"(?:CUDA|HIP|NPU|XPU) out of memory\b"),
    _rule(None, _ERROR + _GRAPH_FAILED + r"CUDA error: out of memory\b"),
    _rule(None, r"^Failed to create [\w -]+: CUDA out of memory\b"),
    _rule(None, _ERROR + r"\[enforce fail at alloc_cpu\.cpp:\d+\].*can't allocate memory"),
    _rule(Label.CAPTURE_ERROR, _ERROR + r"Capture [\w -]*?(?:graph|draft extend) failed: "),
    _rule(Label.CAPTURE_ERROR, r"^Fail when using backend: "),
    _rule(Label.GPU_OCCUPIED, _ERROR + r"Free memory on device \S+ \([\d./]+ GiB\) on startup is"),
    _rule(Label.GPU_OCCUPIED, r"^RuntimeError: The memory capacity is unbalanced\. Some GPUs may be occupied"),
    _rule(Label.PORT_IN_USE, _ERROR + r"\[Errno (?:98|48)\] "),
    _rule(Label.PORT_IN_USE, _ERROR + r"Address already in use"),
    _rule(Label.PORT_IN_USE, _ERROR + r"Port (?:\d+ )?is already in use"),
    _rule(Label.MODEL_MISSING, _ERROR + r"We couldn't connect to '\S+' to load the files"),
    _rule(Label.MODEL_MISSING, _ERROR + r"\S+ is not a local folder and is not a valid model identifier"),
    _rule(Label.MODEL_MISSING, _ERROR + r"\S+ does not appear to have (?:a file|files) named"),
    _rule(Label.MODEL_MISSING, _ERROR + r"(?:Incorrect path_or_model_id|Repo id must|Cannot find any model weights)"),
    _rule(Label.MODEL_MISSING, r"^(?:[\w.]+\.)?(?:RepositoryNotFoundError|GatedRepoError): "),
    _rule(Label.MODEL_MISSING, r"^(?:[\w.]+\.)?LocalEntryNotFoundError: ", Weight.HINT),
    _rule(Label.MODEL_MISSING, r"^FileNotFoundError: .*(?:config\.json|safetensors)"),
    _rule(Label.WATCHDOG_HANG, r"^(?:\w+ )?[Ww]atchdog timeout \(self\.(?!.*soft=True)"),
    _rule(Label.HOST_OOM, r"^NVRM: .*NV_ERR_NO_MEMORY"),
    _rule(Label.HOST_OOM, r"^(?:\[[\d. ]+\] )?(?:Out of memory: Killed process|oom-kill:)"),
    _rule(Label.STOP_REQUESTED, r"^SIGTERM received\.|^Gracefully exiting\.\.\."),
    _rule(Label.HOST_OOM, _ERROR + r"Rank \d+ scheduler died during initialization \(exit code: -9\)", Weight.HINT),
    _rule(Label.HOST_OOM, r"^Subprocess \S+ \(pid=\d+\) crashed with exit code -9\.", Weight.HINT),
    _rule(Label.HOST_OOM, r"^Exit code: -9$", Weight.HINT),
)
_EXCEPTION = re.compile(r"^(?:[A-Za-z_][\w.]*\.)?[A-Z]\w*(?:Error|Exception)(?:: |$)|^Exception: ")
_FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)", line \d+(?:, in (?P<function>\w+))?')
# Functions and files of a traceback -> the part of the start (or of serving) that failed; first match wins.
_PLACES = (
    (Phase.GRAPH_DRAFT, re.compile(r"draft\w*_cuda_graph_runner")),
    (Phase.GRAPH_TARGET, re.compile(r"cuda_graph_runner|torch/cuda/graphs|init_cuda_graphs$")),
    (Phase.SERVING, re.compile(r" event_loop\w*$| run_batch$| forward_batch_generation$")),
    (Phase.KV_POOL, re.compile(r"mem_cache/(?!memory_pool_host)|pool_configurator| (?:init|alloc)_memory_pool$")),
    (Phase.WEIGHTS, re.compile(r"model_loader/| load_model$| create_weights$| get_model$")),
    (Phase.ARGS, re.compile(r"server_args\.py|/arg_groups/")),
)
_STATE_FRAME = re.compile(r"\b_init_mamba_pool$|mamba_pool\.py|swa_memory_pool\.py")
_MEMORY_LABELS = {
    Phase.WEIGHTS: Label.OOM_WEIGHTS,
    Phase.DRAFT_WEIGHTS: Label.OOM_WEIGHTS,
    Phase.KV_POOL: Label.OOM_KV_ALLOC,
    Phase.GRAPH_TARGET: Label.OOM_GRAPH_TARGET,
    Phase.GRAPH_DRAFT: Label.OOM_GRAPH_DRAFT,
    Phase.WARMUP: Label.RUNTIME_OOM,
    Phase.READY: Label.RUNTIME_OOM,
    Phase.SERVING: Label.RUNTIME_OOM,
}
# Where a label can only have one place, whatever the log shows of the start.
_FIXED_PHASES = {
    Label.FLAG_INVALID: Phase.ARGS,
    Label.KV_BUDGET: Phase.KV_POOL,
    Label.OOM_KV_ALLOC: Phase.KV_POOL,
    Label.STATE_POOL: Phase.KV_POOL,
    Label.OOM_GRAPH_TARGET: Phase.GRAPH_TARGET,
    Label.OOM_GRAPH_DRAFT: Phase.GRAPH_DRAFT,
    Label.RUNTIME_POOL: Phase.SERVING,
    Label.STOP_REQUESTED: Phase.SHUTDOWN,
}
# How SGLang refuses a combination of flags before it loads anything.
_REFUSALS = ("ValueError", "AssertionError", "NotImplementedError", "TypeError")


@dataclass(frozen=True, slots=True)
class _Finding:
    label: Label
    phase: Phase
    evidence: str
    number: int
    weight: Weight


class _Reading:
    """One pass over a log: the best finding so far, and the traceback that is being read."""

    def __init__(self) -> None:
        self.timeline = StartupTimeline()
        self.best: _Finding | None = None
        self.last = ""
        self.last_number = 0
        self.ends_itself = False
        self.place: Phase | None = None
        self._in_state_pool = False
        self._rank = ""

    def take(self, segment: Segment) -> None:
        """Take in one line or bar."""
        text = segment.text.strip()
        self.last, self.last_number = text, segment.number
        if segment.is_bar:
            self.timeline.advance(text, 0.0, is_bar=True)
            return
        line = clean(segment.text)
        self.timeline.take(line, 0.0)
        self.ends_itself = self.ends_itself or line.message.startswith("kill_process_tree called")
        if line.stamp or line.rank:
            self._rank = line.rank
        if "Traceback (most recent call last)" in line.message:
            self.place, self._in_state_pool = None, False
        if frame := _FRAME.match(line.message):
            self._frame(f"{frame['file']} {frame['function'] or ''}")
            return
        # A wrapped frame: the function is on a line of its own.
        self._in_state_pool = self._in_state_pool or bool(_STATE_FRAME.search(line.message))
        found = self._judge(line)
        if found is not None and (self.best is None or found[1] > self.best.weight):
            label, weight = found
            self.best = _Finding(label, self._phase(label), text, segment.number, weight)

    def _frame(self, frame: str) -> None:
        """Later frames are deeper; the outermost that names a place of the start decides, but drafts beat targets."""
        self._in_state_pool = self._in_state_pool or bool(_STATE_FRAME.search(frame))
        for place, pattern in _PLACES:
            if pattern.search(frame):
                if self.place is None or (self.place is Phase.GRAPH_TARGET and place is Phase.GRAPH_DRAFT):
                    self.place = place
                return

    def _judge(self, line: LogLine) -> tuple[Label, Weight] | None:
        message = line.message.strip()
        for rule in RULES:
            if rule.pattern.search(message):
                label = rule.label or self._memory_label(message)
                return (label, Weight.EXCEPTION if label is Label.UNKNOWN else rule.weight)
        if not _EXCEPTION.match(message):
            return None
        where = self.place or self._now()
        refused = message.startswith(_REFUSALS) or (self.place is Phase.ARGS and message.startswith("RuntimeError"))
        if where is Phase.ARGS and refused:
            return (Label.CONFIG_CONFLICT, Weight.EXCEPTION)
        if where in {Phase.GRAPH_TARGET, Phase.GRAPH_DRAFT}:
            return (Label.CAPTURE_ERROR, Weight.EXCEPTION)
        return (Label.UNKNOWN, Weight.EXCEPTION)

    def _memory_label(self, message: str) -> Label:
        """Which memory ran out: by the frames of the traceback, else by the last marker of that rank."""
        if self._in_state_pool:
            return Label.STATE_POOL
        now = self._now()
        if re.match(r".*Capture [\w -]*?(?:graph|draft extend) failed", message) or self.place is Phase.GRAPH_TARGET:
            is_draft = now is Phase.GRAPH_DRAFT or self.place is Phase.GRAPH_DRAFT or "draft" in message[:60]
            return Label.OOM_GRAPH_DRAFT if is_draft else Label.OOM_GRAPH_TARGET
        if "DefaultCPUAllocator" in message and self.place is not Phase.KV_POOL:
            return Label.HOST_OOM
        if "Failed to create" in message and "weights" in message:
            return Label.OOM_WEIGHTS
        return _MEMORY_LABELS.get(self.place or now, Label.UNKNOWN)

    def _phase(self, label: Label) -> Phase:
        now = self._now()
        if label is Label.OOM_WEIGHTS:
            return Phase.DRAFT_WEIGHTS if now is Phase.DRAFT_WEIGHTS else Phase.WEIGHTS
        if label in _FIXED_PHASES:
            return _FIXED_PHASES[label]
        return now if now not in {Phase.LAUNCH, Phase.ARGS} else self.place or now

    def _now(self) -> Phase:
        return self.timeline.phase_of(self._rank)


def diagnose(
    log: Iterable[Segment],
    *,
    exit_code: int | None = None,
    stopped_at_line: int | None = None,
    timed_out: str | None = None,
    oom_kills: int = 0,
) -> Diagnosis:
    """The verdict on a dead server, or on one that we gave up.

    `stopped_at_line`: how many lines the log had when we asked the server to stop; what it says after that is about the
    stop. `timed_out`: in words, in what way its start takes too long; a cause in the log still comes first.
    `oom_kills`: how many processes the host's kernel killed for lack of memory while the server lived.
    The evidence is never empty; it has line number 0 where no line shows it.
    """
    reading = _Reading()
    for segment in log:
        if stopped_at_line is not None and segment.number > stopped_at_line:
            break
        reading.take(segment)
    if timed_out is not None and (reading.best is None or reading.best.weight is not Weight.CAUSE):
        told = f"{timed_out}; last line: {reading.last}" if reading.last else f"{timed_out}, without a line in its log"
        phase = reading.timeline.phase
        return Diagnosis(Label.START_TIMEOUT, phase, told[:EVIDENCE_LENGTH], reading.last_number, exit_code)
    return _verdict(reading, exit_code, stopped=stopped_at_line is not None, oom_kills=oom_kills)


def _verdict(reading: _Reading, exit_code: int | None, *, stopped: bool, oom_kills: int) -> Diagnosis:
    best, phase = reading.best, reading.timeline.phase
    last = (reading.last[:EVIDENCE_LENGTH], reading.last_number)
    if best is not None and best.weight is Weight.CAUSE:
        return _told(best, exit_code)
    if stopped:
        evidence = last if reading.last else ("stopped before it wrote a line", 0)
        return Diagnosis(Label.STOP_REQUESTED, phase, *evidence, exit_code)
    if best is not None and (best.weight is Weight.HINT or best.label is not Label.UNKNOWN):
        return _told(best, exit_code)
    if oom_kills and exit_code in SIGKILLED and not reading.ends_itself:
        why = f"meanwhile the kernel of the host ended {oom_kills} process(es) for lack of memory"
        return Diagnosis(Label.HOST_OOM, phase, ending(exit_code, reading.last, why), 0, exit_code)
    if reading.place in {Phase.GRAPH_TARGET, Phase.GRAPH_DRAFT}:
        return Diagnosis(Label.CAPTURE_ERROR, reading.place, *last, exit_code)
    if best is not None:
        return _told(best, exit_code)
    # The last words of a program that ends with an error of its own are about it; before a signal they are not.
    is_error = exit_code is not None and exit_code > 0 and exit_code not in SIGKILLED | SIGTERMED
    evidence = last if reading.last and is_error else (ending(exit_code, reading.last), 0)
    label = _by_exit_code(exit_code, reading)
    where = phase if phase not in {Phase.LAUNCH, Phase.ARGS} else reading.place or phase
    return Diagnosis(label, where, *evidence, exit_code)


def ending(exit_code: int | None, last: str, why: str = "") -> str:
    """How it ended and what is known of why, in words."""
    how = "ended without an exit code" if exit_code is None else f"ended with exit code {exit_code}"
    if exit_code is not None and (name := _SIGNALS.get(-exit_code)):
        how = f"ended by {name}"
    elif exit_code is not None and (name := _SIGNALS.get(exit_code - 128)):
        how = f"{how} ({name})"
    if not last:
        return f"{how} without a word{why and '; '}{why}"
    return f"{how}; {why or 'the log says nothing about why'} (last line: {last})"[:EVIDENCE_LENGTH]


def _told(finding: _Finding, exit_code: int | None) -> Diagnosis:
    evidence = finding.evidence[:EVIDENCE_LENGTH]
    return Diagnosis(finding.label, finding.phase, evidence, finding.number, exit_code)


def _by_exit_code(exit_code: int | None, reading: _Reading) -> Label:
    """What the code alone can tell when the log says nothing."""
    if exit_code == 127:
        return Label.COMMAND_NOT_FOUND
    if exit_code == 2 and reading.timeline.phase in {Phase.LAUNCH, Phase.ARGS}:
        return Label.FLAG_INVALID
    if exit_code in SIGTERMED:
        return Label.STOP_REQUESTED
    return Label.UNKNOWN
