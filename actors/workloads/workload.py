"""What one kind of traffic says: first prompts, what is added turn by turn, blocks of a trace. Pure but for the file.

Every first prompt begins with a salt of its own, so that no request, point or repeat warms the prefix cache of another;
only what is shared on purpose is shared: the prefix of a group within one point, blocks of a trace within one phase.
Lengths are met by `PromptTokens`; `random_ids` is exact. Prompts of `file:PATH` are sent whole behind their salt.
"""

from __future__ import annotations

import hashlib
import random
from array import array
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from actors.workloads.dataset_file import Conversation, Turn, read_conversations
from actors.workloads.prompt_text import passage, text_of
from actors.workloads.tokenizer import PromptTokens
from actors.workloads.trace_file import BLOCK_TOKENS, TraceRequest, read_trace
from orchestrator.errors import BadInput
from orchestrator.traffic import Traffic
from orchestrator.trial import PointSpec

TEXT_KINDS = ("random_text", "code", "repetitive")
# Every vocabulary that is served has these; the first few hundred ids are often special or single bytes.
TOKEN_IDS = range(300, 20_000)
# More than any usual tokenizer has of them, on the average of a prompt.
CHARACTERS_PER_TOKEN = 6

Said = str | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Prompt:
    """Text, token ids, or messages of a chat: pairs of role and content. `digest` identifies it in records."""

    text: str | None
    input_ids: tuple[int, ...] | None
    digest: str
    messages: tuple[tuple[str, str], ...] | None = None


@dataclass(frozen=True, slots=True)
class Opening:
    """How a session begins: what all of its group share, and what only it says."""

    shared: Said
    own: Said

    @property
    def whole(self) -> Said:
        if isinstance(self.shared, str) and isinstance(self.own, str):
            return self.shared + self.own
        return (*self.shared, *self.own)  # ids, both of them


