"""The request records of one point as numpy columns. Pure: numpy only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from orchestrator.records import RequestRecord, RequestStatus

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

_NUMBERS = ("scheduled_ns", "sent_ns", "first_token_ns", "end_ns", "prompt_tokens", "cached_tokens", "output_tokens",
            "verify_ct", "correct_drafts", "proposed_drafts", "retractions")  # fmt: skip


@dataclass(frozen=True)
class RequestColumns:
    """Measured requests only (no warm-up). Numbers are float64 with NaN for None: nanoseconds of a point fit exactly.

    Chunks are flat: request i has `chunk_counts[i]` of them, `chunk_ns` and `chunk_tokens` hold those of all requests
    in turn. `warmup_fault` says how the last warm-up request to end badly did so, "" if none did.
    """

    status: npt.NDArray[np.str_]
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
    chunk_counts: Integers
    chunk_ns: Floats
    chunk_tokens: Floats
    warmup_fault: str

    @classmethod
    def of(cls, source: Mapping[str, Any] | Sequence[RequestRecord]) -> Self:
        """From records, or from columns named like the fields of RequestRecord.

        Columns are lists or arrays. `chunk_ns` and `chunk_tokens` are a list of lists, or, much faster for many
        requests, a pair (flat values, offsets) as Arrow keeps them. A column `error` is used if there is one.
        """
        if not isinstance(source, Mapping):
            names = (*_NUMBERS, "warmup", "status", "error", "chunk_ns", "chunk_tokens")
            source = {name: [getattr(record, name) for record in source] for name in names}
        measured = ~np.asarray(source["warmup"], dtype=np.bool_)
        counts, chunk_ns = _flat(source["chunk_ns"])
        _, chunk_tokens = _flat(source["chunk_tokens"])
        kept = np.repeat(measured, counts)
        numbers = {name: _numbers(source[name])[measured] for name in _NUMBERS}
        status = np.asarray([str(s) for s in source["status"]], dtype=np.str_)
        return cls(
            status=status[measured],
            chunk_counts=counts[measured],
            chunk_ns=chunk_ns[kept],
            chunk_tokens=chunk_tokens[kept],
            warmup_fault=_last_fault(source, status, ~measured),
            **numbers,
        )

    def __len__(self) -> int:
        return len(self.status)

    def has_status(self, *statuses: str) -> Flags:
        """Which requests ended so."""
        return np.isin(self.status, statuses)

    @property
    def at_once(self) -> Flags:
        """Which requests showed all their tokens at one time: no interval of decoding was seen."""
        return (self.chunk_counts <= 1) | (self.end_ns <= self.first_token_ns)


def _last_fault(source: Mapping[str, Any], status: npt.NDArray[np.str_], warmup: Flags) -> str:
    """Status, and error if there is that column, of the warm-up request that was the last to end badly."""
    bad = np.flatnonzero(warmup & (status != RequestStatus.OK))
    if not len(bad):
        return ""
    last = int(bad[np.argmax(_numbers(source["end_ns"])[bad])])
    error = source["error"][last] if "error" in source else None
    return f"{status[last]}: {error}" if error else str(status[last])


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
