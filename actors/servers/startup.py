"""What a start-up log says: the phase that the server is in, the time and free memory of each, its capacities. Pure.

A fold over log lines with the seconds at which they came. The spellings are those of SGLang 0.3 to 0.5.23.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from actors.servers.log_line import LogLine, clean
from orchestrator.outcome import Phase, PhaseFact
from orchestrator.server_start import StartProgress

READY_WORDS = "The server is fired up and ready to roll!"
# Of a rank on another host than rank 0: its schedulers are up, and it waits for what rank 0 says.
FOLLOWER_WORDS = "Dummy health check server started"

_AVAILABLE = re.compile(r"\bavail(?:able_[a-z]+)?[_ ]mem=(?P<gib>-?\d+(?:\.\d+)?) ?GB")
_COUNT = re.compile(r"(?P<done>\d+)/(?P<total>\d+) \[")
_GRAPH = re.compile(
    r"^Capture (?P<name>(?:[\w-]+ )*?)(?:CUDA|cuda|NPU|npu|CPU|cpu) graph (?P<edge>begin|end)\b", re.ASCII
)
_KV_TOKENS = re.compile(r"KV Cache (?:is allocated|VA upper bound)\..*?#tokens: (?P<tokens>\d+)")
_CAPACITY = re.compile(
    r"^max_total_num_tokens=(?P<tokens>\d+), .*?max_running_requests=(?P<requests>\d+), context_len=(?P<context>\d+)"
)
# First words of a line -> the phase that the line begins.
_BEGINNINGS = (
    ("server_args=", Phase.SPAWN),
    ("Init parallel begin", Phase.DIST_INIT),
    ("Init torch distributed begin", Phase.DIST_INIT),
    ("Using draft model load_format", Phase.DRAFT_WEIGHTS),
    ("Loading weights took", Phase.WEIGHTS),  # vLLM
    ("Starting to load model", Phase.WEIGHTS),  # vLLM
    ("GPU KV cache size:", Phase.KV_POOL),  # vLLM
    ("Mamba Cache is allocated", Phase.KV_POOL),
    ("Use sliding window memory pool", Phase.KV_POOL),
    ("INFO:     Started server process", Phase.HTTP_BIND),
    ("INFO:     Uvicorn running on", Phase.WARMUP),
    ("SIGTERM received.", Phase.SHUTDOWN),
    ("Gracefully exiting...", Phase.SHUTDOWN),
)
# What an excerpt that begins in the middle shows of where it is; in a whole log other lines tell that before.
_SIGNS = (
    ("[Gloo] Rank", Phase.DIST_INIT),
    ("sglang is using nccl", Phase.DIST_INIT),
    ("Using KV cache dtype", Phase.KV_POOL),
    ("DSV4 memory calculation", Phase.KV_POOL),
    ("Graph capturing finished", Phase.GRAPH_TARGET),  # vLLM
    ("Start of pd disaggregation warmup", Phase.WARMUP),
    ("End of disaggregation warmup", Phase.WARMUP),
    ("Decode batch", Phase.SERVING),
    ("Prefill batch", Phase.SERVING),
)
_BARS = (
    ("Capturing", Phase.GRAPH_TARGET),
    ("checkpoint shards", Phase.WEIGHTS),
    ("loading shards", Phase.WEIGHTS),
    ("Fetching ", Phase.WEIGHTS),
    ("Downloading shards", Phase.WEIGHTS),
)
# A line without any of these says nothing of a start, except that one has begun.
MARKERS = re.compile(
    r"server_args=|Init (?:parallel|torch)|draft model|Load weight |Loading weights took|Starting to load model"
    r"|[Mm]emory pool|Mamba Cache|KV Cache |KV cache size|max_total_num_tokens=|Capture |Started server|Uvicorn running"
    r"|SIGTERM received|Gracefully exiting|fired up|Dummy health|(?:Decode|Prefill) batch|avail|\[Gloo\]|using nccl"
    r"|KV cache dtype|DSV4 "
    r"|Graph capturing|disaggregation warmup"
)
_BEFORE_READY = frozenset(Phase) - {Phase.READY, Phase.SERVING, Phase.SHUTDOWN}


@dataclass(slots=True)
class _Rank:
    """Where one rank is, and how many weight loads it began."""

    phase: Phase = Phase.LAUNCH
    loads: int = 0


class StartupTimeline:
    """Give it every line and bar in order; `advance` says whether anything worth telling changed."""

    def __init__(self) -> None:
        self.phase = Phase.LAUNCH
        self.done: int | None = None
        self.total: int | None = None
        self.free_gib: float | None = None
        self.kv_tokens: int | None = None
        self.max_running_requests: int | None = None
        self.context_length: int | None = None
        self._facts: dict[Phase, PhaseFact] = {Phase.LAUNCH: PhaseFact(Phase.LAUNCH, 0.0)}
        self._ranks: dict[str, _Rank] = {}

    @property
    def is_ready(self) -> bool:
        """Whether the server has said its ready words."""
        return Phase.READY in self._facts

    @property
    def phases(self) -> tuple[PhaseFact, ...]:
        """The phases so far, in the order in which the first rank reached them."""
        return tuple(self._facts.values())

    def phase_of(self, rank: str) -> Phase:
        """Where this rank is by its own last marker; the server's phase for lines without a rank tag."""
        return self._ranks[rank].phase if rank in self._ranks else self.phase

    def progress(self, trial_id: str, elapsed_s: float) -> StartProgress:
        """The present state as an event."""
        return StartProgress(trial_id, self.phase, round(elapsed_s, 3), self.done, self.total, self.free_gib)

    def advance(self, text: str, at_s: float, *, is_bar: bool = False) -> bool:
        """Take in a line or a bar that came at `at_s` seconds; True if phase, count or free memory changed."""
        before = (self.phase, self.done, self.total, self.free_gib)
        if is_bar:
            self._bar(text, at_s)
        else:
            self.take(clean(text), at_s)
        return before != (self.phase, self.done, self.total, self.free_gib)

    def take(self, line: LogLine, at_s: float) -> None:
        """Take in a line that is already cleaned."""
        message = line.message
        if self.phase is Phase.LAUNCH:
            self._enter(Phase.ARGS, line.rank, at_s)
        for words, phase in _BEGINNINGS:
            if message.startswith(words):
                self._enter(phase, line.rank, at_s)
                return
        if message.startswith((READY_WORDS, FOLLOWER_WORDS)):
            self._enter(Phase.READY, line.rank, at_s)
        elif self.phase is Phase.READY:
            self._enter(Phase.SERVING, line.rank, at_s)
        elif self.phase is Phase.ARGS and (sign := _sign(message)) is not None:
            self._enter(sign, line.rank, at_s)
        elif self.phase in _BEFORE_READY:
            self._startup_line(message, line.rank, at_s)

    def _startup_line(self, message: str, rank: str, at_s: float) -> None:
        graph = _GRAPH.match(message)
        if graph:
            self._graph(graph, message, rank, at_s)
        elif message.startswith("Load weight begin"):
            self._load_begins(message, rank, at_s)
        elif message.startswith("Load weight end"):
            self._end(self._weights_phase(rank), message, at_s)
            self._enter(Phase.KV_POOL, rank, at_s)
        elif message.startswith("Memory pool end"):
            self._enter(Phase.KV_POOL, rank, at_s)
            self._end(Phase.KV_POOL, message, at_s)
        elif tokens := _KV_TOKENS.search(message):
            self._enter(Phase.KV_POOL, rank, at_s)
            self._kv(int(tokens["tokens"]))
        elif capacity := _CAPACITY.match(message):
            self._capacity(capacity, message, rank, at_s)

    def _enter(self, phase: Phase, rank: str, at_s: float) -> None:
        """A rank is in this phase; the first one to get there moves the server."""
        self._ranks.setdefault(rank, _Rank()).phase = phase
        if phase in self._facts:
            return
        pool = self._facts.get(Phase.KV_POOL)
        if phase is Phase.DRAFT_WEIGHTS and pool is not None and pool.free_gib is None:
            # The end of the target's weights looked like the begin of the pools, but the draft's come first.
            del self._facts[Phase.KV_POOL]
            self.phase = Phase.WEIGHTS
        left = self._facts[self.phase]
        if left.ended_s is None:
            self._facts[self.phase] = replace(left, ended_s=at_s)
        self._facts[phase] = PhaseFact(phase, at_s)
        self.phase = phase
        self.done = self.total = None

    def _end(self, phase: Phase, message: str, at_s: float) -> None:
        """A rank has left this phase; the last one to do so ends it, the fullest one tells the free memory."""
        fact = self._facts.get(phase)
        if fact is None:
            fact = PhaseFact(phase, at_s)
        free = _free(message)
        least = min((gib for gib in (fact.free_gib, free) if gib is not None), default=None)
        self._facts[phase] = replace(fact, ended_s=at_s, free_gib=least)
        self.free_gib = free if free is not None else self.free_gib

    def _load_begins(self, message: str, rank: str, at_s: float) -> None:
        """The second load of a rank is the draft's. What is free before the first is what is free after the init."""
        self._ranks.setdefault(rank, _Rank()).loads += 1
        self._enter(self._weights_phase(rank), rank, at_s)
        self.free_gib = _free(message)
        before = self._facts.get(Phase.DIST_INIT)
        if self._ranks[rank].loads == 1 and before is not None and self.free_gib is not None:
            least = min(self.free_gib, self.free_gib if before.free_gib is None else before.free_gib)
            self._facts[Phase.DIST_INIT] = replace(before, free_gib=least)

    def _weights_phase(self, rank: str) -> Phase:
        state = self._ranks.get(rank, _Rank())
        is_draft = state.loads > 1 or state.phase is Phase.DRAFT_WEIGHTS
        return Phase.DRAFT_WEIGHTS if is_draft else Phase.WEIGHTS

    def _graph(self, graph: re.Match[str], message: str, rank: str, at_s: float) -> None:
        phase = Phase.GRAPH_DRAFT if "draft" in graph["name"] else Phase.GRAPH_TARGET
        self._enter(phase, rank, at_s)
        fact = self._facts[phase]
        names = dict.fromkeys([*filter(None, fact.detail.split(", ")), graph["name"].strip() or "decode"])
        self._facts[phase] = replace(fact, detail=", ".join(names))
        if graph["edge"] == "end":
            self._end(phase, message, at_s)
        elif (free := _free(message)) is not None:
            self.free_gib = free

    def _kv(self, tokens: int) -> None:
        self.kv_tokens = tokens if self.kv_tokens is None else min(self.kv_tokens, tokens)
        self._facts[Phase.KV_POOL] = replace(self._facts[Phase.KV_POOL], detail=f"{self.kv_tokens} tokens")

    def _capacity(self, capacity: re.Match[str], message: str, rank: str, at_s: float) -> None:
        """The scheduler is up; this line is its own account, above what the pool lines said."""
        self._enter(Phase.HTTP_BIND, rank, at_s)
        self.kv_tokens = int(capacity["tokens"])
        self.max_running_requests = int(capacity["requests"])
        self.context_length = int(capacity["context"])
        self.free_gib = _free(message)
        detail = f"{self.kv_tokens} tokens, {self.max_running_requests} running requests"
        self._facts[Phase.HTTP_BIND] = replace(self._facts[Phase.HTTP_BIND], free_gib=self.free_gib, detail=detail)

    def _bar(self, text: str, at_s: float) -> None:
        if self.phase in {Phase.LAUNCH, Phase.ARGS, Phase.SPAWN}:  # an excerpt: nothing came before the bar
            begun = next((phase for words, phase in _BARS if words in text), None)
            if begun is not None:
                self._enter(begun, "", at_s)
        count = _COUNT.search(text)
        if count and self.phase in _BEFORE_READY:
            self.done, self.total = int(count["done"]), int(count["total"])
        free = _free(text)
        self.free_gib = self.free_gib if free is None else free


def _sign(message: str) -> Phase | None:
    return next((phase for words, phase in _SIGNS if message.startswith(words)), None)


def _free(text: str) -> float | None:
    found = _AVAILABLE.search(text)
    return float(found["gib"]) if found else None
