"""Texts of strangers (logs, names, answers) as a page or a file shows them: nothing in them acts. Pure.

Whoever uses them still escapes them for HTML, Markdown or plots.
"""

from __future__ import annotations

import hashlib
import re

# Colours and movements of a terminal: CSI, OSC (titles, links), and other two-byte escapes.
_TERMINAL = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\|$)|[ -/]*[0-~])?")
_LINE_ENDS = re.compile(r"\r\n|[\u2028\u2029\x85]")
# What turns the order of the letters around it, so that a text reads as another one.
_BIDI = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
_ODD = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff{_BIDI}]")
_NO_ANCHOR = re.compile(r"[^A-Za-z0-9_-]+")


def harmless(text: str) -> str:
    """Without terminal codes; control characters, halves of surrogate pairs and turned directions are made visible."""
    if text.isprintable():
        return text
    return _ODD.sub(_visible, _LINE_ENDS.sub("\n", _TERMINAL.sub("", text)))


def _visible(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "\u2421"
    return f"[U+{code:04X}]" if character in _BIDI else "\ufffd"


def anchor(name: str) -> str:
    """`name` as an id of HTML that needs no escaping anywhere; different names stay different."""
    plain = _NO_ANCHOR.sub("-", name)
    if plain == name and name:
        return name
    return f"{plain[:40]}-{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:8]}"


def cut(text: str, most: int) -> str:
    """At most `most` characters, the last of which says that there was more."""
    return text if len(text) <= most else f"{text[: most - 1]}\u2026"


def capitalised(text: str) -> str:
    """As the beginning of a sentence or a title; names further on keep their letters."""
    return text[:1].upper() + text[1:]
