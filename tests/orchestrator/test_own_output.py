"""What we write and print: files whole or not at all, streams as streams, and a terminal that nobody else moves."""

from __future__ import annotations

import io
import os
import stat
from pathlib import Path

import pytest
from rich.table import Table

from orchestrator.paths import whole_file, write_whole
from orchestrator.terminal import console


def test_a_pipe_is_written_to_and_not_replaced_by_a_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    write_whole(pipe, b"told")

    assert os.read(reader, 10) == b"told"
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert list(tmp_path.iterdir()) == [pipe]
    os.close(reader)


def test_the_null_device_stays_one() -> None:
    write_whole(Path("/dev/null"), b"told")

    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


@pytest.mark.parametrize("error", [OSError, ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_a_file_that_was_given_up(tmp_path: Path, error: type[BaseException]) -> None:
    def give_up() -> None:
        with whole_file(tmp_path / "f") as file:
            file.write(b"half")
            raise error

    with pytest.raises(error):
        give_up()

    assert list(tmp_path.iterdir()) == []


def test_names_and_log_lines_of_strangers_do_not_act_on_the_terminal() -> None:
    hostile = "\x1b]0;owned\x07a\x1b[2Jb\x9b31mc\u202ed"
    told = console()
    told.file = io.StringIO()
    table = Table(title=hostile)
    table.add_column(hostile)
    table.add_row(hostile)

    told.print(hostile, markup=False)
    told.print(table)

    text = told.file.getvalue()
    assert not set("\x1b\x9b\x07\u202e") & set(text)
    assert "b\ufffd31mc[U+202E]d\n" in text
