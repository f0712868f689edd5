"""Temporary folders: gone with their process, or at the next start of their kind where that was killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actors.host.own_folder import MARK, is_left_behind, mark_owner, own_folder
from actors.host.run_lease import dead_ray_folders

HOLDER = """
import sys
from actors.host.own_folder import own_folder
with own_folder("watch") as folder:
    (folder / "link").symlink_to(sys.argv[1])
    print(folder, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary files go."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return folder


def test_a_folder_is_empty_is_there_while_it_is_used_and_then_gone(place: Path) -> None:
    with own_folder("watch") as folder:
        assert (list(folder.iterdir()), folder.parent.parent) == ([], place)
        with own_folder("watch") as other:  # of the same kind, at the same time
            assert folder.is_dir()
            assert other != folder
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_goes_at_the_next_start_without_what_it_links_to(
    place: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "journal.jsonl").write_text("kept")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    left = Path(holder.stdout.readline().strip()).parent
    with own_folder("watch"):
        assert left.is_dir()  # it lives
    os.kill(holder.pid, signal.SIGKILL)
    holder.communicate()
    with own_folder("load"):
        assert left.is_dir()  # of another kind

    with own_folder("watch"):
        assert not left.exists()

    assert (run / "journal.jsonl").read_text() == "kept"


def changed(**change: Any) -> Callable[[Path], None]:
    def change_mark(folder: Path) -> None:
        told = json.loads((folder / MARK).read_text())
        (folder / MARK).write_text(json.dumps({**told, **change}))

    return change_mark


@pytest.mark.parametrize(
    ("change", "is_left"),
    [
        (lambda folder: None, False),
        (lambda folder: (folder / MARK).unlink(), False),
        (lambda folder: (folder / MARK).write_text("{"), False),
        (changed(started_ticks=1), True),  # another process had our number
        (changed(started_ticks=1, pid_namespace="pid:[7]"), False),  # in a container with the same /tmp: who knows
        (changed(boot_id="an earlier boot", pid_namespace="pid:[7]"), True),
    ],
)
def test_only_what_is_marked_and_surely_dead_is_left_behind(
    tmp_path: Path, change: Callable[[Path], None], is_left: bool
) -> None:
    mark_owner(tmp_path)
    change(tmp_path)

    assert is_left_behind(tmp_path) is is_left


def test_a_folder_of_another_user_and_a_link_are_never_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dead = tmp_path / "dead"
    dead.mkdir()
    mark_owner(dead)
    changed(started_ticks=1)(dead)
    (tmp_path / "link").symlink_to(dead)

    assert is_left_behind(dead)
    assert not is_left_behind(tmp_path / "link")
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    assert not is_left_behind(dead)


def test_the_folder_of_an_embedded_cluster_goes_by_its_mark_and_without_one_by_its_name(place: Path) -> None:
    living, other, old = (place / f"specsweep-ray-{pid}-x" for pid in (os.getpid(), 999999999, 999999998))
    for folder in (living, other, old):
        folder.mkdir()
    mark_owner(other)  # whatever its name says, its process lives
    assert dead_ray_folders() == [old]

    mark_owner(living)
    changed(started_ticks=1)(living)
    assert sorted(dead_ray_folders()) == sorted([living, old])
