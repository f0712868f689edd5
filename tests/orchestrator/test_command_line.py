"""What every command says of itself, and that the same option means the same everywhere."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from orchestrator.cli import main

SHARED = {
    "--json": {"as_json"},
    "--set": {"overrides"},
    "--address": {"address"},
    "--objective": {"objective"},
    "--host-class": {"host_class"},
    "--resume": {"resume"},
    "--evict": {"evict"},
    "--yes": {"yes"},
    "--html": {"html"},
}


def commands(group: click.Group = main, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in sorted(group.commands.items()):
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


ALL = dict(commands())
SHOWN = [words for words, command in ALL.items() if not command.hidden]


@pytest.mark.parametrize("words", SHOWN, ids=" ".join)
def test_a_command_is_listed_with_a_whole_sentence(words: tuple[str, ...]) -> None:
    # What a terminal of 80 columns has beside the longest name.
    assert not ALL[words].get_short_help_str(59).endswith("...")


@pytest.mark.parametrize("words", [words for words in SHOWN if words != ("emulator",)], ids=" ".join)
def test_the_help_of_a_command_fits_80_columns_and_explains_every_option(words: tuple[str, ...]) -> None:
    said = CliRunner(env={"COLUMNS": "80"}).invoke(main, [*words, "--help"], terminal_width=80)

    assert said.exit_code == 0
    assert max(map(len, said.output.splitlines())) <= 80
    options = [p for p in ALL[words].params if isinstance(p, click.Option)]
    assert [option.name for option in options if not option.help] == []
    # A name for the value; without one click shows its type.
    assert [o.name for o in options if not (o.is_flag or o.metavar or isinstance(o.type, click.Choice))] == []


def test_an_option_of_one_name_is_one_parameter_everywhere() -> None:
    found: dict[str, set[str | None]] = {name: set() for name in SHARED}
    for command in ALL.values():
        for parameter in command.params:
            for name in found.keys() & set(parameter.opts):
                found[name].add(parameter.name)

    assert found == SHARED


def test_markdown_of_a_report_is_asked_for_by_either_spelling() -> None:
    report = ALL["report",]

    assert report.make_context("report", ["r", "--as", "md"]).params["form"] == "md"
    assert report.make_context("report", ["r", "--md"]).params["form"] == "md"
    assert report.make_context("report", ["r"]).params["form"] == "html"
