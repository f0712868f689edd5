"""Tables say of every row what it is about, however narrow the terminal is."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.text import Text

from orchestrator.fitted_table import FittedColumn, FittedTable

COLUMNS = (
    FittedColumn("metric", "name"), FittedColumn("config", "name"), FittedColumn("at"), FittedColumn("first", "number"),
    FittedColumn("± 95% in run", "number"), FittedColumn("why"),
)  # fmt: skip
ROWS = (
    ("ttft_p50_ms", "depth=3,\ntopk=1", "chat C=1", "11.91", "1.4%", "worse beyond doubt, by more than 2%"),
    ("ttft_p50_ms", "depth=3,\ntopk=1", "chat C=8", "22.91", "13.4%", ""),
    ("kv_tokens", "depth=[5]", "start", "423191", "-", "same"),
)


def printed(width: int, rows: tuple[tuple[str, ...], ...] = ROWS) -> list[str]:
    table = FittedTable(COLUMNS, "What changed")
    for row in rows:
        table.add_row(*row)
    file = io.StringIO()
    Console(file=file, width=width).print(table)
    return [line.rstrip() for line in file.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        (120, [
            "What changed",
            "metric       config     at         first  ± 95% in run  why",
            "ttft_p50_ms  depth=3,   chat C=1   11.91          1.4%  worse beyond doubt, by more than 2%",
            "             topk=1",
            "ttft_p50_ms  depth=3,   chat C=8   22.91         13.4%",
            "             topk=1",
            "kv_tokens    depth=[5]  start     423191             -  same",
        ]),
        # Titles are broken first, then texts.
        (76, [
            "What changed",
            "                                          ± 95% in",
            "metric       config     at         first       run  why",
            "ttft_p50_ms  depth=3,   chat C=1   11.91      1.4%  worse beyond doubt, by",
            "             topk=1                                 more than 2%",
            "ttft_p50_ms  depth=3,   chat C=8   22.91     13.4%",
            "             topk=1",
            "kv_tokens    depth=[5]  start     423191         -  same",
        ]),
        # Then names have lines of their own; what two rows are both about is said once.
        (60, [
            "What changed",
            "  at         first  ± 95% in run  why",
            "ttft_p50_ms  depth=3, topk=1",
            "  chat C=1   11.91          1.4%  worse beyond doubt, by",
            "                                  more than 2%",
            "  chat C=8   22.91         13.4%",
            "kv_tokens  depth=[5]",
            "  start     423191             -  same",
        ]),
        # Then long texts.
        (34, [
            "What changed",
            "  at         first  ± 95% in run",
            "ttft_p50_ms  depth=3, topk=1",
            "  chat C=1   11.91          1.4%",
            "    worse beyond doubt, by more",
            "    than 2%",
            "  chat C=8   22.91         13.4%",
            "kv_tokens  depth=[5]",
            "  start     423191             -",
            "    same",
        ]),
        # Then what is left of a table.
        (16, [
            "What changed",
            "ttft_p50_ms",
            "depth=3, topk=1",
            "  chat C=1,",
            "  first 11.91, ±",
            "  95% in run",
            "  1.4%",
            "    worse beyond",
            "    doubt, by",
            "    more than 2%",
            "  chat C=8,",
            "  first 22.91, ±",
            "  95% in run",
            "  13.4%",
            "kv_tokens",
            "depth=[5]",
            "  start, first",
            "  423191",
            "    same",
        ]),
    ],
)  # fmt: skip
def test_names_are_never_cut(width: int, expected: list[str]) -> None:
    assert printed(width) == expected


def test_a_table_without_rows_is_its_head() -> None:
    assert printed(120, ()) == ["What changed", "metric  config  at  first  ± 95% in run  why"]


def test_codes_of_a_terminal_in_a_name_take_no_room_and_wide_letters_take_two() -> None:
    rows = (
        ("ttft_p50_ms", "\x1b[31mred\x1b[0m", "chat", "1", "-", "same"),
        ("kv", "\u6df1\u5ea6=3", "chat", "2", "-", ""),
    )

    assert printed(120, rows)[1:] == [
        "metric       config  at    first  ± 95% in run  why",
        "ttft_p50_ms  red     chat      1             -  same",
        "kv           \u6df1\u5ea6=3  chat      2             -",
    ]


def test_a_cell_keeps_its_style_and_a_row_gives_one_to_the_others() -> None:
    table = FittedTable((FittedColumn("config", "name"), FittedColumn("verdict")))
    table.add_row("depth=3", Text("worse", style="red"), style="bold")
    console = Console(width=40)

    found = {segment.text.strip(): str(segment.style) for segment in console.render(table) if segment.text.strip()}

    assert (found["depth=3"], found["worse"]) == ("bold", "bold red")
