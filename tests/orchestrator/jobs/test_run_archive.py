"""A run comes out of a cluster as lines of a log: whole, or not at all."""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
from pathlib import Path

import pytest

from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.jobs import run_archive
from orchestrator.jobs.run_archive import archive_lines, unpack

NOISE = ["INFO job_manager.py -- Runtime env is setting up.", "Running entrypoint for job"]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    root = tmp_path / "head/small-1"
    for name in ("manifest.json", "dataset/requests/a.parquet", "logs/t/server.log.zst", "stream/p.arrows", ".lock"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(name.encode() * 5000)
    return root


def files(root: Path) -> dict[str, bytes]:
    return {str(f.relative_to(root)): f.read_bytes() for f in root.rglob("*") if f.is_file()}


def test_a_run_arrives_as_it_was_without_what_is_no_result(run: Path, tmp_path: Path) -> None:
    root = unpack([*NOISE, *archive_lines(run, with_logs=False)], tmp_path / "here")

    assert root == tmp_path / "here/small-1"
    assert set(files(root)) == {"manifest.json", "dataset/requests/a.parquet"}
    assert files(root).items() <= files(run).items()
    with_logs = unpack(archive_lines(run, with_logs=True), tmp_path / "with-logs")
    assert "logs/t/server.log.zst" in files(with_logs)


def test_a_log_without_a_whole_run_gives_nothing(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_archive, "_LINE_BYTES", 64)
    whole = list(archive_lines(run, with_logs=False))
    assert len(whole) > 5

    for torn in ([], NOISE, whole[:-1], whole[1:], [*whole[:2], *whole[3:]]):
        with pytest.raises(SpecsweepError, match="did not come whole"):
            unpack(torn, tmp_path / "here")
    assert not (tmp_path / "here").exists()


def test_a_run_that_is_here_already_is_not_written_over(run: Path) -> None:
    with pytest.raises(BadInput, match="is there already"):
        unpack(archive_lines(run, with_logs=False), run.parent)


def test_what_is_too_much_for_a_log_is_refused(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_archive, "MOST_MIB", 0)

    with pytest.raises(BadInput, match="rsync or scp"):
        list(archive_lines(run, with_logs=False))


def test_nothing_is_written_outside_the_folder(tmp_path: Path) -> None:
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("small-1/../../evil"))
    data = sink.getvalue()
    log = [
        "specsweep-archive: " + base64.b64encode(data).decode(),
        "specsweep-archive-end: " + hashlib.sha256(data).hexdigest(),
    ]

    with pytest.raises(tarfile.OutsideDestinationError):
        unpack(log, tmp_path / "here")
    assert not (tmp_path / "evil").exists()
