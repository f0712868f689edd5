"""Every file name of a run directory; the one way to write a file whole or not at all, and to tell why it cannot be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from orchestrator.errors import BadInput

_STREAMS = frozenset(map(Path, ("/dev", "/dev/fd", "/proc/self/fd")))


@dataclass(frozen=True, slots=True)
class RunPaths:
    """Names below one run directory; nobody else joins them."""

    root: Path

    @property
    def manifest(self) -> Path:
        return self.root / "manifest.json"

    @property
    def scenario(self) -> Path:
        return self.root / "scenario.yaml"

    @property
    def journal(self) -> Path:
        return self.root / "journal.jsonl"

    @property
    def lock(self) -> Path:
        return self.root / ".lock"

    @property
    def ranking(self) -> Path:
        return self.root / "ranking.json"

    @property
    def result(self) -> Path:
        """How the run ended, written last; absent while it runs, and after a SIGKILL."""
        return self.root / "result.json"

    @property
    def night(self) -> Path:
        """The verdict of a night, before `result`; absent while it is measured, and in any other run."""
        return self.root / "night.json"

    @property
    def hosts(self) -> Path:
        """What the hosts that it used said of themselves."""
        return self.root / "hosts.json"

    @property
    def live(self) -> Path:
        """What the run is doing, written anew every second; after its end, how it stood then."""
        return self.root / "live.json"

    @property
    def report(self) -> Path:
        """What the run found, as a page; written after each ranking, may be deleted."""
        return self.root / "report.html"

    @property
    def report_markdown(self) -> Path:
        return self.root / "report.md"

    @property
    def dataset(self) -> Path:
        return self.root / "dataset"

    def table(self, name: str) -> Path:
        return self.dataset / name

    @property
    def points(self) -> Path:
        """The table that `rank` makes."""
        return self.table("points") / "points.parquet"

    def derived(self, name: str) -> Path:
        """What `rank` keeps of its computations; may be deleted."""
        return self.root / "derived" / f"{name}.parquet"

    @property
    def stream(self) -> Path:
        """Batches of points that are being measured, as they came (Arrow IPC streams)."""
        return self.root / "stream"

    @property
    def partial(self) -> Path:
        """What was streamed of points that never ended; kept, not ranked."""
        return self.root / "partial"

    def server_log(self, trial_id: str) -> Path:
        return self.root / "logs" / trial_id / "server.log.zst"


@contextlib.contextmanager
def whole_file(path: Path, *, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file to be written: under a temporary name in the same folder, then fsync, then rename. Readers see the old one
    or the new one; nothing is left of one that cannot be written. Not `durable`: without fsync, for what is soon old.
    A pipe or a device (/dev/stdout, /dev/null) is written to, and never replaced by a file.
    """
    if _is_stream(path):
        with path.open("ab") as stream:
            yield stream
        return
    # Two containers that share a folder may have the same process id.
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")
    try:
        with _new_file(temporary) as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:  # a full disk is not filled further, nor a folder with what was given up
        with contextlib.suppress(OSError):  # nor does a read-only one speak of a file that nobody named
            temporary.unlink(missing_ok=True)
        raise


def write_whole(path: Path, data: bytes, *, durable: bool = True) -> None:
    """As `whole_file`, for what is in memory already."""
    with whole_file(path, durable=durable) as file:
        file.write(data)


@contextlib.contextmanager
def user_file(named: str, done: str, *, absent: str | None = None) -> Iterator[None]:
    """Within, something is `done` (read, written, made) with a file that the user named, e.g. by `--out FILE`.

    BadInput that begins with the name for whatever the system has against it; `absent`: what is said of no such file.
    """
    try:
        yield
    except OSError as error:
        if absent is not None and isinstance(error, FileNotFoundError):
            raise BadInput(f"{named}: {absent}") from None
        raise BadInput(f"{named}: cannot be {done}: {error.strerror or error}") from None


def _is_stream(path: Path) -> bool:
    """Also of /dev/stdout that leads to a file: it is a link, which the rename would replace."""
    if path.absolute().parent in _STREAMS:
        return True
    return path.exists() and not path.is_file() and not path.is_dir()


def _new_file(path: Path) -> IO[bytes]:
    """Open for writing; the folder that it is to be in is mostly there."""
    try:
        return path.open("wb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")
