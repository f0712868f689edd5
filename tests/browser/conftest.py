"""Debian's chromium, without a screen. Where it or playwright is missing, these tests are skipped with the reason."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orchestrator.documents.report_document import ReportDocument
from orchestrator.documents.report_page import page_html

# A browser that is read from a cold disk by a busy machine; only what never comes is waited for so long.
SLOWEST_MS = 200_000
_QUIET = (
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-quic",
)  # fmt: skip


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("no chromium on this machine")
    with playwright.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=chromium, args=list(_QUIET), timeout=SLOWEST_MS)
        yield started
        started.close()


_WAIT = """async () => {
  const began = performance.now();
  while (!(%s)) {
    if (performance.now() - began > %d) throw new Error(`not seen: %s`);
    await new Promise((r) => setTimeout(r, 20));
  }
}"""
_SCROLL_THROUGH = """async () => {
  for (const plot of document.querySelectorAll('figure.plot')) {
    plot.scrollIntoView({ behavior: 'instant' });
    while (!plot.querySelector('.main-svg')) await new Promise((r) => setTimeout(r, 10));
  }
}"""


@dataclass(slots=True)
class Seen:
    """A page and what happened in it that should not: messages, errors, dialogs, and requests other than of itself."""

    page: Any
    wrong: list[str] = field(default_factory=list)

    def wait_until(self, condition: str) -> None:
        """Playwright's own way needs `eval`, which the page forbids."""
        self.page.evaluate(_WAIT % (condition, SLOWEST_MS, condition.replace("`", "")))

    def draw_all(self) -> None:
        """Waits until every plot is drawn, as for a reader who scrolls through all of it."""
        self.page.evaluate("for (const f of document.querySelectorAll('details')) f.open = true")
        self.scroll_through()

    def scroll_through(self) -> None:
        """The same, and what is folded stays so."""
        self.page.evaluate(_SCROLL_THROUGH)


Open = Callable[..., Seen]


def watched(page: Any) -> Seen:
    seen = Seen(page)
    page.on("console", lambda message: seen.wrong.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.wrong.append(f"error: {error}"))
    page.on("dialog", lambda dialog: _dismiss(seen, dialog))
    page.on("request", lambda request: _note_request(seen, request.url))
    return seen


def _dismiss(seen: Seen, dialog: Any) -> None:
    seen.wrong.append(f"dialog: {dialog.message}")
    dialog.dismiss()


def _note_request(seen: Seen, url: str) -> None:
    if not url.startswith(("file:///", "blob:", "data:", "http://run.test/")) or url.startswith("file:///x"):
        seen.wrong.append(f"request: {url[:200]}")


@pytest.fixture
def open_page(browser: Any, tmp_path: Path) -> Iterator[Open]:
    contexts = []

    def opened(document: ReportDocument, *, width: int = 1280, height: int = 800, **options: Any) -> Seen:
        file = tmp_path / "report.html"
        file.write_text(page_html(document), encoding="utf-8")
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        context.set_default_timeout(SLOWEST_MS)
        contexts.append(context)
        seen = watched(context.new_page())
        seen.page.goto(file.as_uri())
        return seen

    yield opened
    for context in contexts:
        context.close()
