"""Makes actors/workloads/corpus/*.txt.zst from three sources, all unpacked by hand beforehand; see its README.md.

apt-get download r-cran-janeaustenr sqlite3-doc    # Debian 12: versions 1.0.0-1 and 3.40.1-2+deb12u2
for deb in *.deb; do dpkg-deb -x $deb unpacked; done
python3.11 benchmarks/make_corpus.py unpacked      # needs zstandard; the code is that of the Python that runs it
"""

from __future__ import annotations

import re
import struct
import sys
import sysconfig
import zlib
from html.parser import HTMLParser
from pathlib import Path

import zstandard

TARGET = Path(__file__).resolve().parent.parent / "actors" / "workloads" / "corpus"
NOVELS = Path("usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
MANUAL = Path("usr/share/doc/sqlite3")
# Lists of links, tables of names, and pages made of other pages.
NOT_PROSE = re.compile(
    r"(requirements|.*crossref|.*_index|sitemap|chronology|capi3ref|constlist|intro|opcode|fileformat2|syntaxdiagrams"
    r"|syntax|docs|doclist|keyword.*|copyright.*|changes|download|support|books|prosupport|dev|crew|famous|c_interface"
    r"|oldnews|news|releaselog|3_\d.*|consortium.*|hp1|index|mostdeployed|not-found|search|sqlanalyze|version\d?|optimizing)\.html"
)
PACKAGES = ("asyncio", "concurrent/futures", "email", "http", "importlib", "json", "unittest", "urllib", "zoneinfo")
# Tables and oddities; modules with a notice of their own are left out by NOTICE.
NOT_CODE = {"antigravity", "keyword", "locale", "mimetypes", "opcode", "stringprep", "this", "token", "_aix_support"}
PLAIN = {0xA0: " ", 0x2014: "--", 0x2192: "->", 0x21D2: "=>"}
NOTICE = re.compile(r"copyright|licen[sc]e|@spdx", re.IGNORECASE)


def main(unpacked: Path) -> None:
    prose = [*novels(unpacked / NOVELS), *manual(unpacked / MANUAL)]
    write("prose", prose)
    write("code", modules(Path(sysconfig.get_path("stdlib"))))


def write(name: str, pieces: list[str]) -> None:
    if any(ord(max(piece)) > 255 for piece in pieces):
        raise SystemExit(f"{name}: holds characters beyond Latin-1, which would double its size in memory")
    data = "".join(pieces).encode()
    packed = zstandard.ZstdCompressor(level=22).compress(data)
    (TARGET / f"{name}.txt.zst").write_bytes(packed)
    sys.stdout.write(f"{name}: {len(data)} bytes, {len(packed)} packed, {len(pieces)} pieces\n")


def novels(rdb: Path) -> list[str]:
    """The six novels: each object of the database is a length, then a zlib stream of an R vector of lines."""
    data, found = rdb.read_bytes(), []
    while data:
        stream = zlib.decompressobj()
        found.append(novel(stream.decompress(data[4:])))
        data = stream.unused_data
    return found


def novel(vector: bytes) -> str:
    """Paragraphs on a line each, without the underscores that stand for italics, from the first chapter on."""
    lines, at = [], vector.index(struct.pack(">I", 0x10)) + 8
    while at + 8 <= len(vector) and vector[at + 3] == 9:  # CHARSXP
        (length,) = struct.unpack(">I", vector[at + 4 : at + 8])
        lines.append(vector[at + 8 : at + 8 + length].decode())
        at += 8 + length
    first = next(i for i, line in enumerate(lines) if re.match(r"(CHAPTER|Chapter) (1|I)\b", line))
    return paragraphs("\n".join(lines[first:]).replace("_", ""))


def paragraphs(text: str) -> str:
    whole = (" ".join(part.split()) for part in re.split(r"\n\s*\n", text))
    return "".join(f"{part}\n\n" for part in whole if part)


class Page(HTMLParser):
    """The running text of a page: headings, paragraphs, items; code as it is; no menus, tables, drawings."""

    BLOCKS = frozenset(
        {"p", "h1", "h2", "h3", "h4", "li", "dt", "dd", "blockquote", "ol", "ul", "dl", "br", "div", "center"}
    )
    LEFT_OUT = frozenset({"script", "style", "svg", "table", "title", "head", "button", "form"})

    def __init__(self) -> None:
        super().__init__()
        self.parts: list[str] = []
        self._out = 0
        self._pre: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._out += tag in self.LEFT_OUT
        if tag == "pre":
            self._pre = []
        elif tag in self.BLOCKS:
            self.parts.append("\n\n")

    def handle_endtag(self, tag: str) -> None:
        self._out -= tag in self.LEFT_OUT
        if tag == "pre" and self._pre is not None:
            self.parts.append("\n\n\0" + "".join(self._pre).strip("\n").replace("\n", "\1") + "\n\n")
            self._pre = None
        elif tag in self.BLOCKS:
            self.parts.append("\n\n")

    def handle_data(self, data: str) -> None:
        if not self._out:
            (self.parts if self._pre is None else self._pre).append(data)


def manual(folder: Path) -> list[str]:
    seen: set[str] = set()
    pages = [page for page in sorted(folder.glob("*.html")) if not NOT_PROSE.fullmatch(page.name)]
    return [text for page in pages if len(text := page_text(page, seen)) > 2000]


def page_text(page: Path, seen: set[str]) -> str:
    parser = Page()
    parser.feed(page.read_text(encoding="utf-8", errors="replace").translate(PLAIN))
    kept = []
    for raw in re.split(r"\n\s*\n", "".join(parser.parts)):
        code = raw.strip("\n").startswith("\0")
        text = raw.strip("\n")[1:].replace("\1", "\n") if code else " ".join(raw.split())
        if (
            len(text) > 25
            and text not in seen
            and ord(max(text)) < 256
            and not text.startswith("This page last modified")
        ):
            kept.append(f"{text}\n\n")
            seen.add(text)
    return "".join(kept)


def modules(stdlib: Path) -> list[str]:
    files = sorted(stdlib.glob("*.py")) + [f for p in PACKAGES for f in sorted((stdlib / p).glob("*.py"))]
    found = []
    for file in files:
        text = file.read_text(encoding="utf-8")
        if len(text) > 4000 and ord(max(text)) < 256 and file.stem not in NOT_CODE and not NOTICE.search(text):
            found.append(f"{text.strip()}\n\n\n")
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