class PromptSource:
    """What one kind of traffic says at one point.

    `tokens` are shared by all kinds with the same sort of text, and so is `room`, the characters of their longest
    prompt: no two prompts have a passage in common as long as there is enough text.
    """

    def __init__(
        self, spec: PointSpec, traffic: Traffic, salt: str, tokens: PromptTokens, room: int, token_ids: range
    ) -> None:
        self.traffic = traffic
        self.tokens = tokens
        self.sends_ids = traffic.dataset == "random_ids"
        self.conversations: list[Conversation] = []
        self.trace: list[TraceRequest] = []
        self._notes: list[str] = []
        self._kind = text_kind(traffic.dataset)
        self._salt = f"{salt}-{traffic.name}"
        self._room = room
        # By two random bytes each: cheaper than a draw for each id.
        self._id_of = [token_ids[i * len(token_ids) >> 16] for i in range(1 << 16)] if self.sends_ids else []
        self._prefixes: dict[int, Said] = {}
        self._block = lru_cache(4096)(self._make_block)
        if self.sends_ids and spec.api != "generate":
            raise BadInput(f"dataset random_ids sends token ids, which api {spec.api} does not take; use api generate")
        path = dataset_path(traffic.dataset)
        if spec.level.kind == "trace":
            if path is None:
                raise BadInput(f"dataset {traffic.dataset} is no trace; a trace is read from file:PATH")
            self.trace = read_trace(path, notes=self._notes)
            longest = max((request.input_tokens for request in self.trace), default=0)
            self._room = longest * CHARACTERS_PER_TOKEN
        elif path is not None:
            self.conversations = read_conversations(path, notes=self._notes)
            random.Random(salt).shuffle(self.conversations)

    @property
    def notes(self) -> list[str]:
        """What was left out of a file, and why lengths are estimates although a tokenizer was told."""
        return [*self._notes, *filter(None, [self.tokens.note])]

    @property
    def wants_calibration(self) -> bool:
        """Whether the length of prompts depends on the server's tokenizer; one that was told may be another's."""
        return bool(self.trace) or self.traffic.dataset in TEXT_KINDS

    def forget(self) -> None:
        """What was made before lengths were calibrated."""
        self._prefixes.clear()
        self._block.cache_clear()

    def opening(self, stage: str, number: int, tokens: int, group: int) -> Opening:
        """The first prompt of a session, of so many tokens in all."""
        own = f"{self._salt}-{stage}{number}"
        shared = self._prefix(group)
        left = tokens - self.traffic.shared_prefix_tokens
        if self.sends_ids:
            return Opening(shared[: len(shared) + min(left, 0)], self._ids(own, max(left, 0)))
        assert isinstance(shared, str)
        head = f"{shared}\n" if shared else ""
        begin, series = f"{head}{_eight(own)} {number}. ", f"{self._salt}-{stage}"

        def make(characters: int) -> str:
            left = characters - len(begin)
            return begin + passage(self._kind, number, left, series, room=self._room) if left > 0 else begin

        return Opening(head, self.tokens.fit(make, max(tokens, 1)).removeprefix(head))

    def more(self, own: str, tokens: int, head: str = "") -> Said:
        """What a later turn says besides, of so many tokens with its head; `own` is its seed."""
        if self.sends_ids:
            return self._ids(own, tokens)
        return self.tokens.fit(lambda n: self._grown(head, n, own), tokens, part=True)

    def conversation(self, line: int, own: str, label: str, group: int) -> Conversation:
        """A conversation of the file behind its group's prefix and its salt; lines come again when all were used."""
        found = self.conversations[line % len(self.conversations)]
        first, *others = found.turns
        shared = self._prefix(group)
        head = f"{shared}\n" if shared else ""
        salted = Turn(first.role, f"{head}{_eight(own)} {label}. {first.content}")
        return Conversation((salted, *others), found.output_tokens)

    def traced(self, request: TraceRequest, stage: str, number: int) -> str:
        """The prompt of a request of the trace: of its blocks if they are named, else one of its own."""
        if not request.blocks:
            whole = self.opening(stage, number, request.input_tokens, 0).own
            assert isinstance(whole, str)
            return whole
        full = min(len(request.blocks) - 1, max(request.input_tokens - 1, 0) // BLOCK_TOKENS)
        head = "".join(self._block(stage, block) for block in request.blocks[:full])
        last = f"{self._salt}-{stage}-block-{request.blocks[full]}"
        return self.tokens.fit(lambda n: self._grown(f"{head}{_eight(last)} ", n, last), request.input_tokens)

    def _grown(self, head: str, characters: int, seed: str) -> str:
        left = characters - len(head)
        return head + text_of(self._kind, left, seed) if left > 0 else head

    def _prefix(self, group: int) -> Said:
        """What the prompts of a group share; another for every point."""
        if group not in self._prefixes:
            tokens, seed = self.traffic.shared_prefix_tokens, f"{self._salt}-group{group}"
            if self.sends_ids:
                self._prefixes[group] = self._ids(seed, tokens)
            else:
                salt = f"{_eight(seed)} "
                made = self.tokens.fit(lambda n: self._grown(salt, n, seed), tokens, part=True) if tokens else ""
                self._prefixes[group] = made
        return self._prefixes[group]

    def _ids(self, seed: str, tokens: int) -> tuple[int, ...]:
        return tuple(map(self._id_of.__getitem__, array("H", random.Random(seed).randbytes(2 * tokens))))

    def _make_block(self, stage: str, block: int) -> str:
        seed = f"{self._salt}-{stage}-block-{block}"
        return self.tokens.fit(lambda n: self._grown(f"{_eight(seed)} ", n - 1, seed), BLOCK_TOKENS, part=True) + "\n"


class Context:
    """What was said so far, as one prompt: of a chat its messages, else a text or ids that go on where they ended."""

    def __init__(self, *, chat: bool) -> None:
        self._chat = chat
        self._turns: list[tuple[str, str]] = []
        self._ids: tuple[int, ...] = ()
        self._hash = hashlib.sha256()

    def say(self, role: str, said: Said) -> None:
        """Add a turn."""
        if not isinstance(said, str):
            self._ids += said
            self._hash.update(array("q", said).tobytes())
            return
        if self._turns and role != "assistant":
            self._hash.update(b"\n\n")
        self._turns.append((role, said))
        self._hash.update(said.encode("utf-8", "replace"))

    def prompt(self) -> Prompt:
        """All of it."""
        digest = self._hash.hexdigest()[:16]
        if self._ids:
            return Prompt(None, self._ids, digest)
        if self._chat and (len(self._turns) > 1 or self._turns[0][0] != "user"):
            return Prompt(None, None, digest, tuple(self._turns))
        parts = []
        for i, (role, text) in enumerate(self._turns):
            parts.append(f"\n\n{text}" if i and role != "assistant" else text)
        return Prompt("".join(parts), None, digest)


def text_kind(dataset: str) -> str:
    """The kind of text that is made for a dataset, where any is."""
    return dataset if dataset in TEXT_KINDS else "random_text"


def dataset_path(dataset: str) -> Path | None:
    """The file of a dataset, None for those that are made."""
    return Path(dataset.removeprefix("file:")) if dataset.startswith("file:") else None


def _eight(seed: str) -> str:
    """What leads a prompt: a radix cache shares whatever two prompts begin with."""
    return hashlib.sha256(seed.encode()).hexdigest()[:8]
