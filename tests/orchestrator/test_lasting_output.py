"""Runs and nights whose lines nobody reads any more go on, and end with a code of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PROGRAM = """
import sys
from orchestrator.terminal import console, lasting_output
with lasting_output():
    for number in range(3):
        console().print("a line", number)
        print("another", file=sys.stderr, flush=True)
    open(sys.argv[1], "w").write("came to its end")
sys.exit(3)
"""


def broken_pipe() -> int:
    reader, writer = os.pipe()
    os.close(reader)
    return writer


def full_disk() -> int:
    return os.open("/dev/full", os.O_WRONLY)


@pytest.mark.parametrize("where", [broken_pipe, full_disk])
def test_a_reader_that_left_or_a_full_disk_ends_nothing_and_is_no_exit_code(
    tmp_path: Path, where: Callable[[], int]
) -> None:
    told = where()
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "end")], stdout=told, stderr=told, check=False, timeout=200
    )
    os.close(told)

    assert done.returncode == 3
    assert (tmp_path / "end").read_text() == "came to its end"
