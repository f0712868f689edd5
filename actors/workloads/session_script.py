"""The requests of one session, one after the other, each with all that was said before. Pure.

A single request is a session of one turn. What the server answered is put between the turns as it said it, so that a
session sends what a real one would send, and a server with a prefix cache finds all of it again but the newest turn.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from actors.workloads.dataset_file import Conversation, Turn
from actors.workloads.length_draw import draw
from actors.workloads.trace_file import TraceRequest
from actors.workloads.workload import Context, Prompt, PromptSource
from orchestrator.traffic import Draw

# A chat template may refuse two turns of one side in a row, or an empty one.
_NO_ANSWER = "(no answer)"
_TOOL_RESULT = "Tool result:\n"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as its session wants it. `asked_input_tokens` is None where a file decides the length."""

    prompt: Prompt
    output_tokens: int
    traffic: str
    session_index: int | None
    turn: int
    asked_input_tokens: int | None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a session stands in its point. `own` is the seed of all it says, `rank` counts those of its kind."""

    number: int
    stage: str
    own: str
    rank: int
    turns: int
    group: int
    chat_api: bool
    traced: TraceRequest | None = None
    session_index: int | None = None


class SessionScript:
    """Ask, hear the answer, wait the gap, ask again."""

    def __init__(self, source: PromptSource, place: Place) -> None:
        self._source = source
        self._place = place
        self._session = source.traffic.session
        self._context = Context(chat=place.chat_api)
        self._turn = 0
        self._ready: Ask | None = None
        self._tokens: int | None = 0
        self._file: list[Turn] = []
        self._file_output: int | None = None

    @property
    def turns(self) -> int:
        return self._place.turns

    @property
    def gap_s(self) -> float:
        """Seconds between the answer that was heard last and the next request."""
        return 0.0 if self._session is None else self._drawn(self._session.gap_s, "gap")

    def ask(self) -> Ask:
        """The next request; the same one until its answer is heard."""
        if self._ready is None:
            self._say()
            self._ready = Ask(
                self._context.prompt(),
                self._output_tokens(),
                self._source.traffic.name,
                self._place.session_index,
                self._turn,
                self._tokens,
            )
        return self._ready

    def hear(self, text: str | None, tokens: int | None) -> None:
        """What the server answered, and in how many tokens by its count; None for what is not known."""
        asked = self.ask()
        length = asked.output_tokens if tokens is None else tokens
        if self._source.sends_ids:
            self._context.say("assistant", self._source.more(f"{self._place.own}-answer{self._turn}", length))
        else:
            self._context.say("assistant", self._answer(text))
        if self._tokens is not None:
            self._tokens += length
        self._turn += 1
        self._ready = None

    def _answer(self, text: str | None) -> str:
        """A conversation of a file goes on from the server's answer too; its own stands in where that is not known."""
        recorded = self._file.pop(0).content if self._file and self._file[0].role == "assistant" else None
        return text or recorded or (_NO_ANSWER if self._place.chat_api else "")

    def _say(self) -> None:
        place, source = self._place, self._source
        if source.conversations:
            self._say_from_file()
        elif place.traced is not None:
            self._context.say("user", source.traced(place.traced, place.stage, place.number))
            self._tokens = place.traced.input_tokens
        elif self._turn == 0:
            self._open()
        else:
            assert self._session is not None
            tokens = self._count(self._session.turn_tokens, "more")
            head = _TOOL_RESULT if self._session.kind == "agentic" else ""
            self._context.say("user", source.more(f"{place.own}-turn{self._turn}", tokens, head))
            self._tokens = None if self._tokens is None else self._tokens + tokens

    def _open(self) -> None:
        place, traffic = self._place, self._source.traffic
        tokens = self._count(traffic.input_tokens, "input")
        if not self._source.sends_ids:
            tokens = max(tokens, traffic.shared_prefix_tokens)
        opening = self._source.opening(place.stage, place.number, tokens, place.group)
        agentic = self._session is not None and self._session.kind == "agentic"
        if isinstance(opening.own, str) and place.chat_api and agentic and opening.shared:
            self._context.say("system", opening.shared)
            self._context.say("user", opening.own)
        else:
            self._context.say("user", opening.whole)
        self._tokens = tokens

    def _say_from_file(self) -> None:
        if self._turn == 0:
            line = self._place.rank if self._place.stage == "measured" else -1 - self._place.rank
            found = self._source.conversation(line, self._place.own, str(self._place.number), self._place.group)
            self._file = said_in(found, whole=self._session is None)
            self._file_output = found.output_tokens
        self._tokens = None
        while self._file:
            turn = self._file.pop(0)
            self._context.say(turn.role, turn.content)
            if turn.role == "user" and not (self._session is None and any(t.role == "user" for t in self._file)):
                break

    def _output_tokens(self) -> int:
        if self._place.traced is not None:
            return max(self._place.traced.output_tokens, 1)
        return self._file_output or self._count(self._source.traffic.output_tokens, "output")

    def _count(self, spec: Draw, what: str) -> int:
        return max(round(self._drawn(spec, what)), 1)

    def _drawn(self, spec: Draw, what: str) -> float:
        if spec.kind == "fixed":
            return spec.mean
        return draw(spec, random.Random(f"{self._place.own}-{what}{self._turn}"))


def said_in(conversation: Conversation, *, whole: bool) -> list[Turn]:
    """The turns of a recorded conversation that are sent. `whole`: as one request.

    A record that ends with what the user says is a request as it was sent; one that ends with an answer is a dialogue,
    whose one request is its first.
    """
    turns = list(conversation.turns)
    if not whole:
        return turns
    if turns[-1].role == "user":
        return turns
    first = next((i for i, turn in enumerate(turns) if turn.role == "user"), len(turns) - 1)
    return turns[: first + 1]


def user_turns(conversation: Conversation) -> int:
    """How many requests a recorded conversation can be replayed with, at least one."""
    return max(sum(turn.role == "user" for turn in conversation.turns), 1)
