"""Plots as figures of plotly, their values as tables, and texts that do not act."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.documents.plot_values import plot_values
from orchestrator.documents.report_document import Axis, Plot, Series
from orchestrator.documents.report_plots import escaped, figure, rounded
from orchestrator.shown_text import anchor, cut, harmless
from tests.orchestrator.report_samples import plots, waterfall

BY_NAME = {plot.block_id: plot for plot in plots()}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]8;;https://x.example\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("a\x00b\x07\x7f", "a\u2400b\u2407\u2421"),
        ("left \u202eexe", "left [U+202E]exe"),
        ("half \ud83d", "half \ufffd"),
        ("whole \U0001f600", "whole \U0001f600"),
        ("a\r\nb\u2028c\td", "a\nb\nc\td"),
        ("100%\r", "100%\u240d"),
        ("", ""),
        ("plain", "plain"),
        ("עברית", "עברית"),
        ("\x1b", ""),
    ],
)
def test_texts_are_harmless(text: str, shown: str) -> None:
    assert harmless(text) == shown


def test_ids_stay_different_and_need_no_escaping() -> None:
    assert anchor("ranking-table_1") == "ranking-table_1"
    assert anchor("a b") != anchor("a-b")
    assert anchor("a b") != anchor("a  b")
    assert anchor("") != ""
    assert anchor('"><img>').replace("-", "").isalnum()
    assert cut("abcdef", 4) == "abc\u2026"


def test_what_plotly_would_read_in_a_text_is_escaped() -> None:
    assert escaped("<b>%{x}</b> & $a$\nnext") == "&lt;b&gt;&#37;{x}&lt;/b&gt; &amp; &#36;a&#36;<br>next"


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (1234.56789, 1234.57),
        (0.000123456789, 0.000123457),
        (3.0, 3),
        (7, 7),
        (1e300, 1e300),
        (float("inf"), None),
        (None, None),
    ],
)
def test_numbers_keep_six_digits(value: float | None, kept: float | None) -> None:
    assert rounded(value) == kept


def test_points_with_intervals() -> None:
    trace = figure(BY_NAME["pareto"])["data"][0]

    assert trace["mode"] == "markers"
    assert trace["error_y"]["array"] == [12.6, 32]
    assert trace["error_y"]["arrayminus"] == [12.4, 32]
    assert trace["hovertemplate"] == (
        "<b>d4</b><br>speed for each user: %{x} tok/s<br>output throughput: %{y} tok/s<br>%{customdata}<br>%{text}"
        "<extra></extra>"
    )


def test_what_is_muted_is_one_entry_of_the_legend_and_takes_no_colour() -> None:
    drawn = figure(BY_NAME["pareto"])

    assert drawn["legend"]["keys"] == [
        {"name": "d4", "traces": [0]},
        {"name": "none", "traces": [1]},
        {"name": "others (2)", "traces": [2]},
    ]
    assert [t["marker"]["color"] for t in drawn["data"]] == ["--c0", "--c1", "--muted"]


def test_muted_series_are_one_trace_with_gaps_whose_points_say_whose_they_are() -> None:
    muted = (
        Series("d8", (1, 16), (7.0, None), labels=("C=1", "C=16"), tone="muted"),
        Series("d9", (1, 16), (6.0, 5.0), tone="muted"),
    )
    pick = Series("d4", (1, 16), (9.0, 8.0))
    drawn = figure(Plot("p", "p", "line", Axis("x"), Axis("y"), (muted[0], pick, muted[1]), "s"))

    joined = drawn["data"][0]
    assert [t["name"] for t in drawn["data"]] == ["others (2)", "d4"]
    assert joined["x"] == [1, 16, 16, 1, 16]
    assert joined["y"] == [7, None, None, 6, 5]
    assert joined["text"] == ["d8 C=1", "d8 C=16", "", "d9", "d9"]
    assert (joined["mode"], joined["connectgaps"]) == ("lines+markers", False)


def test_series_of_one_group_keep_their_labels_when_they_are_joined_and_long_ones_have_no_marks() -> None:
    few, many = (1, 2), tuple(range(30))
    series = tuple(
        Series("other configs", x, x, labels=tuple(f"d{i}" for _ in x), group="other configs", tone="muted")
        for i, x in enumerate((few, many, few, many))
    )
    drawn = figure(Plot("p", "p", "line", Axis("x"), Axis("y"), series, "s"))

    assert [t["mode"] for t in drawn["data"]] == ["lines+markers", "lines"]
    assert drawn["data"][0]["text"] == ["d0", "d0", "", "d2", "d2"]
    assert drawn["legend"]["keys"] == [{"name": "other configs", "traces": [0, 1]}]


def test_muted_bars_limits_and_points_with_intervals_stay_series_of_their_own() -> None:
    limits = tuple(Series(f"s{i}", (1, 2), (2, 2), tone="muted", dashed=True) for i in range(2))
    bounded = tuple(Series(f"s{i}", (1,), (2,), (1,), (3,), tone="muted") for i in range(2))
    bars = tuple(Series(f"s{i}", (1,), (2,), tone="muted") for i in range(2))

    plots = (
        Plot("p", "p", "line", Axis("x"), Axis("y"), limits, "s"),
        Plot("p", "p", "line", Axis("x"), Axis("y"), bounded, "s"),
        Plot("p", "p", "bars", Axis("x"), Axis("y"), bars, "s"),
    )
    found = [len(figure(plot)["data"]) for plot in plots]

    assert found == [2, 2, 2]


def test_a_legend_of_long_names_has_their_values_alone_and_what_they_are_values_of_once() -> None:
    names = [f"speculative_num_steps={i}, max_running_requests={8 * i}" for i in (1, 2)]
    series = (*(Series(name, (1,), (2,)) for name in names), Series("none is better in both", (1,), (2,)))
    drawn = figure(Plot("p", "p", "line", Axis("x"), Axis("y"), series, "s"))

    assert drawn["legend"] == {
        "title": "speculative_num_steps, max_running_requests",
        "keys": [
            {"name": "1, 8", "traces": [0], "whole": "speculative_num_steps=1, max_running_requests=8"},
            {"name": "2, 16", "traces": [1], "whole": "speculative_num_steps=2, max_running_requests=16"},
            {"name": "none is better in both", "traces": [2]},
        ],
    }
    assert [t["name"] for t in drawn["data"]] == [*names, "none is better in both"]


def test_short_names_stand_whole_in_a_legend() -> None:
    series = tuple(Series(f"C={i}", (1,), (2,)) for i in (1, 16))

    assert figure(Plot("p", "p", "line", Axis("x"), Axis("y"), series, "s"))["legend"] == {
        "title": "",
        "keys": [{"name": "C=1", "traces": [0]}, {"name": "C=16", "traces": [1]}],
    }


def test_series_of_a_group_share_a_colour_and_an_entry() -> None:
    series = tuple(Series(f"s{i}", (1,), (2,), group="start" if i != 1 else "") for i in range(3))
    drawn = figure(Plot("p", "p", "line", Axis("x"), Axis("y"), series, "s"))

    assert [t["line"]["color"] for t in drawn["data"]] == ["--c0", "--c1", "--c0"]
    assert drawn["legend"]["keys"] == [{"name": "start", "traces": [0, 2]}, {"name": "s1", "traces": [1]}]


def test_more_series_than_colours_differ_in_more_than_colour() -> None:
    series = tuple(Series(f"s{i}", (1, 2), (2, 3)) for i in range(28))
    looks = [
        (t["line"]["color"], t["line"]["dash"], t["marker"]["symbol"])
        for t in figure(Plot("p", "p", "line", Axis("x"), Axis("y"), series, "s"))["data"]
    ]

    assert len(set(looks)) == 28
    assert len({look[1:] for look in looks[:7]}) == 7


def test_times_are_milliseconds_and_lengths_of_a_gantt_too() -> None:
    start = figure(BY_NAME["slots"])["data"][0]

    assert start["base"] == [1796040000000, 1796040002000]
    assert start["x"] == [40000, 45000]
    assert start["orientation"] == "h"
    assert figure(BY_NAME["gpu"])["layout"]["xaxis"] == {"title": {"text": "time (UTC)"}, "type": "date"}


def test_a_waterfall_stands_on_its_bases_in_the_order_of_its_categories() -> None:
    drawn = figure(waterfall())

    assert drawn["data"][0]["base"] == [0, 60.5]
    assert drawn["layout"]["barmode"] == "overlay"
    assert drawn["layout"]["xaxis"]["categoryarray"] == ["weights", "KV pool", "graphs", "free"]


def test_values_of_a_plot_as_a_table() -> None:
    values = plot_values(BY_NAME["pareto"])

    assert values.heads == ("series", "speed for each user (tok/s)", "output throughput (tok/s)", "interval", "remark")
    assert values.rows[0] == ("d4", "50", "812.4", "800 to 825", "C=1")
    assert values.left_out == 0
    assert plot_values(BY_NAME["slots"]).rows[0] == ("start", "host-a/0", "2026-11-30 12:00:00", "40 s", "")


def test_long_series_are_told_at_even_distances_and_the_rest_is_counted() -> None:
    series = Series("s", tuple(range(1001)), tuple(range(1001)))
    values = plot_values(Plot("p", "p", "line", Axis("x"), Axis("y"), (series,), "s"), most_rows=11)

    assert [row[1] for row in values.rows] == [str(100 * i) for i in range(11)]
    assert values.left_out == 990


def test_a_limit_over_a_whole_axis_is_one_row_of_the_table() -> None:
    pairs = ("1", "2", "3")
    floor = Series("floor", pairs, (2.0, 2.0, 2.0), dashed=True)
    part = Series("level", pairs[:2], (2.0, 2.0), dashed=True)
    plot = Plot("p", "t", "line", Axis("pair", categories=pairs), Axis("d", "%"),
                (Series("pairs", pairs, (1.0, 1.0, 1.0)), floor, part), "s")  # fmt: skip

    told = plot_values(plot)
    assert told.rows == (
        ("pairs", "1", "1"), ("pairs", "2", "1"), ("pairs", "3", "1"), ("floor", "all", "2"),
        ("level", "1", "2"), ("level", "2", "2"),
    )  # fmt: skip
    assert told.left_out == 0


@pytest.mark.parametrize(
    ("axis", "room"),
    [
        (Axis("latency", "ms"), {"autorangeoptions": {"include": [8, 112]}}),
        (Axis("latency", "ms", log=True), {"range": [0.979172, 2.06222]}),
    ],
)
def test_a_line_without_marks_does_not_lie_on_the_frame(axis: Axis, room: dict[str, object]) -> None:
    long = Series("d4", tuple(range(10, 111)), tuple(range(101)))
    plot = Plot("p", "p", "line", axis, Axis("share", "%"), (long,), "s")

    drawn = figure(plot)["layout"]["xaxis"]

    assert {key: drawn.get(key) for key in room} == room
    marked = replace(plot, series=(Series("d4", (10, 110), (1, 2)),))
    assert not {"range", "autorangeoptions"} & set(figure(marked)["layout"]["xaxis"])


def test_a_series_that_says_its_look_keeps_it_and_no_other_gets_it() -> None:
    series = (Series("b", (1,), (1,), look=1), Series("limit", (1,), (1,)), Series("free", (1,), (1,)),
              Series("a", (1,), (1,), look=0))  # fmt: skip
    plot = Plot("p", "p", "line", Axis("x"), Axis("y"), series, "s")

    assert [trace["marker"]["color"] for trace in figure(plot)["data"]] == ["--c1", "--c2", "--c3", "--c0"]
