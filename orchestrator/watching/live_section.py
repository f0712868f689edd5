"""The section of a live report about what the run is doing now. Pure."""

from __future__ import annotations

from orchestrator.documents.report_document import Block, Cell, Code, Column, Fold, Paragraph, Section, Table, Tone
from orchestrator.plural import plural
from orchestrator.shown_text import capitalised
from orchestrator.watching.live_view import LiveView, SlotView, counts_text, slot_cells
from orchestrator.watching.watch_state import WatchedRun

LIVE_ID = "now"
# More would make each second's news too large.
MOST_ROWS = 256
_TONES: dict[str, Tone] = {"measuring": "good", "lost": "bad", "unused": "warn", "waiting": "muted"}
_STATUS: dict[str, Tone] = {"silent": "bad", "starting": "warn"}
_COLUMNS = (
    Column("slot", numeric=False),
    Column("config", numeric=False),
    Column("doing", numeric=False, help="phase of its start with what is done of it, or the point that is measured"),
    Column("for", help="time in that phase or point"),
    Column("output", "tok/s", help="by the server's own account where it tells, else over the requests that ended"),
    Column("requests", help="running at the server, and waiting there"),
    Column("KV used", "%"),
    Column("GPU free", "GiB"),
)


def live_section(run: WatchedRun) -> Section:
    """Progress, slots, what leads, and the last lines that the run told."""
    view = run.view
    blocks: list[Block] = [Paragraph(_sentence(run), _STATUS.get(run.status, "plain")), Paragraph(counts_text(view))]
    if run.message and run.exit_code:
        blocks.append(Paragraph(run.message, "warn"))
    if view.slots:
        blocks.append(_slots(view))
    if view.best:
        blocks.append(_best(view))
    if view.recent:
        blocks.append(Fold("Last lines of the run", (Code("\n".join(view.recent)),)))
    return Section(LIVE_ID, "How it ended" if run.is_over else "Now", tuple(blocks))


def _sentence(run: WatchedRun) -> str:
    return f"{capitalised(run.text)}."


def _slots(view: LiveView) -> Table:
    shown = view.slots[:MOST_ROWS]
    rest = len(view.slots) - len(shown)
    return Table(
        "now-slots", "Slots", _COLUMNS, tuple(map(_row, shown)),
        note=f"{plural(rest, 'more slot')} not shown" if rest else "",
    )  # fmt: skip


def _row(slot: SlotView) -> tuple[Cell, ...]:
    text = slot_cells(slot)
    used = None if slot.kv_usage is None else 100 * slot.kv_usage
    return (
        Cell(text["slot"]),
        Cell(text["config"]),
        Cell(text["doing"], tone=_TONES.get(slot.state, "plain")),
        Cell(text["for"], slot.for_s),
        _number(text["tok/s"], slot.tok_s),
        Cell(text["requests"], slot.running),
        _number("-" if used is None else f"{used:.0f}", used),
        _number(text["free GiB"], slot.free_gib),
    )


def _number(text: str, value: float | None) -> Cell:
    return Cell(text, float("nan") if value is None else value)


def _best(view: LiveView) -> Table:
    is_classed = any(best.host_class for best in view.best)
    columns = (
        Column("objective", numeric=False), Column("config", numeric=False), Column("value"),
        *((Column("hosts", numeric=False),) if is_classed else ()),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(best.objective), Cell(best.config), Cell(best.text, best.value),
            *((Cell(best.host_class),) if is_classed else ()),
        )
        for best in view.best
    )  # fmt: skip
    caption = "Picks" if view.ended else "Best so far"
    note = "" if view.ended else "As far as single trials tell; the ranking below says how sure that is."
    return Table("now-best", caption, columns, rows, note=note)
