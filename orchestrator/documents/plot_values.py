"""What a plot draws as a table: for readers without scripts, for Markdown, for those who cannot see it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from orchestrator.documents.report_document import Axis, Number, Plot, Series

MOST_ROWS = 200


@dataclass(frozen=True, slots=True)
class PlotValues:
    """`heads` and `rows` of text; `left_out`: values of the plot that are not here."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left_out: int


def plot_values(plot: Plot, most_rows: int = MOST_ROWS) -> PlotValues:
    """Of long series, values evenly spaced from the first to the last."""
    is_gantt = plot.kind == "gantt"
    has_interval = any(s.low and s.high for s in plot.series)
    has_labels = any(s.labels for s in plot.series)
    heads = ["series", *(("row", _head(plot.x) + " from", "length") if is_gantt else (_head(plot.x), _head(plot.y)))]
    heads += ["interval"] if has_interval else []
    heads += ["remark"] if has_labels else []
    share = max(2, most_rows // max(1, len(plot.series)))
    rows: list[tuple[str, ...]] = []
    total = 0
    for series in plot.series:
        known = [i for i, y in enumerate(series.y) if y is not None]
        is_limit = _is_limit(plot, series)
        known = known[:1] if is_limit else known
        total += len(known)
        for i in _spread(known, share):
            row = [series.name, *_place(plot, series, i)]
            row[1] = "all" if is_limit else row[1]
            row += [_interval(series, i)] if has_interval else []
            row += [series.labels[i] if series.labels else ""] if has_labels else []
            rows.append(tuple(row))
    shown = rows[:most_rows]
    return PlotValues(tuple(heads), tuple(shown), total - len(shown))


def _is_limit(plot: Plot, series: Series) -> bool:
    """One value for all that is on the axis: said once."""
    all_of_it = bool(plot.x.categories) and len(series.y) == len(plot.x.categories)
    return series.dashed and not series.labels and all_of_it and len({*series.y}) == 1


def _spread(indices: Sequence[int], most: int) -> list[int]:
    if len(indices) <= most:
        return list(indices)
    step = (len(indices) - 1) / (most - 1)
    return [indices[round(k * step)] for k in range(most)]


def _place(plot: Plot, series: Series, i: int) -> tuple[str, ...]:
    if plot.kind == "gantt":
        base = series.base[i] if series.base else 0
        unit = "s" if plot.x.times else plot.x.unit
        return (value_text(series.y[i]), value_text(base, plot.x), f"{value_text(series.x[i])} {unit}".strip())
    return (value_text(series.x[i], plot.x), value_text(series.y[i], plot.y))


def _interval(series: Series, i: int) -> str:
    low = series.low[i] if series.low else None
    high = series.high[i] if series.high else None
    return "" if low is None or high is None else f"{value_text(low)} to {value_text(high)}"


def _head(axis: Axis) -> str:
    unit = "UTC" if axis.times else axis.unit
    return f"{axis.title} ({unit})" if unit else axis.title


def value_text(value: Number | str | None, axis: Axis | None = None) -> str:
    """At most six digits; times as UTC to the second."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    if axis is not None and axis.times:
        return datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
    return str(value) if isinstance(value, int) else f"{value:.6g}"
