"""A temporary folder that is gone when its process is: by the process itself, else by the next one of its kind.

Who was killed removes nothing. So each folder has a mark of its process (number, start, boot, numbering), and goes only
when that process is sure to have ended, by a process of the same user. What has no mark is not touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from actors.processes.process_identity import ProcessIdentity, identify, pid_namespace

MARK = "owner.json"
_CONTENT = "content"


@contextlib.contextmanager
def own_folder(kind: str) -> Iterator[Path]:
    """An empty folder, as `specsweep-KIND-...` where temporary files go. Those of dead processes are removed first."""
    prefix = f"specsweep-{kind}-"
    for left in _dead_folders(prefix):
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as made:
        mark_owner(Path(made))
        content = Path(made) / _CONTENT
        content.mkdir()
        yield content


def mark_owner(folder: Path) -> None:
    """Say that it is of this process."""
    me = identify(os.getpid())
    if me is not None:
        told = {**asdict(me), "pid_namespace": pid_namespace()}
        (folder / MARK).write_text(json.dumps(told), encoding="ascii")


def _dead_folders(prefix: str) -> list[Path]:
    return [folder for folder in Path(tempfile.gettempdir()).glob(f"{prefix}*") if is_left_behind(folder)]


def is_left_behind(folder: Path) -> bool:
    """Whether it is ours and its process has ended. Processes of another numbering (a container with the same /tmp)
    cannot be seen, and live as far as we know, unless the host was started anew since.
    """
    try:
        seen = folder.lstat()
        if not stat.S_ISDIR(seen.st_mode) or seen.st_uid != os.getuid():
            return False
        told = json.loads((folder / MARK).read_text(encoding="ascii"))
        owner, numbering = ProcessIdentity.of(told), str(told["pid_namespace"])
    except (OSError, ValueError, KeyError, TypeError):
        return False
    me = identify(os.getpid())
    if me is not None and owner.boot_id != me.boot_id:
        return True
    return numbering == pid_namespace() and not owner.lives
