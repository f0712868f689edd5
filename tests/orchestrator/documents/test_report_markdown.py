"""A report as Markdown."""

from __future__ import annotations

import re

import pytest

from orchestrator.documents.report_document import Cell, Code, Column, Fold, Paragraph, ReportDocument, Section, Table
from orchestrator.documents.report_markdown import markdown, text_of
from tests.orchestrator.report_samples import HOSTILE, MADE, hostile, ranking, sample


def blocks(*found: Table | Code | Fold | Paragraph) -> str:
    return markdown(ReportDocument("t", "", (), (Section("s", "S", found),), MADE))


def test_the_whole_of_a_small_report() -> None:
    columns = (Column("config", numeric=False), Column("speed", "tok/s"))
    rows = ((Cell("a|b"), Cell("12")), (Cell("c"), Cell("-", tone="bad", note="died")))

    assert blocks(
        Table("t", "Ranking", columns, rows, marked=(0,)), Code("x `` y", "Command"), Paragraph("Mind.", "warn")
    ) == (
        "# t\n\n## S\n\n**Ranking**\n\n"
        "| config | speed (tok/s) |\n| --- | ---: |\n| **a\\|b** | 12 |\n| c | ❌ - (died) |\n\n"
        "Command:\n\n```text\nx `` y\n```\n\n> ⚠️ Mind.\n\nMade 2026-11-30 06:12:00 UTC.\n"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a*b_c`d", "a\\*b_c\\`d"),
        ("<script>", "\\<script\\>"),
        ("# not a title", "\\# not a title"),
        ("1. not a list", "1\\. not a list"),
        ("- not a list", "\\- not a list"),
        ("two\nlines | one", "two lines \\| one"),
        ("[a](b)", "\\[a\\](b)"),
        ("_a_ mem_fraction __init__", "\\_a\\_ mem_fraction \\_\\_init\\_\\_"),
        ("-0.5 %", "-0.5 %"),
        ("0.5.15", "0.5.15"),
        ("---", "\\---"),
    ],
)
def test_letters_mean_themselves(text: str, shown: str) -> None:
    assert text_of(text) == shown


def test_addresses_and_mentions_are_no_links() -> None:
    assert "https:" not in text_of("see https://x.example")
    assert "@you" not in text_of("ask me@you")


def test_a_fence_is_longer_than_any_in_its_text() -> None:
    assert "`````text\n````\n`````" in blocks(Code("````"))


def test_a_long_table_is_cut_and_says_so() -> None:
    text = blocks(ranking(100))

    assert text.count("| d") == 39
    assert "60 more rows are in the report." in text


def test_plots_are_their_words_and_main_values() -> None:
    text = markdown(sample())

    assert "d4 is ahead at every load." in text
    assert "| d4 | 50 | 812.4 | 800 to 825 | C=1 |" in text


def test_hostile_texts_make_no_html_and_no_row_of_a_table() -> None:
    text = markdown(hostile())
    outside = re.sub(r"^(`{3,})text\n.*?^\1$", "", text, flags=re.DOTALL | re.MULTILINE)

    assert len(HOSTILE) == 13
    assert set(re.findall(r"(?<!\\)<[^>]*>?", outside)) == {"<details>", "<summary>", "</summary>", "</details>"}
    assert "\x1b" not in text
    assert "\x00" not in text
    text.encode("utf-8")
