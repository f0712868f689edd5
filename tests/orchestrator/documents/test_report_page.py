"""The page of a report, as text: what it holds, what it forbids, and that no text gets out of its place."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.documents.report_document import (
    Axis,
    Cell,
    Column,
    Paragraph,
    Plot,
    ReportDocument,
    Section,
    Series,
    Table,
)
from orchestrator.documents.report_page import LivePage, head_event, page_html, section_event, section_html
from tests.orchestrator.report_samples import HOSTILE, MADE, hostile, sample

VOID = {"meta", "br", "input", "img", "link", "hr"}


class Reader(HTMLParser):
    """Elements with attributes, and that each one is closed where it was opened."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.texts: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "wbr" and not attrs:  # a place to break a long name
            return
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def only(text: str) -> ReportDocument:
    return ReportDocument("t", "", (), (Section("s", "s", (Paragraph(text),)),), MADE)


def figures(html: str) -> list[Any]:
    return [
        json.loads(text) for text in re.findall(r'<script type="application/json" class="figure">(.*?)</script>', html)
    ]


def test_a_page_asks_for_nothing_and_its_scripts_are_those_it_names() -> None:
    html = page_html(sample())
    policy = next(a["content"] for tag, a in read(html).found if a.get("http-equiv"))
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL)

    assert script is not None
    own = base64.b64encode(hashlib.sha256(script[1].encode()).digest()).decode()
    assert policy is not None
    assert f"'sha256-{own}'" in policy
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "connect-src 'none'" in policy
    assert "'unsafe-inline'" not in policy.split("style-src")[0]
    assert [tag for tag, a in read(html).found if {"src", "srcset", "action", "formaction"} & set(a)] == []


def test_a_page_without_plots_brings_no_library() -> None:
    assert 'id="library"' not in page_html(only("x"))
    assert len(page_html(only("x"))) < 60_000


def test_a_live_page_may_ask_its_own_server_alone() -> None:
    html = page_html(only("x"), live=LivePage("/events?token=a&b"))

    assert '<body data-events="/events?token=a&amp;b">' in html
    assert "connect-src &#39;self&#39;" in html
    assert 'id="library"' in html


def test_the_decision_comes_before_all_sections_and_warnings_before_the_decision() -> None:
    html = page_html(sample())
    order = [
        "These are numbers of the emulator.",
        'id="decision"',
        "agentic",
        'id="ranking"',
        'id="plots"',
        'id="failures"',
    ]

    places = [html.index(text, html.index("</head>")) for text in order]
    assert places == sorted(places)


def test_cells_carry_what_they_are_sorted_by_and_what_is_unknown_nothing() -> None:
    columns = (Column("a", numeric=False), Column("b"))
    values: tuple[float | str | None, ...] = (1.5, float("nan"), float("inf"), None, "text")
    rows = tuple((Cell("x"), Cell("shown", v)) for v in values)
    html = section_html(Section("s", "s", (Table("t", "t", columns, rows),)))

    assert re.findall(r"<td([^>]*)>shown", html) == [
        ' class="n" data-s="1.5"',
        ' class="n" data-s=""',
        ' class="n" data-s="Infinity"',
        ' class="n"',
        ' class="n" data-s="text"',
    ]


def test_a_long_name_breaks_after_its_separators_and_a_short_one_nowhere() -> None:
    row = (Cell("speculative_num_steps=3"), Cell("c=<b>, d6074882697b"))
    html = section_html(Section("s", "s", (Table("t", "t", (Column("a"), Column("b")), (row,)),)))

    assert "speculative_<wbr>num_<wbr>steps=3</th>" in html
    assert ">c=&lt;b&gt;, d6074882697b</td>" in html


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_texts_make_no_element_and_no_attribute(text: str) -> None:
    shown = {tag for tag, _ in read(page_html(only(text))).found}

    assert shown == {tag for tag, _ in read(page_html(only("x"))).found}


def test_a_page_of_hostile_texts_is_whole_and_leads_nowhere() -> None:
    html = page_html(hostile())
    found = read(html).found

    assert {a["href"][:1] for tag, a in found if tag == "a" and a["href"]} == {"#"}
    assert [name for _, a in found for name in a if name.startswith("on")] == []
    assert [tag for tag, _ in found if tag in ("img", "iframe", "svg", "object", "base", "form", "link")] == []
    html.encode("utf-8")
    assert "\x00" not in html
    assert "\u202e" not in html


def of_text(text: str) -> list[str]:
    """The elements of a section that says `text` wherever it can."""
    table = Table("t", text, (Column(text),), ((Cell(text, note=text),),))
    return [tag for tag, _ in read(section_html(Section("s", text, (Paragraph(text), table)))).found]


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=40))
@settings(max_examples=150, deadline=None)
def test_whatever_a_text_is_the_page_has_no_other_elements_for_it(text: str) -> None:
    assert of_text(text) == of_text("x")


def test_data_of_plots_cannot_end_their_element() -> None:
    series = Series("</script><!--", ("</script>", "\u2028"), (1.0, float("nan")), labels=("]]>", "&lt;"))
    html = section_html(Section("s", "s", (Plot("p", "p", "line", Axis("x"), Axis("y"), (series,), "s"),)))

    found = figures(html)

    assert len(found) == 1
    assert found[0]["legend"]["keys"] == [{"name": "</script><!--", "traces": [0]}]
    assert found[0]["data"][0]["x"] == ["&lt;/script&gt;", "<br>"]
    assert found[0]["data"][0]["y"] == [1, None]
    assert found[0]["data"][0]["text"] == ["]]&gt;", "&amp;lt;"]


def test_events_are_one_line_each_and_hold_what_the_page_holds() -> None:
    document = sample()
    page = page_html(document)
    head = head_event(document)
    section = section_event(document.sections[0])

    assert "\n" not in head + section
    assert json.loads(head)["sections"] == ["ranking", "plots", "failures", "environment"]
    assert json.loads(head)["html"].strip() in page
    assert json.loads(section)["id"] == "ranking"
    assert json.loads(section)["html"].strip() in page


def test_the_same_document_makes_the_same_page() -> None:
    assert page_html(sample()) == page_html(sample())
