"""Files of other load clients: which client wrote one, and its points."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import BadInput
from orchestrator.exchange import peer_aiperf, peer_guidellm, peer_vllm
from orchestrator.paths import user_file
from orchestrator.points import bench_serving
from orchestrator.points.peer_point import ImportedPoint

# A report with every request of a long run; more is no report.
_MOST_BYTES = 2 << 30


@dataclass(frozen=True, slots=True)
class PeerKind:
    """One client: `name` as `--from` has it, which file to give, how its results are known and read.

    `read` gets the number of the result in its file (of JSON lines: the line).
    """

    name: str
    file: str
    knows: Callable[[Any], bool]
    read: Callable[[int, Any], list[ImportedPoint]]


# The first that knows a result reads it: vLLM's client comes from bench_serving and has all its keys.
KINDS = (
    PeerKind(peer_vllm.KIND, "the JSON file of vllm bench serve --save-result", peer_vllm.is_vllm,
             lambda number, document: [peer_vllm.read_vllm(number, document)]),
    PeerKind(bench_serving.KIND, "the JSONL file of bench_serving (--output-file)", bench_serving.is_bench_serving,
             lambda number, document: [bench_serving.read_bench_serving_line(number, document)]),
    PeerKind(peer_guidellm.KIND, "the JSON report of guidellm (--output kind=json)", peer_guidellm.is_guidellm,
             lambda _, document: peer_guidellm.read_guidellm(document)),
    PeerKind(peer_aiperf.KIND, "profile_export_aiperf.json of aiperf profile", peer_aiperf.is_aiperf,
             lambda number, document: [peer_aiperf.read_aiperf(number, document)]),
)  # fmt: skip
KIND_NAMES = tuple(kind.name for kind in KINDS)


def read_peer_file(path: Path, kind: str | None = None) -> list[ImportedPoint]:
    """The points of a file, JSON or JSON lines; `kind`: one of KIND_NAMES, None to tell by the content.

    BadInput, with the line, for what cannot be read or is no result of such a client.
    """
    chosen = tuple(k for k in KINDS if kind in (None, k.name))
    wanted = chosen[0].file if kind else "; or ".join(k.file for k in KINDS)
    points: list[ImportedPoint] = []
    for number, document in _documents(path, wanted):
        found = next((k for k in chosen if k.knows(document)), None)
        if found is None:
            raise BadInput(f"{path}: line {number} {_why_not(document, kind)}; give {wanted}")
        points += found.read(number, document)
    if not points:
        raise BadInput(f"{path}: has no line; give {wanted}")
    return points


# Other files of the same clients, which are easily taken for the right one: keys that tell them, and what they are.
_OTHER_FILES = (
    (("timeslices",), "has `timeslices` of AIPerf, not the whole run"),
    (("metadata.aggregation_type",), "is AIPerf's aggregate of several runs (`metadata.aggregation_type`): give the "
     "file of each run, or a list of them, which are repeats"),
    (("metadata.x_request_id",), "is one request of AIPerf (`metadata.x_request_id`), not the whole run"),
    (("avg_latency", "latencies"), "is of vllm bench latency (`avg_latency`), which loads no server"),
    (("elapsed_time", "tokens_per_second"), "is of vllm bench throughput (`elapsed_time`), which loads no server"),
    (("completed", "mean_e2el_ms"), "has no `mean_ttft_ms`: results of embeddings have no tokens to compare"),
)  # fmt: skip
# What each client's result has, so that whoever sees the message can look for it.
_KNOWN_BY = (
    "a result has `mean_ttft_ms` (vLLM, bench_serving), `benchmarks` with `request_totals` (GuideLLM) or "
    "`request_throughput` with `aiperf_version` (AIPerf)"
)
_MOST_KEYS = 6


def _why_not(document: Any, kind: str | None) -> str:
    """Why a JSON value is no result: what it is instead, if that can be told, else by which keys one is known."""
    not_one = f"is not a result of {kind or 'a load client that we know'}"
    if not isinstance(document, Mapping):
        return f"{not_one}: it is no JSON object"
    for other in KINDS:
        if kind is not None and other.knows(document):
            return f"{not_one}, but of {other.name}"
    for keys, what in _OTHER_FILES:
        if all(_has(document, key) for key in keys):
            return what
    told = [str(key) for key in document]
    more = ", ..." if len(told) > _MOST_KEYS else ""
    return f"{not_one}: it has {', '.join(told[:_MOST_KEYS]) or 'no keys'}{more}, while {_KNOWN_BY}"


def _has(document: Any, key: str) -> bool:
    head, _, rest = key.partition(".")
    if not isinstance(document, Mapping) or head not in document:
        return False
    return not rest or _has(document[head], rest)


def _documents(path: Path, wanted: str) -> list[tuple[int, Any]]:
    """The JSON values of a file, each with its number: one value, a list of them, or one on each line."""
    text = _text(path)
    try:
        whole = json.loads(text)
    except json.JSONDecodeError:
        return _lines(path, text, wanted)
    if isinstance(whole, list) and all(isinstance(value, Mapping) for value in whole):
        return list(enumerate(whole, 1))
    return [(1, whole)]


def _lines(path: Path, text: str, wanted: str) -> list[tuple[int, Any]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if line.strip():
            try:
                found.append((number, json.loads(line)))
            except json.JSONDecodeError as error:
                raise BadInput(f"{path}:{number}: not JSON: {error}; give {wanted}") from None
    return found


def _text(path: Path) -> str:
    with user_file(str(path), "read"):
        size = path.stat().st_size
        if size > _MOST_BYTES:
            raise BadInput(f"{path}: has {size / 2**30:.1f} GiB, more than a report of a load client has")
        data = path.read_bytes()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise BadInput(f"{path}: cannot be read as UTF-8: {error.reason} at byte {error.start + 1}") from None
