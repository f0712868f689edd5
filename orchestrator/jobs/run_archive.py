"""A run directory as lines of text: how it comes out of a cluster of which only the dashboard can be reached."""

from __future__ import annotations

import base64
import hashlib
import io
import sys
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.paths import RunPaths
from orchestrator.run_files.run_manifest import read_manifest

_LINE, _END = "specsweep-archive: ", "specsweep-archive-end: "
_LINE_BYTES = 12 * 1024
MOST_MIB = 64
# Not results: locks, what is being measured, and what `rank` can compute again.
_LEFT_OUT = {".lock", "stream", "derived", "live.json"}


def print_archive(root: Path, *, with_logs: bool) -> None:
    """Write a run to standard output. BadInput if it is none, or too large for a log."""
    root = root.expanduser()
    read_manifest(root)
    for line in archive_lines(root, with_logs=with_logs):
        sys.stdout.write(line + "\n")
    sys.stdout.flush()


def archive_lines(root: Path, *, with_logs: bool) -> Iterator[str]:
    """The lines that `unpack` takes, the last one with a hash of all."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz", compresslevel=1) as archive:
        for file in sorted(root.rglob("*")):
            top = file.relative_to(root).parts[0]
            is_result = top not in _LEFT_OUT and not file.name.endswith(".tmp")
            if is_result and file.is_file() and (with_logs or top != "logs"):
                archive.add(file, f"{root.name}/{file.relative_to(root)}", recursive=False)
    data = sink.getvalue()
    if len(data) > MOST_MIB * 2**20:
        raise BadInput(
            f"{root}: {len(data) / 2**20:.0f} MiB are too many for the log of a job (at most {MOST_MIB}); copy it from "
            "the head with rsync or scp"
        )
    for start in range(0, len(data), _LINE_BYTES):
        yield _LINE + base64.b64encode(data[start : start + _LINE_BYTES]).decode()
    yield _END + hashlib.sha256(data).hexdigest()


def unpack(lines: Iterable[str], folder: Path) -> Path:
    """Put the run of a log below a folder; its directory. SpecsweepError if the log holds no whole one."""
    parts, told = [], None
    for line in lines:
        if line.startswith(_LINE):
            parts.append(base64.b64decode(line.removeprefix(_LINE)))
        elif line.startswith(_END):
            told = line.removeprefix(_END).strip()
    data = b"".join(parts)
    if told != hashlib.sha256(data).hexdigest():
        raise SpecsweepError("the run did not come whole; try again, or copy it from the head with rsync or scp")
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        name = Path(archive.getnames()[0]).parts[0]
        root = folder / name
        if RunPaths(root).manifest.exists():
            raise BadInput(f"{root}: is there already; move it away, or give another folder")
        archive.extractall(folder, filter="data")
    return root
