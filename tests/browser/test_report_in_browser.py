"""A report, opened from a disk in a browser."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from orchestrator.documents.report_document import Axis, Cell, Column, Plot, ReportDocument, Section, Series, Table
from orchestrator.nightly.night_json import NightTold
from orchestrator.nightly.nightly_report import nightly_report
from orchestrator.nights.night_rules import NightRules
from tests.browser.conftest import Open
from tests.orchestrator.nightly.test_night_output import MIXED
from tests.orchestrator.report_samples import MADE, hostile, sample

ASSETS = Path(__file__).parent
# Traces that are drawn, by plot.
TRACES = """() => Object.fromEntries([...document.querySelectorAll('figure.plot')].map(
  (f) => [f.id, f.querySelectorAll('.trace.scatter .point, .trace.scatter .js-line, .trace.bars .point').length]))"""
COLUMN = (
    "(i) => [...document.querySelectorAll('#ranking-table tbody tr')].map((r) => r.cells[i].firstChild.textContent)"
)
CONTRAST = (ASSETS / "contrast.js").read_text(encoding="utf-8")


def check_names_and_headings(page: Any) -> None:
    """Whatever can be reached has a name, headings do not skip a level, ids are there once."""
    nameless = """() => {
      const named = 'button, a, input, summary, [role=region], [role=img]';
      const by = (e) => (e.getAttribute('aria-labelledby') ?? '').split(' ').map((id) => document.getElementById(id));
      const words = (e) => [e.textContent, e.getAttribute('aria-label'), ...by(e).map((n) => n?.textContent),
        e.labels?.[0]?.textContent].join('').trim();
      return [...document.querySelectorAll(named)].filter((e) => !words(e)).map((e) => e.outerHTML.slice(0, 200));
    }"""
    levels = "[...document.querySelectorAll('h1, h2, h3, h4')].map((h) => Number(h.tagName[1]))"
    ids = "[...document.querySelectorAll('#content [id]:not(svg *)')].map((e) => e.id)"

    found = page.evaluate(levels)
    assert page.evaluate(nameless) == []
    assert found[0] == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(found))
    assert [
        i for i in page.evaluate("[...document.querySelectorAll('#content [id]')].map((e) => e.id)") if " " in i
    ] == []
    assert len(page.evaluate(ids)) == len(set(page.evaluate(ids)))


def test_a_report_opens_without_complaint_asks_for_nothing_and_draws_every_kind_of_plot(open_page: Open) -> None:
    seen = open_page(sample())
    seen.draw_all()

    assert seen.wrong == []
    # Points and lines; a None is no point, and a limit has no points.
    assert seen.page.evaluate(TRACES) == {"pareto": 6, "curves": 4, "gpu": 4, "depth": 6, "memory": 4, "slots": 5}
    check_names_and_headings(seen.page)
    # WCAG AA: 4.5 to 1.
    assert seen.page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_night_opens_with_its_verdict_on_the_first_screen_of_a_telephone(open_page: Open, scheme: str) -> None:
    seen = open_page(nightly_report(NightTold(MIXED, NightRules(), notes=("slower since May",))), width=390, height=844,
                     color_scheme=scheme)  # fmt: skip
    seen.draw_all()

    page = seen.page
    assert seen.wrong == []
    check_names_and_headings(page)
    assert page.evaluate(CONTRAST) == []
    assert page.evaluate("document.documentElement.scrollWidth") == 390  # wide tables scroll in themselves
    page.evaluate("scrollTo(0, 0)")
    verdict = page.locator("p.verdict").bounding_box()
    assert verdict["y"] + verdict["height"] < 844
    heads = page.locator("#night-series thead th").all_inner_texts()
    assert [head.split("\n")[0].strip() for head in heads][:3] == ["verdict", "series", "difference"]


def test_a_table_is_sorted_by_mouse_and_what_is_unknown_stays_last(open_page: Open) -> None:
    page = open_page(sample()).page
    head = page.get_by_role("button", name="throughput tok/s")
    before = page.evaluate(COLUMN, 0)

    head.click()
    falling = page.evaluate(COLUMN, 0)
    told = page.locator("#ranking-table th[aria-sort=descending]").inner_text()
    head.click()
    rising = page.evaluate(COLUMN, 0)
    head.click()

    assert falling[:3] == ["d0", "d2", "d4"]
    assert falling[-2:] == ["d17", "d99"]
    assert told.startswith("throughput")
    assert rising[:2] == ["d17", "d15"]
    assert rising[-2:] == ["d0", "d99"]
    assert page.evaluate(COLUMN, 0) == before


def test_a_table_is_sorted_by_keyboard_words_by_their_numbers(open_page: Open) -> None:
    page = open_page(sample()).page

    page.get_by_role("button", name="config", exact=True).focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Space")

    assert page.evaluate(COLUMN, 0)[:4] == ["d99", "d18", "d17", "d16"]


def test_a_long_table_is_filtered_by_words(open_page: Open) -> None:
    page = open_page(sample()).page

    page.get_by_label("Filter").fill("infeas d99")

    assert page.locator("#ranking-table tbody tr:visible").count() == 1
    assert page.locator("#ranking-table output").inner_text() == "1 of 20 rows"


def long_table(rows: int = 100) -> ReportDocument:
    """Configs whose values rise to the last row."""
    columns = (Column("config", numeric=False), Column("throughput", "tok/s"))
    shown = tuple((Cell(f"d{i}"), Cell(str(i), i)) for i in range(rows))
    return ReportDocument("t", "", (), (Section("s", "s", (Table("ranking-table", "T", columns, shown),)),), MADE)


VISIBLE = "#ranking-table tbody tr:visible"


def test_of_a_long_table_the_first_rows_are_laid_out_and_the_others_where_they_are_asked_for(open_page: Open) -> None:
    page = open_page(long_table()).page

    first = page.locator(VISIBLE).count()
    page.get_by_role("button", name="Show all 100 rows").focus()
    page.keyboard.press("Enter")

    assert first == 40
    assert page.locator(VISIBLE).count() == 100
    assert page.get_by_role("button", name="Show all 100 rows").is_hidden()
    assert page.evaluate("document.activeElement.className") == "wide"
    assert page.locator("tr", has_text="d40").first.is_visible()


def test_a_sort_looks_at_all_rows_and_shows_the_first_of_the_new_order(open_page: Open) -> None:
    page = open_page(long_table()).page

    page.get_by_role("button", name="throughput tok/s").click()

    assert page.locator(VISIBLE).count() == 40
    assert page.locator(f"{VISIBLE} th").all_inner_texts()[:2] == ["d99", "d98"]


def test_a_filter_finds_rows_that_were_not_laid_out(open_page: Open) -> None:
    page = open_page(long_table()).page

    page.get_by_label("Filter").fill("d9")

    assert page.locator(f"{VISIBLE} th").all_inner_texts() == ["d9", *(f"d9{i}" for i in range(10))]


@pytest.mark.parametrize("keys", ["Control+f", "Meta+f", "F3"])
def test_the_search_of_the_browser_finds_every_row(open_page: Open, keys: str) -> None:
    page = open_page(long_table()).page

    page.keyboard.press(keys)

    assert page.locator(VISIBLE).count() == 100


def test_without_scripts_every_row_is_there(open_page: Open) -> None:
    assert open_page(long_table(), java_script_enabled=False).page.locator(VISIBLE).count() == 100


def test_on_paper_a_long_table_ends_early_unless_its_reader_asked_for_all_of_it(open_page: Open) -> None:
    page = open_page(long_table()).page
    counts = []
    for _ in range(2):
        page.emulate_media(media="print")
        counts.append(page.locator(VISIBLE).count())
        page.emulate_media(media="screen")
        page.evaluate("document.querySelector('.whole').click()")

    assert counts == [40, 100]


def test_a_short_table_has_nothing_to_ask_for(open_page: Open) -> None:
    page = open_page(long_table(40)).page

    assert page.locator(VISIBLE).count() == 40
    assert page.locator(".whole").count() == 0


def test_the_plot_in_view_is_drawn_before_those_above_it(open_page: Open) -> None:
    seen = open_page(sample(), reduced_motion="reduce")
    seen.page.add_init_script(
        "window.order = []; new MutationObserver((all) => {"
        " for (const { target } of all) if (target.matches('.js-plotly-plot')) order.push(target.closest('figure').id);"
        "}).observe(document, { subtree: true, attributeFilter: ['class'] })"
    )

    report = seen.page.url
    seen.page.goto("about:blank")  # a reload would go back to where the reader was, sooner or later
    seen.page.goto(f"{report}#slots")
    seen.wait_until("order.includes('slots') && order.includes('memory')")

    assert seen.page.evaluate("order[0]") == "slots"
    assert seen.wrong == []


BANDS = """() => [...document.querySelectorAll('.js-fill')].map((p) => p.getAttribute('d')).filter(Boolean).length"""
BARS = "[...document.querySelectorAll('.yerror')].filter((bar) => bar.getBBox().height > 1).length"
LEFTS = """() => [...new Set([...document.querySelectorAll('.plots > .plot')].map(
  (p) => Math.round(p.getBoundingClientRect().left)))]"""


def test_intervals_of_lines_are_bands_that_go_with_their_line_and_bars_where_a_point_is_alone(open_page: Open) -> None:
    lines = (
        Series("d4", (1, 2, 4), (8.0, 9.0, 9.5), (7.0, 8.5, 9.0), (9.0, 9.5, 10.0)),
        Series("d8", (1, 2, 4), (5.0, None, 6.0), (4.0, None, 5.5), (6.0, None, 6.5)),
    )
    plot = Plot("p", "p", "line", Axis("x"), Axis("y"), lines, "s", bands=True)
    seen = open_page(ReportDocument("t", "", (), (Section("s", "s", (plot,)),), MADE))
    seen.draw_all()

    assert seen.page.evaluate(BANDS) == 1
    assert seen.page.evaluate(BARS) == 2
    seen.page.get_by_role("button", name="d4").click()
    assert seen.page.evaluate(BANDS) == 0
    assert seen.wrong == []


def test_stretches_are_shaded_and_named_where_their_name_has_room(open_page: Open) -> None:
    line = Series("server", (0, 100), (0, 10))
    spans = ((10.0, 50.0, "chat <b>C=1</b>"), (60.0, 61.0, "chat C=16"))
    plot = Plot("p", "p", "line", Axis("time", "s"), Axis("y"), (line,), "s", spans=spans)
    seen = open_page(ReportDocument("t", "", (), (Section("s", "s", (plot,)),), MADE))
    seen.draw_all()

    assert seen.page.locator("#p .shapelayer path, #p .layer-below path[data-index]").count() == 2
    assert seen.page.locator("#p .annotation-text").all_text_contents() == ["chat <b>C=1</b>"]
    assert seen.wrong == []


def test_a_number_has_a_bar_as_long_as_its_share(open_page: Open) -> None:
    rows = tuple((Cell(f"d{i}"), Cell(str(share), share, share=share)) for i, share in enumerate((1.0, 0.25)))
    table = Table("t", "T", (Column("config", numeric=False), Column("speed")), rows, marked=(0,))
    page = open_page(ReportDocument("t", "", (), (Section("s", "s", (table,)),), MADE)).page

    looks = "[...document.querySelectorAll('td.share')].map((c) => getComputedStyle(c))"
    assert page.evaluate(f"{looks}.map((s) => s.backgroundSize)") == ["100% 3px", "25% 3px"]
    assert page.evaluate(f"{looks}.every((s) => s.backgroundImage.startsWith('linear-gradient'))")


@pytest.mark.parametrize(("width", "columns"), [(1280, 2), (390, 1)])
def test_plots_that_follow_each_other_stand_side_by_side_where_there_is_room(
    open_page: Open, width: int, columns: int
) -> None:
    page = open_page(sample(), width=width).page

    assert len(page.evaluate(LEFTS)) == columns
    assert page.evaluate("document.querySelector('#slots').parentElement.className") == "part"  # rows take all of it


def test_a_table_of_a_dozen_rows_is_seen_whole_and_a_long_one_scrolls_in_itself(open_page: Open) -> None:
    cut = "(() => { const w = document.querySelector('.wide'); return w.scrollHeight > w.clientHeight + 1; })()"

    assert open_page(long_table(14), height=300).page.evaluate(cut) is False
    assert open_page(long_table(30), height=300).page.evaluate(cut) is True


def test_series_are_hidden_and_shown_from_the_legend_by_keyboard(open_page: Open) -> None:
    seen = open_page(sample())
    seen.draw_all()
    key = seen.page.locator("#pareto .keys button", has_text="others (2)")

    key.focus()
    seen.page.keyboard.press("Enter")

    assert key.get_attribute("aria-pressed") == "false"
    assert seen.page.evaluate(TRACES)["pareto"] == 4
    seen.page.keyboard.press("Enter")
    assert seen.page.evaluate(TRACES)["pareto"] == 6


def test_a_key_with_a_short_name_is_called_by_its_whole_one(open_page: Open) -> None:
    names = [f"speculative_num_steps={i}, max_running_requests={8 * i}" for i in (1, 2)]
    series = tuple(Series(name, (1, 2), (2, 3)) for name in names)
    plot = Plot("p", "p", "line", Axis("x"), Axis("y"), series, "s")
    page = open_page(ReportDocument("t", "", (), (Section("s", "s", (plot,)),), MADE)).page

    key = page.get_by_role("button", name="speculative_num_steps=2, max_running_requests=16")

    assert page.locator(".keys li").all_inner_texts() == [
        "speculative_num_steps, max_running_requests:", "1, 8", "2, 16"
    ]  # fmt: skip
    assert key.inner_text() == "2, 16"


def test_dark_is_chosen_by_the_system_or_by_a_button_and_plots_follow(open_page: Open) -> None:
    seen = open_page(sample(), color_scheme="dark")
    seen.draw_all()
    colours = """() => [getComputedStyle(document.body).backgroundColor,
      getComputedStyle(document.querySelector('#pareto .xtick text')).fill]"""

    dark = seen.page.evaluate(colours)
    assert seen.page.evaluate(CONTRAST) == []
    seen.page.get_by_role("button", name="Theme: auto").click()
    light = seen.page.evaluate(colours)

    assert dark == ["rgb(20, 23, 26)", "rgb(232, 234, 237)"]
    assert light == ["rgb(255, 255, 255)", "rgb(26, 29, 33)"]


@pytest.mark.parametrize("made", [sample, hostile])
def test_a_phone_scrolls_down_only(open_page: Open, made: Any) -> None:
    seen = open_page(made(), width=360, height=740)
    seen.draw_all()

    assert seen.page.evaluate("document.documentElement.scrollWidth") == 360
    assert seen.page.evaluate(
        "[...document.querySelectorAll('.drawing')].every((d) => d.getBoundingClientRect().width >= 300)"
    )


def test_hostile_texts_are_shown_and_do_nothing(open_page: Open) -> None:
    seen = open_page(hostile())
    seen.draw_all()
    # Labels that are shown at a point.
    for drawing in seen.page.query_selector_all("figure.plot .drawing")[:6]:
        drawing.scroll_into_view_if_needed()
        seen.page.evaluate("(d) => window.Plotly.Fx.hover(d, [{curveNumber: 0, pointNumber: 0}])", drawing)
    links = "[...document.querySelectorAll('a')].filter((a) => !(a.getAttribute('href') ?? '').startsWith('#')).length"
    foreign = "document.querySelectorAll('#content img, #content iframe, #content [onerror], #content [onload]').length"

    assert seen.wrong == []
    assert seen.page.evaluate("window.hit") is None
    assert seen.page.evaluate(links) == 0
    assert seen.page.evaluate(foreign) == 0
    assert seen.page.title() == '<img src=x onerror="window.hit=1">'


def test_on_paper_all_plots_are_drawn_and_only_folds_of_the_decision_open(open_page: Open) -> None:
    seen = open_page(sample(), color_scheme="dark")
    seen.wait_until("window.Plotly")
    seen.page.evaluate(
        "document.querySelector('.card').innerHTML += '<details class=fold><summary>Why</summary>so</details>';"
        "addEventListener('beforeprint', () => {"
        " window.found = ['.card .fold[open]', '.part .fold[open]'].map((s) => document.querySelectorAll(s).length) })"
    )

    pdf = seen.page.pdf()

    assert pdf[:5] == b"%PDF-"
    assert seen.page.locator(".drawing .main-svg").count() == 18
    assert seen.page.evaluate("window.found") == [1, 0]
    assert seen.page.locator(".fold[open]").count() == 0
    assert seen.wrong == []


def test_without_scripts_everything_but_the_plots_is_there(open_page: Open) -> None:
    page = open_page(sample(), java_script_enabled=False).page

    assert page.locator("#ranking-table tbody tr").count() == 20
    assert page.get_by_text("Plots are drawn by JavaScript, which did not run here: the values are below.").count() == 6
    page.locator("#curves summary").click()
    assert page.locator("#curves table tbody tr").all_inner_texts() == [
        "d4\t1\t812.4",
        "d4\t16\t2412",
        "limit\t1\t600",
        "limit\t32\t600",
    ]
    assert page.get_by_text("812 tok/s, 4.1 % ahead of none.").is_visible()


def test_the_keyboard_comes_by_everything_and_is_seen_where_it_is(open_page: Open) -> None:
    page = open_page(sample()).page
    focus = """() => [document.activeElement.textContent.trim().slice(0, 22),
      getComputedStyle(document.activeElement).outlineStyle]"""
    passed = []
    for _ in range(12):
        page.keyboard.press("Tab")
        passed.append(page.evaluate(focus))

    assert passed[0] == ["Skip to the report", "solid"]
    assert ["Theme: auto", "solid"] in passed
    assert ["Ranking", "solid"] in passed
    assert ["config", "solid"] in passed


def test_a_link_to_what_is_folded_opens_the_fold(open_page: Open) -> None:
    seen = open_page(sample())
    seen.page.evaluate("document.querySelector('.folded').id = 'inside'; location.hash = '#inside'")

    seen.wait_until("document.querySelector('.fold').open")
    assert seen.page.get_by_text("RuntimeError: Not enough memory").is_visible()
