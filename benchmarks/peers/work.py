"""What every client is given to do, and what it says it has seen, in one vocabulary."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Work:
    """A closed loop: `concurrency` streams until `requests` were sent, each of `input_tokens` words in and
    `output_tokens` out, over `api` (completions or chat). Files go into `folder`; `workers` processes or threads.
    """

    url: str
    api: str
    concurrency: int
    requests: int
    output_tokens: int
    folder: Path
    input_tokens: int = 128
    workers: int = 1


@dataclass(frozen=True, slots=True)
class Kept:
    """What a client keeps of one answer: milliseconds to its first token, gaps after it, tokens.

    Gaps are between what the client takes for events; one that keeps only first and last has a single gap.
    """

    ttft_ms: float
    gaps_ms: tuple[float, ...]
    tokens: int


@dataclass(frozen=True, slots=True)
class Reading:
    """What a client reports, in one vocabulary: milliseconds, one value a request (`itl_ms`: of the whole run).

    `tpot_ms` is what the client has for (end - first) / (tokens - 1), under whatever name; `itl_ms` its gaps.
    `answers` are what it keeps of each request that ended well.
    """

    completed: int
    failed: int
    ttft_ms: list[float] = field(default_factory=list)
    tpot_ms: list[float] = field(default_factory=list)
    itl_ms: list[float] = field(default_factory=list)
    throughput_tok_s: float | None = None
    answers: list[Kept] = field(default_factory=list)
    summary: dict[str, Any] = field(default_factory=dict)
