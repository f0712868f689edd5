"""What we write and print: files whole or not at all, streams as streams, and a terminal that nobody else moves."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path

import pytest
from rich.console import Console
from rich.table import Table

from orchestrator.documents.report_files import write_reports
from orchestrator.errors import BadInput
from orchestrator.paths import user_file, whole_file, write_whole
from orchestrator.run_files.result_file import write_result
from orchestrator.run_files.run_result import RunResult, ending_of
from orchestrator.terminal import console, say
from tests.orchestrator.report_samples import hostile, sample


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


def test_a_file_that_the_user_named_and_cannot_be_used_is_told_by_the_name_and_what_the_system_said(
    tmp_path: Path,
) -> None:
    no_folder = tmp_path / "file"
    no_folder.write_bytes(b"")
    file = no_folder / "report.html"

    with pytest.raises(BadInput, match=rf"^--html {file}: cannot be written: Not a directory$"):
        write_reports(sample(), html=file, md=None)
    with pytest.raises(BadInput, match=r"^--md /proc/no/report.md: cannot be written: No such file or directory$"):
        write_reports(sample(), html=None, md=Path("/proc/no/report.md"))
    with pytest.raises(BadInput, match=r"^--trace none: no such file; copy it here$"):  # noqa: SIM117
        with user_file("--trace none", "read", absent="no such file; copy it here"):
            (tmp_path / "none").read_bytes()


def test_a_report_is_written_whatever_its_texts_hold(tmp_path: Path) -> None:
    write_reports(hostile(), html=tmp_path / "r.html", md=tmp_path / "r.md")

    assert {file.name for file in tmp_path.iterdir()} == {"r.html", "r.md"}
    assert "nul" in (tmp_path / "r.md").read_text(encoding="utf-8")


def test_a_result_that_cannot_be_written_is_told_and_makes_no_other_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = RunResult(ending_of(None))

    assert write_result(tmp_path / "result.json", result)
    assert not write_result(Path("/proc/no/result.json"), result)
    assert capsys.readouterr().err == (
        "specsweep: /proc/no/result.json: the result cannot be written: No such file or directory\n"
    )
    assert RunResult.from_json(json.loads((tmp_path / "result.json").read_bytes())) == result


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


def test_a_terminal_that_tells_no_width_has_the_usual_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("COLUMNS", "0")
    assert console().width == 80
    monkeypatch.setenv("COLUMNS", "7")
    assert console().width == 7


@pytest.mark.parametrize(
    ("terminal", "expected"),
    [
        (True, ["  tpot_p50_ms [chat] got", "  worse"]),
        # What is searched for with grep stands in one line.
        (False, ["  tpot_p50_ms [chat] got worse"]),
    ],
)
def test_a_sentence_is_broken_between_words_on_a_terminal_only(terminal: bool, expected: list[str]) -> None:
    file = io.StringIO()

    say("  tpot_p50_ms [chat] got worse", Console(file=file, width=25, force_terminal=terminal, color_system=None))

    assert [line.rstrip() for line in file.getvalue().splitlines()] == expected
