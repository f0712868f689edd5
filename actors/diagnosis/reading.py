"""One pass over a log: what it shows of the start, and the line that tells most about the death. Pure."""

from __future__ import annotations

import re
from dataclasses import replace

from actors.diagnosis.capture_rules import GRAPH_FAILED
from actors.diagnosis.exceptions import SERVING, is_echo, label_of_exception
from actors.diagnosis.finding import MEMORY_LABELS, ONLY_PLACE, Finding
from actors.diagnosis.place import Frames, Place
from actors.diagnosis.rule import Message, Rule, Weight, lay_open
from actors.diagnosis.rulebook import SUSPECT, rule_for
from actors.servers.follower import Segment
from actors.servers.log_line import LogLine, clean
from actors.servers.startup import MARKERS, StartupTimeline
from orchestrator.outcome import Label, Phase

EVIDENCE_LENGTH = 500
# A message that is wrapped goes on for no more lines than this.
_WRAPPED_LINES = 6
# A rank that works on so many batches after an exception has survived it; others than the rank itself may go on for
# some seconds until they are ended.
_SIGNS_OF_LIFE, _SIGNS_OF_OTHERS = 2, 40
_NOT_WRAPPED = ("Possible ", "The above", "During ", "Traceback", "CUDA kernel errors", "raise ")
_FRAME = re.compile(r'File \\?"|, in \w|line \d+, in')
# "Capture cuda graph", and on the next line what became of it.
_CUT_CAPTURE = re.compile(r"\bCapture\b[\w -]*$")
# A shell's account of a SIGKILL, whoever sent it.
_KILLED = re.compile(r"^Killed$|^\S+: line \d+: +\d+ Killed\b")
# "Failed to create unquantized linear weights: CUDA out of memory": layers are made while weights are loaded.
_LAYER_FAILED = re.compile(r"Failed to (?:create|initialize|load|repack|quantize) [^:]{1,80}: ")
# Memory of graphs in an out-of-memory that is not one of a capture: they were captured before.
_GRAPHS_THERE = "allocated in private pools (e.g., CUDA Graphs)"
_UNTOLD = frozenset({Phase.LAUNCH, Phase.ARGS})
# A request of somebody else than the server's own warm-up was answered.
_ANSWERED = re.compile(r'INFO: +\S+:\d+ - "POST /v1/\S* HTTP/[\d.]+" 200\b')


