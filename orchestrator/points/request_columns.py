"""The request records of one point as numpy columns. Pure: numpy only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from orchestrator.records import RequestRecord, RequestStatus

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

_NUMBERS = ("scheduled_ns", "sent_ns", "first_token_ns", "end_ns", "prompt_tokens", "cached_tokens", "output_tokens",
            "verify_ct", "correct_drafts", "proposed_drafts", "retractions")  # fmt: skip
# Files of earlier releases lack some of these.
_LATER_NUMBERS = ("requested_output_tokens", "asked_input_tokens", "queue_ms")


@dataclass(frozen=True, slots=True)
class Words:
    """A column of few different texts: `names[codes[i]]` is the text of request i."""

    codes: Integers
    names: tuple[str, ...]

    @classmethod
    def of(cls, values: Any) -> Self:
        """From texts, or from a pair (codes, names) as dictionary-encoded columns have it."""
        if isinstance(values, tuple) and len(values) == 2 and isinstance(values[0], np.ndarray):
            return cls(np.asarray(values[0], dtype=np.int64), tuple(map(str, values[1])))
        if isinstance(values, np.ndarray) and values.dtype.kind == "U":
            names, codes = np.unique(values, return_inverse=True)
            return cls(np.asarray(codes, dtype=np.int64), tuple(map(str, names)))
        known: dict[str, int] = {}
        listed = [known.setdefault(str(value), len(known)) for value in values]
        return cls(np.array(listed, dtype=np.int64), tuple(known))

    def __len__(self) -> int:
        return len(self.codes)

    def among(self, which: Flags) -> Self:
        """Those of some requests."""
        return type(self)(self.codes[which], self.names)

    def are(self, *names: str) -> Flags:
        """Whose text is one of these."""
        if not self.names:
            return np.zeros(len(self.codes), dtype=np.bool_)
        return np.array([name in names for name in self.names])[self.codes]

    def counted(self) -> Counter[str]:
        """Requests by text."""
        found = np.bincount(self.codes, minlength=len(self.names))
        return Counter({name: int(n) for name, n in zip(self.names, found, strict=True) if n})


@dataclass(frozen=True)
class RequestColumns:
    """Measured requests only (no warm-up). Numbers are float64 with NaN for None: nanoseconds of a point fit exactly.

    Chunks are flat: request i has `chunk_counts[i]` of them, `chunk_ns` and `chunk_tokens` hold those of all requests
    in turn. Requests with the same number in `prompts` had the same prompt, -1 is unknown. `warmup_fault` says how the
    last warm-up request to end badly did so, "" if none did.
    """

    status: Words
    traffic: Words
    prompts: Integers
    scheduled_ns: Floats
    sent_ns: Floats
    first_token_ns: Floats
    end_ns: Floats
    prompt_tokens: Floats
    cached_tokens: Floats
    output_tokens: Floats
    verify_ct: Floats
    correct_drafts: Floats
    proposed_drafts: Floats
    retractions: Floats
    requested_output_tokens: Floats
    asked_input_tokens: Floats
    queue_ms: Floats
    chunk_counts: Integers
    chunk_ns: Floats
    chunk_tokens: Floats
    warmup_fault: str

    @classmethod
    def of(cls, source: Mapping[str, Any] | Sequence[RequestRecord]) -> Self:
        """From records, or from columns named like the fields of RequestRecord.

        Columns are lists or arrays, those of texts also pairs as `Words.of` takes them; `prompt_hash` may be numbers as
        in `prompts`. `chunk_ns` and `chunk_tokens` are a list of lists, or, much faster for many requests, a pair (flat
        values, offsets) as Arrow keeps them. A column `error` is used if there is one; those that earlier releases did
        not write may be missing.
        """
        if not isinstance(source, Mapping):
            names = (*_NUMBERS, *_LATER_NUMBERS, "warmup", "status", "error", "chunk_ns", "chunk_tokens", "prompt_hash",
                     "traffic")  # fmt: skip
            source = {name: [getattr(record, name) for record in source] for name in names}
        measured = ~np.asarray(source["warmup"], dtype=np.bool_)
        counts, chunk_ns = _flat(source["chunk_ns"])
        _, chunk_tokens = _flat(source["chunk_tokens"])
        if not measured.all():
            kept = np.repeat(measured, counts)
            chunk_ns, chunk_tokens = chunk_ns[kept], chunk_tokens[kept]
        numbers = {name: _numbers(source[name])[measured] for name in _NUMBERS}
        unknown = np.full(len(measured), np.nan)
        numbers |= {name: _numbers(source.get(name, unknown))[measured] for name in _LATER_NUMBERS}
        status = Words.of(source["status"])
        empty = (np.zeros(len(measured), dtype=np.int64), ("",))
        return cls(
            status=status.among(measured),
            traffic=Words.of(source.get("traffic", empty)).among(measured),
            prompts=_prompts(source.get("prompt_hash"), len(measured))[measured],
            chunk_counts=counts[measured],
            chunk_ns=chunk_ns,
            chunk_tokens=chunk_tokens,
            warmup_fault=_last_fault(source, status, ~measured),
            **numbers,
        )

    def __len__(self) -> int:
        return len(self.status)

    def has_status(self, *statuses: str) -> Flags:
        """Which requests ended so."""
        return self.status.are(*statuses)

    @cached_property
    def chunk_owner(self) -> npt.NDArray[np.int32]:
        """For each chunk the request that it belongs to."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.chunk_counts)

    def following_chunks(self, which: Flags) -> Flags:
        """Of all chunks but the first: whether they come after another one of the same of these requests."""
        owner = self.chunk_owner
        return np.asarray((owner[1:] == owner[:-1]) & which[owner[1:]])

    @cached_property
    def first_chunk_tokens(self) -> Floats:
        """Tokens of each request's first chunk; 1 where the server counts only at the end, NaN without a chunk."""
        tokens = np.full(len(self), np.nan)
        some = self.chunk_counts > 0
        first = (np.cumsum(self.chunk_counts) - self.chunk_counts)[some]
        tokens[some] = np.maximum(self.chunk_tokens[first], 1.0)
        return tokens

    @cached_property
    def decoded_tokens(self) -> Floats:
        """Tokens that came after the first chunk, NaN where no interval of decoding was seen."""
        after = self.output_tokens - self.first_chunk_tokens
        return np.where(self.at_once | ~(after > 0), np.nan, after)

    @property
    def at_once(self) -> Flags:
        """Which requests showed all their tokens at one time: no interval of decoding was seen."""
        return (self.chunk_counts <= 1) | (self.end_ns <= self.first_token_ns)


