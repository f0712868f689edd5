"""One short name for all that a point sends, so that results of different runs can be told to be of the same load."""

from __future__ import annotations

import hashlib
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from actors.workloads.corpus import CORPUS_VERSION
from actors.workloads.workload import dataset_path
from orchestrator.paths import user_file
from orchestrator.trial import PointSpec, content_hash

# Which server, how it is watched, how long we wait, what things are called: none of it is sent.
_NOT_SENT = frozenset({"model", "profile", "counters", "request_timeout_s", "traffic", "tokenizer", "warmup_s",
                       "warmup_requests", "workload", "level", "dataset"})  # fmt: skip


def workload_hash(spec: PointSpec) -> str:
    """Hash of the load of a spec: kinds of traffic, lengths, contents of files, seed, level, arrival, our own texts.

    Places of files and names of workloads do not count. BadInput if a file cannot be read.
    """
    sent: dict[str, Any] = {f.name: getattr(spec, f.name) for f in fields(spec) if f.name not in _NOT_SENT}
    # Dataclasses of numbers and texts only: what they look like is what they are.
    sent["level"], sent["arrival"] = repr(spec.level), repr(spec.arrival)
    sent["mix"] = [repr(replace(t, name="", dataset=_contents(t.dataset))) for t in spec.mix]
    tokenizer = Path(spec.tokenizer) / "tokenizer.json"
    if spec.tokenizer:
        sent["tokenizer"] = _file_hash(tokenizer) if tokenizer.is_file() else spec.tokenizer
    return content_hash([sent, CORPUS_VERSION])


def _contents(dataset: str) -> str:
    path = dataset_path(dataset)
    return dataset if path is None else _file_hash(path)


def _file_hash(path: Path) -> str:
    with user_file(f"dataset file:{path}", "read on the load host"), path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
