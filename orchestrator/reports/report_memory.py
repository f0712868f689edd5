"""Where the GPU memory of each config went, also of those that had too little. Pure.

Measured parts are differences of the free memory that a server's log gives while it starts, of its fullest GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.documents.report_document import Axis, Block, Cell, Column, Paragraph, Plot, Series, Table
from orchestrator.documents.report_numbers import clipped, count, gib, more_in
from orchestrator.memory.memory_budget import Prediction
from orchestrator.outcome import Phase
from orchestrator.plural import plural
from orchestrator.reports.report_part import PartMaterial, Row
from orchestrator.sglang.server_account import account_of

# Bars that can be read side by side.
MOST_DEAD = 8
MOST_TOLD = 2
NOTHING_TAKEN = "No phase took memory that can be told: these are servers on CPU, or of models that are very small."
MOST_ROWS = 300
# Less is noise of the log's two decimals.
LEAST_GIB = 0.02
PARTS = {
    Phase.WEIGHTS: "weights",
    Phase.DRAFT_WEIGHTS: "draft weights",
    Phase.KV_POOL: "KV cache and states",
    Phase.GRAPH_TARGET: "graphs of the target",
    Phase.GRAPH_DRAFT: "graphs of the draft",
}
OTHER, FREE, MISSING = "other", "free", "missing (predicted)"
_NAMES = (*PARTS.values(), OTHER, FREE)
# Colours, of the phases of starts too.
LOOKS = {name: i for i, name in enumerate((*PARTS.values(), OTHER))}


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """One config: GiB by part from the bottom up, as measured; `missing_gib` is what it lacked, as predicted (0: it
    served, or nothing is predicted).

    `before_gib` was free before the weights. `died`: label and phase of its death, empty where it served.
    """

    config_id: str
    measured: Mapping[str, float]
    before_gib: float | None
    missing_gib: float
    died: str = ""
    evidence: str = ""
    kv_tokens: int | None = None
    running: int | None = None


def memory_bar(trial: Row, config_id: str, prediction: Prediction | None = None) -> MemoryBar:
    """Of one start, from a row of `trials`."""
    known = [(Phase(p["phase"]), p["free_gib"]) for p in trial["phases"] or () if p["free_gib"] is not None]
    measured: dict[str, float] = {}
    left = known[0][1] if known else None
    for phase, free in known[1:]:
        if left is not None and left - free >= LEAST_GIB:
            name = PARTS.get(phase, OTHER)
            measured[name] = round(measured.get(name, 0.0) + left - free, 3)
        elif left is not None and free - left >= LEAST_GIB:
            _give_back(measured, free - left)
        left = free
    died = trial["outcome"] in ("infeasible", "failed") and not trial["points"]
    if left is not None and len(known) > 1:
        measured[FREE] = round(left, 3)
    account = account_of(trial)
    return MemoryBar(
        config_id,
        measured,
        known[0][1] if known else None,
        _missing(prediction, {phase for phase, _ in known}) if died and prediction else 0.0,
        f"{trial['label']} in {trial['phase']}" if died else "",
        trial["evidence"] or "" if died else "",
        account.kv_tokens if account else None,
        account.running_requests if account else None,
    )


def _give_back(measured: dict[str, float], gib: float) -> None:
    """Memory that came free again is taken off the parts that grew last: all of them and what is free are one sum."""
    for name in reversed(measured):
        taken = min(gib, measured[name])
        measured[name] = round(measured[name] - taken, 3)
        gib -= taken


def _missing(prediction: Prediction, seen: set[Phase]) -> float:
    """What was short in a phase that it did not live through."""
    short = -prediction.limit.spare.gib
    return round(short, 2) if short >= LEAST_GIB and prediction.limit.phase not in seen else 0.0


def memory_blocks(part: PartMaterial, predictions: Mapping[str, Prediction], why_none: str = "") -> list[Block]:
    """A waterfall for highlighted configs and for those that died, and all in a table."""
    bars = _bars(part, predictions)
    told = [bar for bar in bars if len(bar.measured) > 1 or bar.missing_gib]
    blocks: list[Block] = []
    if told:
        shown = [b for b in told if b.config_id in part.highlighted] + [b for b in told if b.died][:MOST_DEAD]
        blocks.append(_plot(part, list({b.config_id: b for b in shown}.values())))
    else:
        seen = any(bar.before_gib is not None for bar in bars)
        blocks.append(Paragraph(NOTHING_TAKEN if seen else "No server told how much memory was free while it started."))
    if any(bar.died for bar in bars):
        blocks.append(Paragraph(_where_from(bars, predictions, why_none)))
    blocks.append(_table(part, bars, predictions))
    return blocks


def _where_from(bars: Sequence[MemoryBar], predictions: Mapping[str, Prediction], why_none: str) -> str:
    dead = [bar for bar in bars if bar.died]
    if any(bar.missing_gib for bar in dead):
        return "Of configs that died, parts were measured before their death; what was missing is predicted."
    if any(bar.config_id in predictions for bar in dead):
        why_none = "the prediction has room for them"
    return f"Of configs that died, parts were measured before their death; {why_none or 'nothing more is predicted'}."


def _bars(part: PartMaterial, predictions: Mapping[str, Prediction]) -> list[MemoryBar]:
    """One a config: of a start that served if there is one, else of its last."""
    chosen: dict[str, Row] = {}
    for trial in part.trials:
        config_id = trial["config_id"]
        before = chosen.get(config_id)
        if before is None or (not before["points"] and (trial["points"] or before["outcome"] == "failed")):
            chosen[config_id] = trial
    order = {config_id: i for i, config_id in enumerate(part.highlighted)}
    bars = [memory_bar(trial, config_id, predictions.get(config_id)) for config_id, trial in chosen.items()]
    return sorted(bars, key=lambda bar: (order.get(bar.config_id, len(order)), not bar.died))


def _plot(part: PartMaterial, bars: Sequence[MemoryBar]) -> Plot:
    """Horizontal, since names are long: each part begins where the one before it ends."""
    drawn: dict[str, list[tuple[str, float, float]]] = {}  # by part: row, where it begins, GiB
    for bar in bars:
        at = 0.0
        for name in (*_NAMES, MISSING):
            takes = bar.missing_gib if name == MISSING else bar.measured.get(name, 0.0)
            if takes:
                drawn.setdefault(name, []).append((_row(part, bar), round(at, 3), takes))
                at += takes
    series = tuple(
        Series(
            name=name,
            x=tuple(takes for _, _, takes in drawn[name]),
            y=tuple(row for row, _, _ in drawn[name]),
            labels=tuple(f"{takes:.2f} GiB" for _, _, takes in drawn[name]),
            base=tuple(at for _, at, _ in drawn[name]),
            tone="muted" if name == FREE else "bad" if name == MISSING else "plain",
            dashed=name == MISSING,
            look=LOOKS.get(name),
        )
        for name in (*_NAMES, MISSING)
        if name in drawn
    )
    return Plot(
        f"memory-plot{part.mark}",
        "GPU memory of one GPU when the server was ready, or when it died",
        "gantt",
        Axis("memory from the start of loading on", "GiB"),
        Axis(part.rows_title, categories=tuple(dict.fromkeys(_row(part, bar) for bar in bars))),
        series,
        _summary(part, bars),
        height_px=min(160 + 30 * len(bars), 900),
    )


def _row(part: PartMaterial, bar: MemoryBar) -> str:
    """A row of a config that died is marked, since its bar may look like any other."""
    name = part.row_name(bar.config_id)
    return f"\u2717 {name}" if bar.died else name


def _summary(part: PartMaterial, bars: Sequence[MemoryBar]) -> str:
    served = [bar for bar in bars if not bar.died and FREE in bar.measured]
    told = []
    if served:
        least = min(served, key=lambda bar: bar.measured[FREE])
        told.append(f"Least stays free with {part.name(least.config_id)}: {least.measured[FREE]:.2f} GiB.")
    dead = [bar for bar in bars if bar.died and FREE in bar.measured]
    told += [
        f"{part.name(bar.config_id)} died of {bar.died}, with {bar.measured[FREE]:.2f} GiB free before it."
        for bar in dead[:MOST_TOLD]
    ]
    told += [f"{len(dead) - MOST_TOLD} more died."] if len(dead) > MOST_TOLD else []
    return " ".join(told) or plural(len(bars), "config")


def _table(part: PartMaterial, bars: Sequence[MemoryBar], predictions: Mapping[str, Prediction]) -> Table:
    columns = (
        Column("config", numeric=False),
        Column("before weights", "GiB"),
        *(Column(name, "GiB") for name in _NAMES if any(n == name for bar in bars for n in bar.measured)),
        Column("KV cache", "tok", help="Tokens that fit, as the server told."),
        Column("runs at once", "requests"),
        Column("what is known", numeric=False),
    )
    names = [column.name for column in columns[2:-3]]
    rows = tuple(
        (
            Cell(part.name(bar.config_id), note=bar.config_id),
            gib(bar.before_gib),
            *(gib(bar.measured.get(name)) for name in names),
            count(bar.kv_tokens),
            count(bar.running),
            _known(bar, predictions.get(bar.config_id)),
        )
        for bar in bars[:MOST_ROWS]
    )
    note = more_in(len(bars) - MOST_ROWS, "dataset/trials")
    return Table(f"memory-table{part.mark}", "Memory by config", columns, rows, note=note)


def _known(bar: MemoryBar, prediction: Prediction | None) -> Cell:
    if not bar.died:
        return Cell("measured" if bar.measured or bar.kv_tokens else "served; its log tells no memory")
    limit = prediction.limit if prediction else None
    short = ""
    if limit is not None and limit.spare.gib < 0:
        short = f"; predicted: short by {-limit.spare.gib:.1f} ± {limit.spare.error_gib:.1f} GiB in {limit.phase}"
    return Cell(f"died of {bar.died}{short}", tone="bad", note=clipped(bar.evidence, 300))
