"""A plot of a report as a figure of plotly.js: plain dicts, ready for JSON. Pure.

Colours are names of the page's CSS variables (`--c0`), so that a plot follows light, dark and print. Plotly reads a few
HTML tags in all texts, and entities: texts are escaped here. The legend is made by the page (`legend`), since plotly's
own cannot be used from the keyboard.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from orchestrator.documents.report_document import Axis, Number, Plot, Series
from orchestrator.documents.report_numbers import rounded as short
from orchestrator.scenarios.config_label import short_names
from orchestrator.shown_text import cut, harmless

COLOURS = 7
_TONES = {"good": "--good", "bad": "--bad", "warn": "--warn", "muted": "--muted"}
_SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "x", "triangle-down", "star", "pentagon")
_DASHES = ("solid", "dot", "dashdot", "longdash")
# Bars of the same colours are told apart by their pattern.
_PATTERNS = ("", "/", ".", "x", "-", "+")
# A logarithmic axis with no more values (load levels) has its ticks at them.
_MOST_TICKS = 8
# More points of a line are drawn without marks.
_MOST_MARKED = 24
_TICK_CHARACTERS, _LABEL_CHARACTERS, _NAME_CHARACTERS = 40, 400, 80
_MS = 1000
# Of the width of a plot.
_EDGE = 0.02


def figure(plot: Plot) -> dict[str, Any]:
    """`data`, `layout` and `legend`: `keys`, a list of `name` (plain) and `traces` (indices) in order.

    Where a name is the values of the settings in `title` alone, `whole` is what it is short for.
    """
    joined = _joined(plot)
    drawn = [series for series, _ in joined]
    traces = [_trace(plot, *one, place) for one, place in zip(joined, _places(drawn), strict=True)]
    told = {"spans": [[rounded(a), rounded(b), escaped(name, _TICK_CHARACTERS)] for a, b, name in plot.spans]}
    return {"data": traces, "layout": _layout(plot), "legend": _legend(drawn, plot), **(told if plot.spans else {})}


def _joined(plot: Plot) -> list[tuple[Series, bool]]:
    """What is drawn as a trace each, and whether its points are marked.

    Muted series that look the same are one with gaps, at the place of the first: a trace costs more than its points.
    """
    together: dict[object, list[Series]] = {}
    for place, series in enumerate(plot.series):
        background = (series.group, _is_marked(series)) if _is_background(plot, series) else place
        together.setdefault(background, []).append(series)
    return [(members[0] if len(members) == 1 else _with_gaps(members), _is_marked(members[0]))
            for members in together.values()]  # fmt: skip


def _is_background(plot: Plot, series: Series) -> bool:
    is_plain = not (series.dashed or series.low or series.base)
    return series.tone == "muted" and is_plain and plot.kind in ("line", "steps", "scatter")


def _is_marked(series: Series) -> bool:
    return len(series.x) <= _MOST_MARKED


def _with_gaps(members: Sequence[Series]) -> Series:
    """Each point says whose it is, where they have no name in common."""
    x: list[Number | str] = []
    y: list[Number | str | None] = []
    labels: list[str] = []
    is_named = len({member.name for member in members}) > 1
    for member in members:
        gap = x[-1:]
        told = member.labels or ("",) * len(member.x)
        own = [f"{member.name} {label}".rstrip() for label in told] if is_named else told
        x += [*gap, *member.x]
        y += [*(None for _ in gap), *member.y]
        labels += [*("" for _ in gap), *own]
    name = members[0].group or (f"others ({len(members)})" if is_named else members[0].name)
    return replace(members[0], name=name, x=tuple(x), y=tuple(y), labels=tuple(labels) if any(labels) else ())


def escaped(text: str, most: int = _LABEL_CHARACTERS) -> str:
    """As plotly shows it: no tags, no entities, no `%{}` of templates, no formulas in `$`."""
    safe = html.escape(cut(harmless(text), most), quote=False)
    return safe.replace("%", "&#37;").replace("$", "&#36;").replace("\n", "<br>")


def rounded(value: Number | None) -> Number | None:
    """Six digits, whole numbers as such, and None for what JSON has no word for."""
    kept = short(value, 6)
    return int(kept) if kept is not None and kept == int(kept) and abs(kept) < 2**53 else kept


def _places(all_series: Sequence[Series]) -> list[int]:
    """Which colour, mark and dash: as it says itself, else one for each group, or series of its own, that no other has.
    What is muted takes none.
    """
    known: dict[str, int] = {}
    free = (place for place in itertools.count() if place not in {s.look for s in all_series})
    places = []
    for i, series in enumerate(all_series):
        key = f"group {series.group}" if series.group else f"series {i}"
        if series.tone == "muted":
            places.append(0)
        elif series.look is not None:
            places.append(series.look)
        else:
            if key not in known:
                known[key] = next(free)
            places.append(known[key])
    return places


def _legend(drawn: Sequence[Series], plot: Plot) -> dict[str, Any]:
    """What is muted and in no group is one entry."""
    muted = [s for s in plot.series if s.tone == "muted" and not s.group]
    others = muted[0].name if len(muted) == 1 else f"others ({len(muted)})"
    entries: dict[str, dict[str, Any]] = {}
    for i, series in enumerate(drawn):
        is_other = series.tone == "muted" and not series.group
        key = "others" if is_other else f"group {series.group}" if series.group else f"series {i}"
        name = others if is_other else series.group or series.name
        entries.setdefault(key, {"name": harmless(name), "traces": []})["traces"].append(i)
    short, title = short_names({key: entry["name"] for key, entry in entries.items()})
    for key, entry in entries.items():
        if short[key] != entry["name"]:
            entry["whole"] = cut(entry["name"], _LABEL_CHARACTERS)
        entry["name"] = cut(short[key], _NAME_CHARACTERS)
    return {"title": title, "keys": list(entries.values())}


def _trace(plot: Plot, series: Series, is_marked: bool, place: int) -> dict[str, Any]:
    colour = _TONES.get(series.tone, f"--c{place % COLOURS}")
    is_bar = plot.kind in ("bars", "stacked", "gantt")
    trace: dict[str, Any] = {"type": "bar" if is_bar else "scatter", "name": escaped(series.name, _NAME_CHARACTERS)}
    is_gantt = plot.kind == "gantt"
    trace["x"] = _values(series.x, plot.x, is_length=is_gantt)
    trace["y"] = _values(series.y, plot.y)
    looks = _bar(plot, series, colour, place) if is_bar else _line(plot, series, colour, place, is_marked=is_marked)
    trace |= looks
    if series.low and series.high:
        trace["band" if plot.bands else "error_y"] = _bars_of_error(series, colour)
    if series.labels:
        trace["text"] = [escaped(label) for label in series.labels]
        trace["textposition"] = "none" if is_bar else "top center"
    trace["hovertemplate"] = _hover(plot, series)
    return trace


def _line(plot: Plot, series: Series, colour: str, place: int, *, is_marked: bool) -> dict[str, Any]:
    is_muted = series.tone == "muted"
    cycle = place // COLOURS
    dash = "dash" if series.dashed else _DASHES[cycle % len(_DASHES)]
    if plot.kind == "scatter":
        mode = "markers"
    else:
        mode = "lines" if not is_marked or (series.dashed and not series.labels) else "lines+markers"
    symbol = _SYMBOLS[place % len(_SYMBOLS)] + ("-open" if series.dashed else "")
    drawn: dict[str, Any] = {
        "mode": mode,
        "marker": {"color": colour, "symbol": symbol, "size": 6 if is_muted else 9},
        "line": {"color": colour, "width": 1 if is_muted else 2, "dash": dash},
        "opacity": 0.55 if is_muted else 1,
        "connectgaps": False,
    }
    if plot.kind == "steps":
        drawn["line"]["shape"] = "hv"
    return drawn


def _bar(plot: Plot, series: Series, colour: str, place: int) -> dict[str, Any]:
    pattern = "/" if series.dashed else _PATTERNS[place // COLOURS % len(_PATTERNS)]
    bar: dict[str, Any] = {"marker": {"color": colour, "line": {"color": "--paper", "width": 1}}}
    if pattern:
        bar["marker"]["pattern"] = {"shape": pattern, "fillmode": "overlay", "solidity": 0.35}
    if plot.kind == "gantt":
        bar["orientation"] = "h"
    if series.base:
        bar["base"] = [_time(b) if plot.kind == "gantt" and plot.x.times else rounded(b) for b in series.base]
    return bar


def _bars_of_error(series: Series, colour: str) -> dict[str, Any]:
    def reach(bound: Number | None, value: Number | str | None) -> Number:
        if bound is None or value is None or isinstance(value, str) or not math.isfinite(bound):
            return 0
        return rounded(abs(bound - value)) or 0

    return {
        "type": "data",
        "symmetric": False,
        "array": [reach(h, y) for h, y in zip(series.high, series.y, strict=True)],
        "arrayminus": [reach(w, y) for w, y in zip(series.low, series.y, strict=True)],
        "color": colour,
        "thickness": 1.5,
        "width": 3,
    }


def _values(values: Sequence[Number | str | None], axis: Axis, *, is_length: bool = False) -> list[Any]:
    """`is_length`: seconds of a bar, not a point in time."""
    scale = _MS if axis.times else 1
    found: list[Any] = []
    for value in values:
        if isinstance(value, str):
            found.append(escaped(value, _TICK_CHARACTERS))
        elif value is None or scale == 1:
            found.append(rounded(value))
        else:
            found.append(round(value * scale) if is_length else _time(value))
    return found


def _time(seconds: Number) -> int | None:
    """Milliseconds since the epoch: what plotly takes for a date."""
    return round(seconds * _MS) if math.isfinite(seconds) else None


def _hover(plot: Plot, series: Series) -> str:
    lines = [f"<b>{escaped(series.name, _NAME_CHARACTERS)}</b>"]
    if plot.kind == "gantt":
        lines.append("%{y}")
        lines.append("%{base} + %{customdata}")
    else:
        lines.append(f"{escaped(plot.x.title, 60)}: %{{x}}{_unit(plot.x)}")
        lines.append(f"{escaped(plot.y.title, 60)}: %{{y}}{_unit(plot.y)}")
        if series.low and series.high:
            lines.append("%{customdata}")
    if series.labels:
        lines.append("%{text}")
    return "<br>".join(lines) + "<extra></extra>"


def _unit(axis: Axis) -> str:
    return f" {escaped(axis.unit, 40)}" if axis.unit and not axis.times else ""


def _layout(plot: Plot) -> dict[str, Any]:
    has_text_y = plot.kind == "gantt"
    layout: dict[str, Any] = {
        "xaxis": _axis(plot.x, [x for s in plot.series for x in s.x], is_bars=plot.kind in ("bars", "stacked")),
        "yaxis": _axis(plot.y, [y for s in plot.series for y in s.y], is_bars=has_text_y),
        "height": plot.height_px,
    }
    if plot.kind in ("line", "steps") and not plot.x.times:
        layout["xaxis"] |= _room(plot)
    if plot.kind == "stacked":
        layout["barmode"] = "overlay" if any(s.base for s in plot.series) else "stack"
    elif plot.kind == "bars":
        layout["barmode"] = "group"
    elif plot.kind == "gantt":
        layout["barmode"] = "overlay"
        layout["yaxis"] |= {"autorange": "reversed"}
    return layout


def _room(plot: Plot) -> dict[str, Any]:
    """A line without marks must not lie on the frame, where plotly would let it end: some room on both sides."""
    found = [x for s in plot.series for x in s.x if isinstance(x, int | float) and math.isfinite(x)]
    low, high = min(found, default=0), max(found, default=0)
    if all(_is_marked(s) for s in plot.series) or low == high or (plot.x.log and low <= 0):
        return {}
    if plot.x.log:
        edge = _EDGE * math.log10(high / low)  # `include` says nothing of logarithmic axes
        return {"range": [rounded(math.log10(low) - edge), rounded(math.log10(high) + edge)]}
    edge = (high - low) * _EDGE
    return {"autorangeoptions": {"include": [rounded(low - edge), rounded(high + edge)]}}


def _axis(axis: Axis, values: Sequence[Number | str | None], *, is_bars: bool) -> dict[str, Any]:
    unit = "UTC" if axis.times else axis.unit
    title = f"{escaped(axis.title, 80)} ({escaped(unit, 40)})" if unit else escaped(axis.title, 80)
    drawn: dict[str, Any] = {"title": {"text": title}}
    if axis.times:
        drawn["type"] = "date"
    elif axis.log:
        drawn["type"] = "log"
        drawn["tickformat"] = "~r"  # else 200 is a small "2" between 100 and 1000
        found = sorted({v for v in values if isinstance(v, int | float) and v > 0})
        if 1 < len(found) <= _MOST_TICKS:
            drawn |= {"tickmode": "array", "tickvals": [rounded(v) for v in found]}
    elif axis.categories or any(isinstance(v, str) for v in values):
        drawn["type"] = "category"
    else:
        drawn["type"] = "linear"
        if not is_bars and all(isinstance(v, int) for v in values if v is not None):
            drawn["tickformat"] = "~f"
    if axis.categories:
        drawn["categoryorder"] = "array"
        drawn["categoryarray"] = [escaped(c, _TICK_CHARACTERS) for c in axis.categories]
    return drawn
