"""What becomes of a command whose reader leaves, or whose disk is full: its exit code stays its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.terminal import wait_while_read

PROGRAM = """
import sys
from orchestrator.terminal import console, lasting_output, own_output, read_output
with {output}():
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


def ended(where: Callable[[], int], *command: str) -> tuple[int, str]:
    """The exit code of a command that prints there, and its errors."""
    told = where()
    done = subprocess.run([sys.executable, *command], stdout=told, stderr=subprocess.PIPE, check=False, timeout=200)
    os.close(told)
    return done.returncode, done.stderr.decode()


@pytest.mark.parametrize(
    ("output", "where", "code"),
    [
        # A run, a night: it goes on, whatever becomes of its lines.
        ("lasting_output", broken_pipe, 3),
        ("lasting_output", full_disk, 3),
        # Any other command: a verdict stays one.
        ("own_output", broken_pipe, 3),
    ],
)
def test_a_reader_that_left_or_a_full_disk_ends_nothing_and_is_no_exit_code(
    tmp_path: Path, output: str, where: Callable[[], int], code: int
) -> None:
    ends = ended(where, "-c", PROGRAM.replace("{output}", output), str(tmp_path / "end"))

    assert ends == (code, "another\n" * 3)
    assert (tmp_path / "end").read_text() == "came to its end"


def test_what_is_printed_without_end_ends_in_order_when_its_reader_has_left(tmp_path: Path) -> None:
    assert ended(broken_pipe, "-c", PROGRAM.replace("{output}", "read_output"), str(tmp_path / "end")) == (0, "")
    assert not (tmp_path / "end").exists()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (broken_pipe, (0, "")),
        # Neither a traceback nor 1, which is a night's word for a regression.
        (full_disk, (74, "specsweep: standard output: No space left on device: what is printed is not whole\n")),
    ],
)
def test_every_command_ends_quietly_for_a_reader_that_left_and_tells_of_a_full_disk(
    where: Callable[[], int], expected: tuple[int, str]
) -> None:
    assert ended(where, "-m", "orchestrator", "schema") == expected


@pytest.mark.parametrize(
    ("redirection", "code"),
    [
        # A log of cron: its errors are in the same file.
        (">/dev/full 2>&1", 74),
        # Whoever started it has closed what it does not want.
        (">&-", 0),
        (">&- 2>&-", 0),
    ],
)
def test_a_command_keeps_its_code_where_errors_have_no_place_either_or_nothing_is_open(
    redirection: str, code: int
) -> None:
    shell = ["sh", "-c", f'exec "$0" -m orchestrator schema {redirection}', sys.executable]
    done = subprocess.run(shell, capture_output=True, check=False, timeout=200)

    assert (done.returncode, done.stdout, done.stderr) == (code, b"", b"")


def test_a_viewer_that_waits_hears_that_its_reader_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as out:
        monkeypatch.setattr(sys, "stdout", out)
        wait_while_read(0.001)
        os.close(reader)

        with pytest.raises(SystemExit) as ended_by:
            wait_while_read(3600)

    assert ended_by.value.code == 0