class Reading:
    """Give it every line and bar in order."""

    def __init__(self) -> None:
        self.earlier: Finding | None = None
        self.last, self.last_number = "", 0
        self._begin()

    def _begin(self) -> None:
        self.timeline = StartupTimeline()
        self.best: Finding | None = None
        self.note: Finding | None = None
        self.aside: Finding | None = None
        self.is_answering = False
        self.place = Place()
        self._frames = Frames()
        self.broken_at: Phase | None = None
        self.is_starting = False
        self.has_trouble = False
        self.ends_itself = False
        self.killed_at: tuple[str, int] | None = None
        self.stamp = ""
        self._rank = ""
        self._fatal = self._of_request = False
        self._was_calm, self._is_head = True, False
        self._wrapped: list[str] = []
        self._open: Finding | None = None
        self._open_lines = 0

    @property
    def found(self) -> Finding | None:
        """The best finding of the last start; that of the one before if the last shows nothing and never got ready."""
        return self.best or (None if self.timeline.is_ready else self.earlier)

    def take(self, segment: Segment) -> None:
        """Take in one line or bar."""
        text, gap = segment.text, segment.number - self.last_number
        self.last, self.last_number = text, segment.number
        if segment.is_bar:
            self.timeline.advance(text.strip(), 0.0, is_bar=True)
            return
        suspect = SUSPECT.search(text.lower()) is not None
        if not (suspect or self._wrapped or self._open or self._frames.is_open or self._is_telling(text)):
            return
        line = clean(text)
        if line.message.startswith("server_args=") and (self.best or self.ends_itself or self.timeline.is_ready):
            self.earlier = self.best or self.earlier
            self._begin()
        self.timeline.take(line, 0.0)
        self.is_answering = self.is_answering or _ANSWERED.match(line.message) is not None
        self._is_head = bool(line.stamp or line.rank)
        if self._is_head:
            self._head(line)
        elif gap > 2:
            self._wrapped, self._open = [], None
        if not self._frame(line.message):
            self._judge(line, text.strip(), suspect=suspect)

    def _is_telling(self, text: str) -> bool:
        if self.timeline.phase is Phase.SERVING:
            return " batch" in text or _FRAME.search(text) is not None or "server_args=" in text
        if self.timeline.phase in {Phase.LAUNCH, Phase.READY}:
            return True  # whatever comes next ends these
        if self.timeline.phase is Phase.ARGS and '" 200' in text:
            return True
        return MARKERS.search(text) is not None or _FRAME.search(text) is not None

    def _head(self, line: LogLine) -> None:
        """A line with a stamp or a rank begins a new message."""
        self._wrapped, self._open = [], None
        self._rank, self.stamp = line.rank, line.stamp or self.stamp
        self._fatal = "hit an exception" in line.message
        self._was_calm = not self.has_trouble
        self._of_request = line.message.startswith("Error in request: ")
        if line.message.startswith(("Decode batch", "Prefill batch")):
            self._lives(line.rank)

    def _lives(self, rank: str) -> None:
        """Work after an exception: if it goes on, one request failed, or nothing did."""
        best = self.best
        if best is None or best.label is Label.STOP_REQUESTED or (best.rank and best.rank != rank):
            return
        best.signs_of_life += 1
        if best.signs_of_life >= (_SIGNS_OF_OTHERS if best.fatal and not best.rank else _SIGNS_OF_LIFE):
            self.note = replace(best, label=Label.BENIGN, weight=Weight.NOTE, phase=Phase.SERVING)
            self.best, self.place, self.broken_at, self.has_trouble = None, Place(), None, False

    def _frame(self, message: str) -> bool:
        """Whether this is a line of a traceback."""
        if "Traceback (most recent call last)" in message:
            self.has_trouble = self.has_trouble or not self._of_request
            self.place = Place()
        told = self._frames.told(message)
        if told is None:
            return False
        self._wrapped, self._open = [], None
        if self._of_request:
            return True
        self.has_trouble = True
        self.place.take(told)
        self.broken_at = self.place.phase or self.broken_at
        self.is_starting = self.is_starting or self.place.is_starting
        return True

    def _judge(self, line: LogLine, text: str, *, suspect: bool) -> None:
        message = line.message.strip()
        if message.startswith(("kill_process_tree called", "SIGQUIT received")) or "Received sigquit" in message:
            self.ends_itself = self.has_trouble = True
            return
        if _KILLED.search(message):
            self.has_trouble, self.killed_at = True, (text, self.last_number)
            return
        if self._open is not None and not (line.stamp or line.rank):
            self._go_on(message)
        is_cut = bool(self._wrapped) and self._is_cut_capture()
        found = self._joined(message) if is_cut else None
        found = self._found(lay_open(message), text) if suspect and found is None else found
        if found is None and self._wrapped and not is_cut:
            found = self._joined(message)
        if found is None and suspect and is_echo(lay_open(message)):
            self.has_trouble = True
            self.broken_at = self.broken_at or Phase.SPAWN  # there were processes
        if found is not None and found.weight is not Weight.NOTE and not self._is_better(found):
            found = None
        if found is None:
            continues = suspect or bool(self._wrapped)
            self._wrapped = [*self._wrapped, message][-3:] if continues and len(message) < 300 else []
            return
        # An exception that no rule knows may be the first half of one that a rule does.
        is_half = found.rule in {None, GRAPH_FAILED} and len(message) < 300
        self._wrapped, self._open_lines = [message] if is_half else [], 0
        self._open = found if found.rule is not None and found.rule.wraps else None
        if found.weight is Weight.NOTE:
            self._note(found)
        else:
            if self.best is not None and found.phase is None and self.best.label is found.label:
                found.phase = self.best.phase or (self.best.rule.usual if self.best.rule is not None else None)
            self.best = found

    def _note(self, found: Finding) -> None:
        if found.rule is not None and found.rule.aside:
            self.aside = self.aside or found
            return
        self.note = self.note or found
        self._of_request = found.rule is not None and found.rule.name == "request_failed"

    def _is_cut_capture(self) -> bool:
        """Whether the line before tells of a capture, and what became of it may stand on this one."""
        best = self.best
        is_half = (
            best is not None and best.rule is GRAPH_FAILED and self.last_number - best.number <= len(self._wrapped)
        )
        return is_half or _CUT_CAPTURE.search(self._wrapped[-1]) is not None

    def _is_better(self, found: Finding) -> bool:
        best = self.best
        if best is None:
            return True
        if found.number == best.number and found.rule is not None and best.rule in {None, GRAPH_FAILED}:
            return True  # the whole of a message whose first half was judged
        if best.label is Label.OUT_OF_MEMORY and found.label in MEMORY_LABELS.values():
            return True  # the exception that followed on it tells the place
        if found.label is Label.STOP_REQUESTED and best.fatal:
            return False  # somebody cleans up after a death
        return found.weight > best.weight and not (best.is_conclusive and found.weight is Weight.HINT)

    def _go_on(self, message: str) -> None:
        """The rest of a wrapped message: its numbers may stand there."""
        finding = self._open
        if finding is None or self._open_lines >= _WRAPPED_LINES or message.startswith(_NOT_WRAPPED):
            self._open = None
            return
        self._open_lines += 1
        finding.rest += f" {message}"
        if finding.rule is not None and finding.rule.decide is not None:
            finding.label = finding.rule.decide(finding.message + finding.rest)

    def _joined(self, message: str) -> Finding | None:
        """A message that a terminal cut: between words, or anywhere."""
        half: Finding | None = None
        for glue in (" ", ""):
            for first in range(len(self._wrapped)):
                begun = glue.join(self._wrapped[first:])
                opened = lay_open(f"{begun}{glue}{message}")
                rule = rule_for(opened)
                if rule is not None:
                    told = self._finding(rule, opened, f"{begun}{glue}{message}")
                    told.number -= len(self._wrapped) - first
                    if rule is not GRAPH_FAILED:
                        return told
                    half = half or told
        return half

    def _found(self, message: Message, text: str) -> Finding | None:
        rule = rule_for(message)
        if rule is not None:
            warns = rule.raised and self._is_head and message.is_plain
            return None if warns else self._finding(rule, message, text)
        if not message.is_exception or self._of_request:
            return None
        self.has_trouble = True
        if is_echo(message):
            return None
        now = self._now()
        if self.place.is_request and now is Phase.SERVING and not self._fatal:
            self.has_trouble, self.broken_at = not self._was_calm, None
            return self._made(Label.BENIGN, now, message, text, Weight.NOTE, None)
        label = label_of_exception(message.whole, self.place.phase, now, fatal=self._fatal)
        phase = self._phase(label, None)
        return self._made(label, phase, message, text, Weight.EXCEPTION, None)

    def _finding(self, rule: Rule, message: Message, text: str) -> Finding:
        label = rule.label if rule.label is not None else self._memory_label(message)
        if rule.decide is not None:
            label = rule.decide(message.whole)
        weight = Weight.NOTE if label is Label.BENIGN else rule.weight
        if label is Label.NCCL_INIT and self._now() is Phase.SERVING:
            label, weight = Label.PEER_RANK_FAILED, Weight.HINT  # it had been set up: a rank or the network broke since
        self.has_trouble = self.has_trouble or weight is not Weight.NOTE
        return self._made(label, rule.fixed or self._phase(label, message), message, text, weight, rule)

    def _made(
        self, label: Label, phase: Phase | None, message: Message, text: str, weight: Weight, rule: Rule | None
    ) -> Finding:
        return Finding(
            label, phase, text, message.whole, self.last_number, weight, rule, self._rank, self.stamp, self._fatal
        )

    def _now(self) -> Phase:
        """Where this rank is by its own last mark; a server that answers HTTP has all its ranks behind their start."""
        server = self.timeline.phase
        if server in {Phase.READY, Phase.SERVING} or (self.is_answering and server in _UNTOLD):
            return Phase.SERVING
        return server if server is Phase.WARMUP else self.timeline.phase_of(self._rank)

    def _memory_label(self, message: Message) -> Label:
        """Which memory ran out: by the frames of the traceback, else by the last marker of that rank."""
        now, place = self._now(), self.place.phase
        if self.place.is_host_pool or ("DefaultCPUAllocator" in message.whole and place is not Phase.KV_POOL):
            return Label.HOST_OOM
        if message.captured is not None or place in {Phase.GRAPH_TARGET, Phase.GRAPH_DRAFT}:
            is_draft = Phase.GRAPH_DRAFT in {now, place} or "draft" in (message.captured or "")
            return Label.OOM_GRAPH_DRAFT if is_draft else Label.OOM_GRAPH_TARGET
        if _LAYER_FAILED.match(message.body) and (place or now) in _UNTOLD | {Phase.SPAWN, Phase.WEIGHTS}:
            return Label.OOM_WEIGHTS
        return MEMORY_LABELS.get(now if now in SERVING else place or now, Label.OUT_OF_MEMORY)

    def _phase(self, label: Label, message: Message | None) -> Phase | None:
        now = self._now()
        if label is Label.OOM_WEIGHTS:
            return Phase.DRAFT_WEIGHTS if Phase.DRAFT_WEIGHTS in {now, self.place.phase} else Phase.WEIGHTS
        if label in ONLY_PLACE:
            return ONLY_PLACE[label]
        if message is not None and message.captured is not None and now in _UNTOLD:
            is_draft = Phase.GRAPH_DRAFT is self.place.phase or "draft" in message.captured
            return Phase.GRAPH_DRAFT if is_draft else Phase.GRAPH_TARGET
        if label is Label.OUT_OF_MEMORY and message is not None and _GRAPHS_THERE in message.whole:
            return Phase.SERVING
        return self.place.phase if now in _UNTOLD else now