def _prompts(values: Any, count: int) -> Integers:
    """A number for each prompt, -1 for those without a hash."""
    if values is None:
        return np.full(count, -1)
    if isinstance(values, np.ndarray) and values.dtype.kind in "iu":
        return values.astype(np.int64)
    known: dict[str, int] = {"": -1}
    return np.array([known.setdefault(value or "", len(known)) for value in values], dtype=np.int64)


def _last_fault(source: Mapping[str, Any], status: Words, warmup: Flags) -> str:
    """Status, and error if there is that column, of the warm-up request that was the last to end badly."""
    bad = np.flatnonzero(warmup & ~status.are(RequestStatus.OK))
    if not len(bad):
        return ""
    last = int(bad[np.argmax(_numbers(source["end_ns"])[bad])])
    error = source["error"][last] if "error" in source else None
    word = status.names[status.codes[last]]
    return f"{word}: {error}" if error else word


def _numbers(values: Any) -> Floats:
    """float64 with NaN for None."""
    if isinstance(values, np.ndarray) and values.dtype != np.object_:
        return values.astype(np.float64)
    return np.array(values, dtype=np.float64)


def _flat(values: Any) -> tuple[Integers, Floats]:
    """(length of each list, all values in one array)."""
    if isinstance(values, tuple) and len(values) == 2 and isinstance(values[0], np.ndarray):
        flat, offsets = values
        bounds = np.asarray(offsets, dtype=np.int64)
        return np.diff(bounds), np.asarray(flat, dtype=np.float64)[bounds[0] : bounds[-1]]
    counts = np.fromiter((len(v) for v in values), dtype=np.int64, count=len(values))
    flat = np.fromiter((x for v in values for x in v), dtype=np.float64, count=int(counts.sum()))
    return counts, flat
