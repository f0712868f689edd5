"""A Pareto front -> a table for a terminal."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.text import Text

from orchestrator.fitted_table import FittedColumn, FittedTable
from orchestrator.rankings.pareto import FrontRow, ParetoFront
from orchestrator.supported_digits import plain

_WORDS = {"on": "on the front", "possible": "possible", "dominated": "dominated", "gated": "", "absent": ""}
_STYLES = {"on": "bold green", "possible": None, "dominated": "dim", "gated": "dim", "absent": "dim"}
SHOWN_DOMINATED = 10


def front_table(front: ParetoFront, labels: Mapping[str, str]) -> RenderableType:
    """Configs on the front and possible ones, then the first of the others."""
    ways = "; ".join(f"{'highest' if aim.maximize else 'lowest'} {aim}" for aim in front.aims)
    on = f" on {front.host_class}" if front.host_class else ""
    metrics = (FittedColumn(f"{aim.metric} {aim.unit}".strip(), "number") for aim in front.aims)
    columns = (FittedColumn("config", "name"), *metrics, FittedColumn("P(front)", "number"), FittedColumn("place"))
    table = FittedTable(columns, f"{front.name}: {ways}{on}")
    shown = [row for row in front.rows if row.place in ("on", "possible")]
    others = [row for row in front.rows if row.place not in ("on", "possible")]
    for row in (*shown, *others[:SHOWN_DOMINATED]):
        table.add_row(labels.get(row.config_id, row.config_id), *_cells(row), style=_STYLES[row.place])
    notes = [front.note] if front.note else []
    if len(others) > SHOWN_DOMINATED:
        notes.append(f"... and {len(others) - SHOWN_DOMINATED} more that are not on it (--json lists all)")
    return Group(Text(""), table, *(Text(note, style="italic") for note in notes))


def _cells(row: FrontRow) -> list[str]:
    values = ["-" if value is None else plain(value) for value in row.values]
    chance = "-" if row.probability is None else f"{row.probability:.2f}"
    return [*values, chance, _WORDS[row.place] or row.why]
