"""A report as one HTML file: it asks no other machine for anything, and works from a disk and as an attachment.

Without scripts everything but the plots is there. Scripts are allowed by their hash alone; plotly.js lies in the page,
compressed, and is unpacked by the browser.

**A live page** is the same page with an `EventSource` (`LivePage.events`), whose server sends these events; the data of
each is one line of JSON:

    event: head       {"html": ..., "sections": [ids in order]}    title, warnings, headlines and navigation
    event: section    {"id": ..., "html": ...}                     one section, new or changed
    event: done       {}                                           nothing more will come; the page stops asking

`head_event(document)` and `section_event(section)` make the data; `html` is escaped there. A client that connects gets
a `head` and the sections that changed since the page was made (all of them will do: the page replaces what differs).
Sections that `sections` does not name are taken away; one that it does not have yet is put in its place when its
`section` comes. Sort order, filters, open folds, zoom and scroll survive. Comments (`: alive`) keep it open.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup

from orchestrator.documents.plot_values import plot_values
from orchestrator.documents.report_document import Block, Cell, Plot, ReportDocument, Section, Table
from orchestrator.documents.report_numbers import clock
from orchestrator.documents.report_plots import figure
from orchestrator.shown_text import anchor, harmless

_ASSETS = Path(__file__).resolve().parent / "report_assets"
_SCRIPTS = ("theme.js", "tables.js", "legend.js", "plots.js", "page.js")
# Tables with more rows can be filtered.
FILTERED_ROWS = 15
# Longer texts of cells may break anywhere, and get a wider column.
WORDS_CHARACTERS = 48
# Longer names get a wider column where there is room.
NAME_CHARACTERS = 40
# A phone shows so many letters of a name in a line.
_LONG_WORD = re.compile(r"(\S{13,})")
# A value stays beside its `=`.
_SEPARATED = re.compile(r"[^_,/:;|+-]*[_,/:;|+-]+|[^_,/:;|+-]+")


@dataclass(frozen=True, slots=True)
class LivePage:
    """Where the page hears of changes, on the server that it came from (path and query)."""

    events: str = "/events"


def page_html(document: ReportDocument, *, live: LivePage | None = None) -> str:
    """The whole page. It is UTF-8 whatever the texts hold."""
    script = _script(is_live=live is not None)
    # A live page may get its first plot later.
    library = _Library.of_plotly() if live or _has_plots(document) else None
    hashes = [_hash(script), *([library.hash] if library else [])]
    return _template("page.html.j2").render(
        document=document,
        live=live,
        csp=_policy(hashes, is_live=live is not None),
        style=Markup(_asset("page.css")),
        script=Markup(script),
        library=library,
    )


def head_event(document: ReportDocument) -> str:
    """Data of the event `head`."""
    html = _template("head.html.j2").render(document=document)
    return json.dumps({"html": html, "sections": [anchor(s.section_id) for s in document.sections]})


def section_event(section: Section) -> str:
    """Data of the event `section`."""
    return json.dumps({"id": anchor(section.section_id), "html": section_html(section)})


def section_html(section: Section) -> str:
    """The section alone, as it is in the page."""
    return str(_template("section.html.j2").render(section=section))


@dataclass(frozen=True, slots=True)
class _Library:
    """plotly.js: `packed` is base64 of gzip, `hash` that of the script itself."""

    packed: str
    hash: str

    @classmethod
    @cache
    def of_plotly(cls) -> _Library:
        packed = (_ASSETS / "plotly-basic.min.js.gz").read_bytes()
        script = gzip.decompress(packed).decode("utf-8")
        return cls(base64.b64encode(packed).decode("ascii"), _hash(script))


def _hash(script: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode("utf-8")).digest()).decode("ascii")


def _policy(hashes: list[str], *, is_live: bool) -> str:
    """Nothing is loaded, sent or run but what is in the page. Plotly styles its own elements."""
    scripts = " ".join(f"'{h}'" for h in hashes)
    connect = "'self'" if is_live else "'none'"
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )


def _script(*, is_live: bool) -> str:
    names = (*_SCRIPTS, "live.js") if is_live else _SCRIPTS
    return '\n(() => {\n"use strict";\n' + "\n".join(_asset(name) for name in names) + "})();\n"


@cache
def _asset(name: str) -> str:
    return (_ASSETS / name).read_text(encoding="utf-8")


def _has_plots(document: ReportDocument) -> bool:
    def within(blocks: tuple[Any, ...]) -> bool:
        return any(isinstance(b, Plot) or within(getattr(b, "blocks", ())) for b in blocks)

    return any(within(part.blocks) for part in document.sections) or any(within(h.details) for h in document.headlines)


@cache
def _environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(_ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: harmless(value) if type(value) is str else value,
    )
    made.filters |= {"anchor": anchor, "kind": lambda block: type(block).__name__, "json_of": _json}
    made.filters |= {"breakable": _breakable, "clock": clock}
    made.tests |= {"panel": _is_panel, "long": lambda text: len(text) > WORDS_CHARACTERS}
    made.globals |= {"figure": figure, "plot_values": plot_values}
    made.globals |= {"sort_value": _sort_value, "classes": _classes, "filtered": _is_filtered}
    return made


def _template(name: str) -> Template:
    return _environment().get_template(name)


def _is_panel(block: Block) -> bool:
    """A plot that may stand beside others: rows with long names take all the room there is."""
    return isinstance(block, Plot) and block.kind != "gantt"


def _is_filtered(table: Table) -> bool:
    return len(table.rows) > FILTERED_ROWS


def _classes(cell: Cell, is_numeric: bool) -> str | None:
    names = ["n"] if is_numeric else []
    if cell.share is not None:
        names.append("share")
    if cell.tone != "plain":
        names.append(f"tone-{cell.tone}")
    if len(cell.text) > WORDS_CHARACTERS:
        names.append("words")
    elif not is_numeric and len(cell.text) > NAME_CHARACTERS:
        names.append("long-name")
    return " ".join(names) or None


def _breakable(text: str) -> Markup:
    """Escaped; a word of many settings may break after a separator, where it would else break anywhere."""
    words = _LONG_WORD.split(harmless(text))
    return Markup("").join(
        Markup("<wbr>").join(_SEPARATED.findall(word)) if i % 2 else word for i, word in enumerate(words)
    )


def _sort_value(cell: Cell) -> str:
    """As JavaScript reads it; empty: unknown, which sorts last."""
    value = cell.sort
    if isinstance(value, str) or value is None:
        return value or ""
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    return repr(value)


def _json(value: Any) -> Markup:
    """JSON that cannot end the element it is in, whatever it holds."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: U+2028 and U+2029 too
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)
