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
# Columns that go first on a narrow terminal, and the width from which each is shown.
_FROM_WIDTH = {"requests": 110, "free GiB": 90, "tok/s": 64, "config": 48}
_LEAST_ROWS = 3
_LEAST_CONFIG, _GAP = 8, 2


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
    names = ["slot", "config", "doing", "for", "tok/s", "requests", "free GiB"]
    names = [name for name in names if width >= _FROM_WIDTH.get(name, 0)]
    rows = [slot_cells(slot) for slot in slots]
    widths = _widths(rows, names, width)
    table = Table(box=None, pad_edge=False, expand=False)
    for name in names:
        is_number = name in ("for", "tok/s", "requests", "free GiB")
        table.add_column(name, no_wrap=True, justify="right" if is_number else "left", width=widths[name])
    for cells in rows:
        cells["slot"] = _ending(cells["slot"], widths["slot"])
        if "config" in widths:
            cells["config"] = "\n".join(_in_lines(cells["config"], widths["config"], most_lines))
        table.add_row(*(Text(cells[name], no_wrap=True, overflow="ellipsis") for name in names))
    return table


def _widths(rows: Sequence[dict[str, str]], names: Sequence[str], width: int) -> dict[str, int]:
    """What a slot does and how fast is never pushed out by long names: the config takes what is left."""
    widths = {name: max(len(name), *(len(cells[name]) for cells in rows), 0) for name in names}
    widths["slot"] = min(widths["slot"], max(10, width // 5))
    widths["doing"] = min(widths["doing"], max(12, width // 3))
    if "config" in widths:
        others = sum(widths.values()) - widths["config"] + _GAP * (len(names) - 1)
        widths["config"] = min(widths["config"], max(_LEAST_CONFIG, width - others))
    return widths


def _ending(name: str, most: int) -> str:
    """Slots of one cluster differ at the end of their names."""
    return name if len(name) <= most else f"\u2026{name[len(name) - most + 1 :]}"
