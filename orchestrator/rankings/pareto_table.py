"""A Pareto front -> a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orchestrator.rankings.pareto import FrontRow, ParetoFront
from orchestrator.supported_digits import plain

_WORDS = {"on": "on the front", "possible": "possible", "dominated": "dominated", "gated": "", "absent": ""}
_STYLES = {"on": "bold green", "possible": None, "dominated": "dim", "gated": "dim", "absent": "dim"}
SHOWN_DOMINATED = 10


def front_table(front: ParetoFront, labels: Mapping[str, str]) -> RenderableType:
    """Configs on the front and possible ones, then the first of the others."""
    ways = "; ".join(f"{'highest' if aim.maximize else 'lowest'} {aim}" for aim in front.aims)
    on = f" on {front.host_class}" if front.host_class else ""
    title = escape(f"{front.name}: {ways}{on}")
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("config", overflow="fold")
    for aim in front.aims:
        table.add_column(escape(f"{aim.metric} {aim.unit}".strip()), justify="right", overflow="fold")
    table.add_column("P(front)", justify="right")
    table.add_column("place", overflow="fold")
    shown = [row for row in front.rows if row.place in ("on", "possible")]
    others = [row for row in front.rows if row.place not in ("on", "possible")]
    for row in (*shown, *others[:SHOWN_DOMINATED]):
        table.add_row(escape(labels.get(row.config_id, row.config_id)), *_cells(row), style=_STYLES[row.place])
    notes = [front.note] if front.note else []
    if len(others) > SHOWN_DOMINATED:
        notes.append(f"... and {len(others) - SHOWN_DOMINATED} more that are not on it (--json lists all)")
    return Group(Text(""), table, *(Text(note, style="italic") for note in notes))


def _cells(row: FrontRow) -> list[str]:
    values = ["-" if value is None else plain(value) for value in row.values]
    chance = "-" if row.probability is None else f"{row.probability:.2f}"
    return [*values, chance, escape(_WORDS[row.place] or row.why)]
