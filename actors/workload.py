"""What is sent and when: prompts and arrival times, the same for every config that is measured with the same point.

Every prompt begins with a salt of the point's seed and the request's number, so that no request, point or repeat warms
the prefix cache of another; only `shared_prefix_tokens` are shared on purpose, within one point. Lengths of text
prompts are met by characters per token: a guess by dataset, replaced by the server's own count for one probe prompt
(`calibrate`), usually within a few percent. `random_ids` is exact. Prompts of `file:PATH` are sent whole.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from array import array
from dataclasses import dataclass
from pathlib import Path

from actors.prompt_text import text_of
from orchestrator.errors import BadInput
from orchestrator.trial import PointSpec, content_hash

# Typical of current tokenizers with 100k tokens or more; only the probe prompt is built with them.
_CHARACTERS_PER_TOKEN = {"random_text": 4.6, "code": 3.4, "repetitive": 2.4}
# Every vocabulary that is served has these; the first few hundred ids are often special or single bytes.
TOKEN_IDS = range(300, 20_000)


@dataclass(frozen=True, slots=True)
class Prompt:
    """Either text or token ids. `digest` identifies the prompt in records."""

    text: str | None
    input_ids: tuple[int, ...] | None
    digest: str


class PromptSource:
    """The prompts of one point. `repeat` tells apart the points that measure the same spec on several server starts."""

    def __init__(self, spec: PointSpec, *, repeat: int = 0, token_ids: range = TOKEN_IDS) -> None:
        self._spec = spec
        level = [spec.level.kind, spec.level.value]
        shape = [spec.dataset, spec.input_tokens, spec.output_tokens, spec.shared_prefix_tokens, spec.api]
        self.salt = content_hash([spec.seed, spec.workload, level, shape, repeat], 8)
        self._token_ids = token_ids
        self._lines = read_prompts(spec.dataset)
        random.Random(self.salt).shuffle(self._lines)
        self._characters_per_token = _CHARACTERS_PER_TOKEN.get(spec.dataset, 4.0)
        if spec.dataset == "random_ids" and spec.api != "generate":
            raise BadInput(f"dataset random_ids sends token ids, which api {spec.api} does not take; use api generate")

    @property
    def wants_calibration(self) -> bool:
        """Whether the length of prompts depends on the server's tokenizer."""
        return self._spec.dataset in _CHARACTERS_PER_TOKEN

    def calibrate(self, prompt: Prompt, prompt_tokens: int | None) -> None:
        """Build all further prompts as long as the server's count for `prompt` asks for."""
        if prompt.text and prompt_tokens and self.wants_calibration:
            self._characters_per_token = min(max(len(prompt.text) / prompt_tokens, 0.5), 20.0)

    def prompt(self, index: int, *, warmup: bool = False) -> Prompt:
        """The prompt of one request; warm-up prompts are others than measured ones."""
        # The salt leads with what differs, since a radix cache shares whatever two prompts begin with.
        own = f"{self.salt}-{'w' if warmup else 'm'}{index}"
        salt = hashlib.sha256(own.encode()).hexdigest()[:8]
        if self._spec.dataset == "random_ids":
            return _prompt_of_ids(self._ids(own))
        # Warm-up takes the lines of a file from the end, so that it meets measured ones as late as possible.
        return _prompt_of_text(self._text(own, f"{salt} {index}. ", -1 - index if warmup else index))

    def _text(self, own: str, salt: str, line: int) -> str:
        spec, per_token = self._spec, self._characters_per_token
        kind = spec.dataset if spec.dataset in _CHARACTERS_PER_TOKEN else "random_text"
        head = salt
        if spec.shared_prefix_tokens:
            shared = f"{self.salt} " + text_of(kind, round(spec.shared_prefix_tokens * per_token), self.salt)
            head = f"{shared}\n{salt}"
        if self._lines:
            return head + self._lines[line % len(self._lines)]
        left = round(spec.input_tokens * per_token) - len(head)
        return head + text_of(kind, left, own) if left > 0 else head

    def _ids(self, own: str) -> tuple[int, ...]:
        shared = min(self._spec.shared_prefix_tokens, self._spec.input_tokens)
        common = random.Random(self.salt).choices(self._token_ids, k=shared)
        return (*common, *random.Random(own).choices(self._token_ids, k=self._spec.input_tokens - shared))


def arrival_offsets(rate: float, count: int, seed: str) -> list[int]:
    """Nanoseconds from the start of a phase at which `count` requests are due at `rate` per second.

    Poisson arrivals under the condition that the count is met: exponential gaps, scaled so that the last request is due
    at count / rate. Times are absolute, so a late send does not move those after it.
    """
    if not (math.isfinite(rate) and rate > 0):
        raise BadInput(f"rate is {rate}; an open loop needs a finite number of requests per second above 0")
    rng = random.Random(f"arrivals {seed}")
    sums: list[float] = []
    total = 0.0
    for _ in range(count):
        total += rng.expovariate(1.0)
        sums.append(total)
    return [round(at / total * count / rate * 1e9) for at in sums]


def _prompt_of_text(text: str) -> Prompt:
    return Prompt(text, None, hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:16])


def _prompt_of_ids(ids: tuple[int, ...]) -> Prompt:
    return Prompt(None, ids, hashlib.sha256(array("q", ids)).hexdigest()[:16])


def read_prompts(dataset: str) -> list[str]:
    """Lines of `file:PATH`: JSON objects with a `prompt`, or plain text; empty for the built-in datasets."""
    if not dataset.startswith("file:"):
        return []
    path = Path(dataset.removeprefix("file:"))
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"dataset {dataset}: cannot be read on the load host: {error}") from error
    prompts = [_line_prompt(line, f"{path}:{i}") for i, line in enumerate(lines, 1) if line.strip()]
    if not prompts:
        raise BadInput(f"dataset {dataset}: holds no prompt")
    return prompts


def _line_prompt(line: str, place: str) -> str:
    if not line.lstrip().startswith("{"):
        return line
    try:
        value = json.loads(line)
    except ValueError:
        return line  # a text line that begins with a brace, such as a piece of code
    prompt = value.get("prompt") if isinstance(value, dict) else None
    if not isinstance(prompt, str):
        raise BadInput(f"{place}: is a JSON object without a 'prompt' text")
    return prompt
