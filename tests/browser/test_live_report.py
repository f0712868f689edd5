"""A live report: what changes takes its place, and the reader keeps theirs. The browser's driver plays the server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.documents.report_document import Cell, Paragraph, ReportDocument, Section
from orchestrator.documents.report_page import LivePage, head_event, page_html, section_event
from tests.browser.conftest import SLOWEST_MS, Seen, watched
from tests.orchestrator.report_samples import plots, ranking, sample


class Played:
    """A server at run.test: each request for events waits until the test says what comes."""

    def __init__(self, browser: Any) -> None:
        self.waiting: list[Any] = []
        self.context = browser.new_context(viewport={"width": 1280, "height": 800})
        self.context.set_default_timeout(SLOWEST_MS)

    def open(self, document: ReportDocument) -> Seen:
        page = self.context.new_page()
        html = page_html(document, live=LivePage("/events?token=t"))
        page.route("http://run.test/", lambda route: route.fulfill(body=html, content_type="text/html"))
        page.route("http://run.test/events?token=t", self._wait)
        seen = watched(page)
        page.goto("http://run.test/")
        return seen

    def _wait(self, route: Any) -> None:
        self.waiting.append(route)

    def send(self, seen: Seen, *events: tuple[str, str]) -> None:
        """Answers the request that waits; the page asks again at once, since the connection ends."""
        while not self.waiting:
            seen.page.wait_for_timeout(10)
        text = "retry: 10\n\n" + "".join(f"event: {name}\ndata: {data}\n\n" for name, data in events)
        self.waiting.pop().fulfill(body=text, content_type="text/event-stream")

    def send_all(self, seen: Seen, document: ReportDocument) -> None:
        self.send(seen, ("head", head_event(document)), *(("section", section_event(s)) for s in document.sections))


@pytest.fixture
def served(browser: Any) -> Iterator[Played]:
    played = Played(browser)
    yield played
    played.context.close()


def grown(document: ReportDocument, rows: int = 24) -> ReportDocument:
    """The same run a little later: the ranking has more rows, and the pareto plot a new point."""
    ranked, drawn, *rest = document.sections
    pareto, *others = plots()
    first = replace(pareto.series[0], x=(50.0, 31.0, 20.0), y=(812.4, 2412.0, 3000.0), low=(), high=(), labels=())
    new = replace(pareto, series=(first, *pareto.series[1:]))
    sections = (replace(ranked, blocks=(ranking(rows),)), replace(drawn, blocks=(new, *others)), *rest)
    return replace(document, sections=sections, subtitle="13 configs")


def test_a_change_keeps_order_filter_folds_zoom_hidden_series_and_the_place(served: Played) -> None:
    seen = served.open(sample(is_live=True))
    page = seen.page
    page.get_by_role("button", name="throughput tok/s").click()
    page.get_by_label("Filter").fill("d1")
    page.locator("#pareto summary").click()
    page.locator("#pareto .main-svg").first.wait_for()
    page.locator("#pareto .keys button", has_text="none").click()
    page.evaluate("() => window.Plotly.relayout(document.querySelector('#pareto .drawing'), {'xaxis.range': [20, 40]})")
    seen.scroll_through()  # a plot that is drawn later may move those below it
    page.evaluate("document.querySelector('#depth').scrollIntoView({behavior: 'instant'})")
    place = "document.querySelector('#depth h3').getBoundingClientRect().top"
    before = page.evaluate(place)

    served.send_all(seen, grown(sample(is_live=True)))
    seen.wait_until("document.querySelector('.subtitle').textContent === '13 configs'")
    seen.wait_until("document.querySelector('#pareto .drawing').data[0].x.length === 3")

    assert abs(page.evaluate(place) - before) <= 2
    assert page.get_by_label("Filter").input_value() == "d1"
    assert page.locator("#ranking-table output").inner_text() == "11 of 24 rows"
    assert page.locator("#ranking-table th[aria-sort=descending]").inner_text().startswith("throughput")
    assert page.locator("#ranking-table tbody tr:visible").first.inner_text().startswith("d10")
    assert page.evaluate("document.querySelector('#pareto .values').open")
    assert page.evaluate("document.querySelector('#pareto .drawing').layout.xaxis.range") == [20, 40]
    assert page.evaluate("document.querySelector('#pareto .drawing').data.map((t) => t.visible ?? true)") == [
        True,
        False,
        True,
    ]
    assert page.locator("#pareto .keys").count() == 1
    assert page.locator("#pareto .tools").count() == 1
    assert page.locator("#curves .tools, #curves .keys").count() == 2
    assert seen.wrong == []


def test_a_table_of_which_all_rows_were_asked_for_stays_whole(served: Played) -> None:
    seen = served.open(grown(sample(is_live=True), rows=60))
    seen.page.get_by_role("button", name="Show all 60 rows").click()

    served.send_all(seen, grown(sample(is_live=True), rows=70))
    seen.wait_until("document.querySelector('#ranking-table output').textContent === '70 rows'")

    assert seen.page.locator("#ranking-table tbody tr:visible").count() == 70
    assert seen.page.locator("#ranking-table .whole:visible").count() == 0


def test_sections_come_and_go_in_the_order_of_the_head(served: Played) -> None:
    seen = served.open(sample(is_live=True))
    document = sample(is_live=True)
    new = Section("now", "Now", (Paragraph("slot 1: 12 of 50 graphs"),))
    served.send_all(seen, replace(document, sections=(new, *document.sections[:2])))

    seen.wait_until("document.querySelector('#now')")
    ids = "[...document.querySelectorAll('#parts > section')].map((s) => s.id)"
    links = "[...document.querySelectorAll('.places a')].map((a) => a.hash)"

    assert seen.page.evaluate(ids) == ["now", "ranking", "plots"]
    assert seen.page.evaluate(links) == ["#decision", "#now", "#ranking", "#plots"]


def test_focus_stays_where_it_was(served: Played) -> None:
    seen = served.open(sample(is_live=True))
    seen.page.get_by_label("Filter").fill("d1")
    seen.page.keyboard.press("ArrowLeft")

    served.send_all(seen, grown(sample(is_live=True)))
    seen.wait_until("document.querySelector('#ranking-table output').textContent === '11 of 24 rows'")
    seen.page.keyboard.type("2")

    assert seen.page.get_by_label("Filter").input_value() == "d21"


def test_what_the_reader_has_selected_is_not_taken_away(served: Played) -> None:
    seen = served.open(sample(is_live=True))
    cell = "document.querySelector('#ranking-table tbody td')"
    seen.page.evaluate(f"getSelection().selectAllChildren({cell})")

    served.send_all(seen, grown(sample(is_live=True)))
    seen.wait_until("document.querySelector('.subtitle').textContent === '13 configs'")
    kept = seen.page.evaluate(
        "[getSelection().toString(), document.querySelectorAll('#ranking-table tbody tr').length]"
    )
    seen.page.evaluate("getSelection().removeAllRanges()")
    seen.wait_until("document.querySelectorAll('#ranking-table tbody tr').length === 24")

    assert kept == ["1,000", 20]


def test_after_the_end_nothing_is_asked_any_more(served: Played) -> None:
    seen = served.open(sample(is_live=True))
    served.send(seen, ("done", "{}"))

    seen.wait_until("document.querySelector('#state').textContent.startsWith('The run has ended')")
    seen.page.wait_for_timeout(100)

    assert served.waiting == []


def test_hostile_texts_that_come_later_do_nothing_either(served: Played) -> None:
    seen = served.open(sample(is_live=True))
    text = "<img src=x onerror='window.hit=1'><script>window.hit=1</script>"
    section = Section(
        "ranking", text, (replace(ranking(), rows=((Cell(text), Cell(text), Cell(text)),)), Paragraph(text))
    )
    served.send(seen, ("section", section_event(section)))

    seen.wait_until("document.querySelector('#ranking h2').textContent.startsWith('<img')")

    assert seen.page.evaluate("window.hit") is None
    assert seen.page.locator("#ranking img, #ranking script:not(.figure)").count() == 0
    assert seen.wrong == []
