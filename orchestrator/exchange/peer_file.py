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
            who = kind or "a load client that we know"
            raise BadInput(f"{path}: line {number} is not a result of {who}; give {wanted}")
        points += found.read(number, document)
    if not points:
        raise BadInput(f"{path}: has no line; give {wanted}")
    return points


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
