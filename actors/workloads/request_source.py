"""The requests of a point by number: the same whoever sends them, when, and to which server. Pure but for files.

Sessions are numbered from 0, a single request being a session of one turn; the requests of a session follow each other,
so that request 7 of a point is one certain turn of one certain session. Only answers come from outside.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property

from actors.workloads.length_draw import draw
from actors.workloads.session_script import Place, SessionScript, user_turns
from actors.workloads.tokenizer import PromptTokens
from actors.workloads.workload import CHARACTERS_PER_TOKEN, TOKEN_IDS, PromptSource, text_kind
from actors.workloads.workload_hash import workload_hash
from orchestrator.scenarios.arrival_check import check_arrival
from orchestrator.traffic import POISSON, Traffic
from orchestrator.trial import PointSpec, content_hash


@dataclass(frozen=True, slots=True)
class _Entry:
    """One session: which kind, how many requests before it and in it, how many sessions of its kind before it."""

    kind: int
    first: int
    turns: int
    rank: int


class RequestSource:
    """The requests of one point. `repeat` tells apart the points that measure the same spec on several server starts.

    Stages of a point (`probe`, `warmup`, `measured`, `prime`, `profile`) share no prompt. BadInput if a dataset cannot
    be read or does not fit the spec.
    """

    def __init__(self, spec: PointSpec, *, repeat: int = 0, token_ids: range = TOKEN_IDS) -> None:
        check_arrival(spec.arrival, spec.level)
        self.spec = spec
        self.salt = salt_of(spec, repeat)
        self._mix = spec.mix
        texts = {text_kind(traffic.dataset) for traffic in self._mix}
        tokens = {text: PromptTokens(spec.tokenizer, text) for text in texts}
        self._kinds = [
            PromptSource(spec, traffic, self.salt, tokens[text_kind(traffic.dataset)], self._room(traffic), token_ids)
            for traffic in self._mix
        ]
        self._has_sessions = any(t.session is not None for t in self._mix) and spec.level.kind != "trace"
        self._weights = [traffic.weight for traffic in self._mix]
        self._tables: dict[str, list[_Entry]] = {}
        self._ranks: dict[str, list[int]] = {}

    def _room(self, traffic: Traffic) -> int:
        """Characters of the longest first prompt with the same sort of text."""
        alike = [t for t in self._mix if text_kind(t.dataset) == text_kind(traffic.dataset)]
        return round(max(t.input_tokens.most for t in alike) * CHARACTERS_PER_TOKEN)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know of the prompts, each once."""
        return tuple(dict.fromkeys(note for source in self._kinds for note in source.notes))

    @cached_property
    def workload_hash(self) -> str:
        """What is sent, as a hash."""
        return workload_hash(self.spec)

    @property
    def trace_due_s(self) -> list[float]:
        """When the requests of the trace were recorded, empty without one."""
        return [request.due_s for request in self._kinds[0].trace]

    def turns(self, number: int, stage: str) -> int:
        """How many requests a session consists of."""
        return self._entry(number, stage).turns if self._has_sessions else 1

    def first_request(self, number: int, stage: str) -> int:
        """The number of a session's first request."""
        return self._entry(number, stage).first

    def sessions_of(self, requests: int, stage: str) -> list[int]:
        """How many requests each of the first sessions sends so that they are `requests` together."""
        if not self._has_sessions:
            return [1] * requests
        found: list[int] = []
        left = requests
        while left > 0:
            found.append(min(self.turns(len(found), stage), left))
            left -= found[-1]
        return found

    def script(self, number: int, stage: str) -> SessionScript:
        """A session. Its prompts are built when they are asked for."""
        entry = self._entry(number, stage)
        own = f"{self.salt}-{stage}{number}"
        traffic = self._mix[entry.kind]
        group = random.Random(f"{own}-group").randrange(traffic.prefix_groups) if traffic.prefix_groups > 1 else 0
        return self._script(entry, number, stage, group)

    def _script(self, entry: _Entry, number: int, stage: str, group: int) -> SessionScript:
        source = self._kinds[entry.kind]
        traced = source.trace[number % len(source.trace)] if source.trace else None
        if traced is not None:
            session = None if traced.session is None else self._trace_sessions[traced.session]
        else:
            session = None if source.traffic.session is None else number
        own, chat = f"{self.salt}-{stage}{number}", self.spec.api == "chat"
        place = Place(number, stage, own, entry.rank, entry.turns, group, chat, traced, session)
        return SessionScript(source, place)

    @cached_property
    def _trace_sessions(self) -> dict[str, int]:
        names = dict.fromkeys(request.session for request in self._kinds[0].trace if request.session is not None)
        return {name: i for i, name in enumerate(names)}

    def probes(self) -> list[SessionScript]:
        """A request of every sort of text whose length the server's tokenizer decides."""
        return [self._script(_Entry(kind, 0, 1, 0), n, "probe", 0) for n, kind in enumerate(self._probed())]

    def calibrate(self, counts: Sequence[int | None]) -> None:
        """Build all further prompts as long as the server's counts for the probes' prompts ask for."""
        for count, script, kind in zip(counts, self.probes(), self._probed(), strict=False):
            text = script.ask().prompt.text
            if text and count:
                self._kinds[kind].tokens.calibrate(text, count)
        for source in self._kinds:
            source.forget()

    def _probed(self) -> list[int]:
        """The first kind of every such sort of text."""
        first: dict[int, int] = {}
        for i, source in enumerate(self._kinds):
            if source.wants_calibration:
                first.setdefault(id(source.tokens), i)
        return list(first.values())

    def primers(self) -> list[SessionScript]:
        """A request for every prefix that is shared, empty if none is. Blocks of a trace are shared as it says."""
        sharing = [i for i, kind in enumerate(self._mix) if kind.shared_prefix_tokens and not self._kinds[i].trace]
        made = [(i, group) for i in sharing for group in range(self._mix[i].prefix_groups)]
        return [self._script(_Entry(i, 0, 1, 0), n, "prime", group) for n, (i, group) in enumerate(made)]

    def _entry(self, number: int, stage: str) -> _Entry:
        if not self._has_sessions and len(self._kinds) == 1:
            return _Entry(0, number, 1, number)
        table = self._tables.setdefault(stage, [])
        ranks = self._ranks.setdefault(stage, [0] * len(self._kinds))
        while len(table) <= number:
            rng = random.Random(f"{self.salt}-{stage}{len(table)}-kind")
            kind = rng.choices(range(len(self._kinds)), self._weights)[0] if len(self._kinds) > 1 else 0
            before = table[-1].first + table[-1].turns if table else 0
            table.append(_Entry(kind, before, self._turns(kind, ranks[kind], stage, rng), ranks[kind]))
            ranks[kind] += 1
        return table[number]

    def _turns(self, kind: int, rank: int, stage: str, rng: random.Random) -> int:
        source = self._kinds[kind]
        session = source.traffic.session
        if session is None:
            return 1
        turns = max(round(draw(session.turns, rng)), 1)
        if not source.conversations:
            return turns
        line = rank if stage == "measured" else -1 - rank
        return min(turns, user_turns(source.conversations[line % len(source.conversations)]))


def salt_of(spec: PointSpec, repeat: int) -> str:
    """Of all that tells points apart, their length too: 20 requests are not 10 old ones and 10 new ones."""
    level = [spec.level.kind, spec.level.value]
    shape: list[object] = [spec.dataset, spec.input_tokens, spec.output_tokens, spec.shared_prefix_tokens, spec.api]
    shape += [asdict(traffic) for traffic in spec.traffic]
    if spec.arrival != POISSON:
        shape.append(asdict(spec.arrival))
    return content_hash([spec.seed, spec.workload, level, shape, spec.requests, spec.duration_s, repeat], 8)
