"""A live view as a terminal shows it: slots, how far the run is, what leads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from textwrap import wrap

from rich.console import Group
from rich.table import Table
from rich.text import Text

from orchestrator.live_view import LiveView, SlotState, SlotView, counts_text, duration_text

# Slots at work come first where not all of them fit.
_ORDER: tuple[SlotState, ...] = ("measuring", "ready", "starting", "lost", "unused", "waiting")
# Columns that go first on a narrow terminal, and the width from which each is shown.
_FROM_WIDTH = {"requests": 110, "free GiB": 90, "tok/s": 64, "config": 48}
_LEAST_ROWS = 3


def live_table(view: LiveView, width: int, height: int) -> Group:
    """Never wider or higher than the terminal; what is left out is told."""
    best = [f"best so far for {b.objective}: {b.text}, {b.config}" for b in view.best]
    told = [*wrap(counts_text(view), width)[: max(1, height // 3)], *best[: max(1, height // 4)]]
    room = max(_LEAST_ROWS, height - len(told) - 4)
    shown, rest = _fitting(view.slots, room)
    lines = [*([rest] if rest else []), *told]
    return Group(_table(shown, width), *(Text(line, no_wrap=True, overflow="ellipsis") for line in lines))


def _fitting(slots: Sequence[SlotView], room: int) -> tuple[Sequence[SlotView], str]:
    if len(slots) <= room:
        return slots, ""
    first = sorted(range(len(slots)), key=lambda i: (_ORDER.index(slots[i].state), i))[: room - 1]
    shown = [slots[i] for i in sorted(first)]
    counts = Counter(slots[i].state for i in range(len(slots)) if i not in set(first))
    states = ", ".join(f"{counts[state]} {state}" for state in _ORDER if counts[state])
    return shown, f"and {len(slots) - len(shown)} more slots: {states}"


def _table(slots: Sequence[SlotView], width: int) -> Table:
    names = ["slot", "config", "doing", "for", "tok/s", "requests", "free GiB"]
    names = [name for name in names if width >= _FROM_WIDTH.get(name, 0)]
    table = Table(box=None, pad_edge=False, expand=False)
    for name in names:
        is_number = name in ("for", "tok/s", "requests", "free GiB")
        table.add_column(name, overflow="ellipsis", no_wrap=True, justify="right" if is_number else "left")
    for slot in slots:
        cells = slot_cells(slot)
        table.add_row(*(Text(cells[name], no_wrap=True, overflow="ellipsis") for name in names))
    return table


def slot_cells(slot: SlotView) -> dict[str, str]:
    """What the columns say of a slot; `-` where nothing is known."""
    requests = "-" if slot.running is None else f"{slot.running:.0f}"
    requests += f" +{slot.queued:.0f}" if slot.queued else ""
    return {
        "slot": slot.name,
        "config": slot.config or "-",
        "doing": slot.doing,
        "for": duration_text(slot.for_s),
        "tok/s": "-" if slot.tok_s is None else f"{slot.tok_s:.0f}",
        "requests": requests,
        "free GiB": "-" if slot.free_gib is None else f"{slot.free_gib:.1f}",
    }
