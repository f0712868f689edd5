"""A live view as a terminal shows it: slots, how far the run is, what leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import wrap

from rich.console import Group
from rich.table import Table
from rich.text import Text

from orchestrator.watching.live_view import LiveView, SlotState, SlotView, counts_text, slot_cells

# Slots at work come first where not all of them fit.
_ORDER: tuple[SlotState, ...] = ("measuring", "ready", "starting", "lost", "unused", "waiting")
_COLUMNS = ("slot", "config", "doing", "for", "tok/s", "requests", "free GiB")
# What goes first where there is no room for all.
_SPARED = ("requests", "free GiB", "tok/s", "config")
_LEAST_ROWS = 3
# A config has so much room before columns go for it; and so little before it goes itself.
_FAIR_CONFIG, _LEAST_CONFIG, _GAP = 24, 12, 2


def live_table(view: LiveView, width: int, height: int) -> Group:
    """Never wider or higher than the terminal; what is left out is told."""
    which = "pick" if view.ended else "best so far"
    best = [f"{which} for {b.objective}: {b.text}, {b.config}" for b in view.best]
    most = max(1, height // 4)
    best = [line for one in best[:most] for line in _in_lines(one, width, max(1, most // len(best)))]
    told = [*wrap(counts_text(view), width)[: max(1, height // 3)], *best]
    room = max(_LEAST_ROWS, height - len(told) - 4)
    shown, rest = _fitting(view.slots, room)
    lines = [*([rest] if rest else []), *told]
    tables = [_table(shown, width, max(1, room // len(shown)))] if shown else []  # none after the end
    return Group(*tables, *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


def _in_lines(text: str, width: int, most: int) -> list[str]:
    """A long line broken between settings, on so many lines at most; the last one has all that is left."""
    lines: list[str] = []
    for part in text.split(", "):
        if lines and (len(lines) == most or len(lines[-1]) + len(part) + 3 <= width):
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return [f"{line}," for line in lines[:-1]] + lines[-1:]


def _fitting(slots: Sequence[SlotView], room: int) -> tuple[Sequence[SlotView], str]:
    if len(slots) <= room:
        return slots, ""
    first = sorted(range(len(slots)), key=lambda i: (_ORDER.index(slots[i].state), i))[: room - 1]
    shown = [slots[i] for i in sorted(first)]
    counts = Counter(slots[i].state for i in range(len(slots)) if i not in set(first))
    states = ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])
    return shown, f"and {len(slots) - len(shown)} more slots: {states}"


def _table(slots: Sequence[SlotView], width: int, most_lines: int) -> Table:
    """`most_lines`: of one slot, for the settings of configs that do not fit in one."""
    rows = [slot_cells(slot) for slot in slots]
    widths = _widths(rows, width)
    names = list(widths)
    table = Table(box=None, pad_edge=False, expand=False)
    for name in names:
        is_number = name in ("for", "tok/s", "requests", "free GiB")
        table.add_column(name, no_wrap=True, justify="right" if is_number else "left", width=widths[name])
    for cells in rows:
        cells["slot"] = _ending(cells["slot"], widths["slot"])
        if "config" in widths:
            lines = _in_lines(cells["config"], widths["config"], most_lines)
            cells["config"] = "\n".join(line if ", " in line else _ending(line, widths["config"]) for line in lines)
        table.add_row(*(Text(cells[name], no_wrap=True, overflow="ellipsis") for name in names))
    return table


def _widths(rows: Sequence[dict[str, str]], width: int) -> dict[str, int]:
    """Of the columns that are shown. What a slot does is never pushed out by long names: a config has what is left."""
    widths = {name: max(len(name), *(len(cells[name]) for cells in rows), 0) for name in _COLUMNS}
    widths["slot"] = min(widths["slot"], max(10, width // 5))
    widths["doing"] = min(widths["doing"], max(12, width // 3))
    longest = widths["config"]
    for name in _SPARED:
        room = width - sum(widths.values()) + widths["config"] - _GAP * (len(widths) - 1)
        least = _LEAST_CONFIG if name in ("config", "tok/s") else _FAIR_CONFIG
        if room >= min(longest, least):
            widths["config"] = min(longest, room)
            break
        del widths[name]
    return widths


def _ending(name: str, most: int) -> str:
    """Slots of one cluster differ at the end of their names, and values of one setting."""
    return name if len(name) <= most else f"\u2026{name[len(name) - most + 1 :]}"
