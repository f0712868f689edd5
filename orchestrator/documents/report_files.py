"""A report as files: one HTML page, Markdown, or both where a command was asked for them."""

from __future__ import annotations

from pathlib import Path

from orchestrator.documents.report_document import ReportDocument
from orchestrator.documents.report_markdown import markdown
from orchestrator.documents.report_page import page_html
from orchestrator.paths import user_file, write_whole


def page_bytes(document: ReportDocument) -> bytes:
    """The HTML page."""
    return _encoded(page_html(document))


def markdown_bytes(document: ReportDocument) -> bytes:
    """The Markdown."""
    return _encoded(markdown(document))


def write_reports(document: ReportDocument, *, html: Path | None, md: Path | None) -> None:
    """What `--html` and `--md` asked for; BadInput for a file that cannot be written."""
    for option, file, made in (("--html", html, page_bytes), ("--md", md, markdown_bytes)):
        if file is not None:
            with user_file(f"{option} {file}", "written"):
                write_whole(file, made(document))


def _encoded(text: str) -> bytes:
    """Names may hold halves of characters, which no file can."""
    return text.encode("utf-8", errors="replace")
