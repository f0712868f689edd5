"""Where the GPU memory of each config went, also of those that had too little. Pure.

Measured parts are differences of the free memory that a server's log gives while it starts, of its fullest GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.memory_budget import Prediction
from orchestrator.outcome import Phase
from orchestrator.report_document import Axis, Block, Cell, Column, Paragraph, Plot, Series, Table
from orchestrator.report_numbers import NOTHING, clipped, count, gib, plural
from orchestrator.report_part import PartMaterial, Row
from orchestrator.server_account import account_of

# Bars that can be read side by side.
MOST_DEAD = 8
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
OTHER, FREE = "other", "free"
_NAMES = (*PARTS.values(), OTHER, FREE)


@dataclass(frozen=True, slots=True)
class MemoryBar:
    """One config: GiB by part from the bottom up, as measured; `predicted` is what it would have taken besides.

    `before_gib` was free before the weights. `died`: label and phase of its death, empty where it served.
    """

    config_id: str
    measured: Mapping[str, float]
    before_gib: float | None
    predicted: Mapping[str, float]
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
        left = free
    died = trial["outcome"] in ("infeasible", "failed") and not trial["points"]
    if left is not None and len(known) > 1:
        measured[FREE] = round(left, 3)
    account = account_of(trial)
    return MemoryBar(
        config_id,
        measured,
        known[0][1] if known else None,
        _predicted(prediction, {phase for phase, _ in known}) if died and prediction else {},
        f"{trial['label']} in {trial['phase']}" if died else "",
        trial["evidence"] or "" if died else "",
        account.kv_tokens if account else None,
        account.running_requests if account else None,
    )


def _predicted(prediction: Prediction, seen: set[Phase]) -> dict[str, float]:
    """What the phases that it did not live through were expected to take."""
    steps = [s for s in prediction.steps if s.phase in PARTS and s.phase not in seen]
    return {PARTS[s.phase]: round(s.takes.gib, 2) for s in steps if s.takes.gib >= LEAST_GIB}


def memory_blocks(part: PartMaterial, predictions: Mapping[str, Prediction], why_none: str = "") -> list[Block]:
    """A waterfall for highlighted configs and for those that died, and all in a table."""
    bars = _bars(part, predictions)
    told = [bar for bar in bars if len(bar.measured) > 1 or bar.predicted]
    blocks: list[Block] = []
    if told:
        shown = [b for b in told if b.config_id in part.highlighted] + [b for b in told if b.died][:MOST_DEAD]
        blocks.append(_plot(part, list({b.config_id: b for b in shown}.values())))
    else:
        blocks.append(Paragraph("No server told how much memory was free while it started."))
    if any(bar.died for bar in bars):
        blocks.append(Paragraph(_where_from(bars, predictions, why_none)))
    blocks.append(_table(part, bars, predictions))
    return blocks


def _where_from(bars: Sequence[MemoryBar], predictions: Mapping[str, Prediction], why_none: str) -> str:
    dead = [bar for bar in bars if bar.died]
    if any(bar.config_id in predictions for bar in dead):
        return "Of configs that died, solid parts were measured before their death; dashed ones are predicted."
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
    names = [part.name(bar.config_id) for bar in bars]
    series = []
    for name in _NAMES:
        known = [(label, bar.measured.get(name, 0.0)) for label, bar in zip(names, bars, strict=True)]
        if any(value for _, value in known):
            series.append(
                Series(name, tuple(label for label, _ in known), tuple(value for _, value in known), group=name,
                       tone="muted" if name == FREE else "plain")
            )  # fmt: skip
        needed = [(label, bar.predicted[name]) for label, bar in zip(names, bars, strict=True) if name in bar.predicted]
        if needed:
            series.append(
                Series(f"{name} (predicted)", tuple(label for label, _ in needed), tuple(v for _, v in needed),
                       group=name, dashed=True)
            )  # fmt: skip
    return Plot(
        f"memory{part.mark}",
        "GPU memory of one GPU when the server was ready, or when it died",
        "stacked",
        Axis("", categories=tuple(names)),
        Axis("memory", "GiB"),
        tuple(series),
        _summary(part, bars),
        height_px=440,
    )


def _summary(part: PartMaterial, bars: Sequence[MemoryBar]) -> str:
    served = [bar for bar in bars if not bar.died and FREE in bar.measured]
    told = []
    if served:
        least = min(served, key=lambda bar: bar.measured[FREE])
        told.append(f"Least stays free with {part.name(least.config_id)}: {least.measured[FREE]:.2f} GiB.")
    told += [
        f"{part.name(bar.config_id)} died of {bar.died}, with {bar.measured[FREE]:.2f} GiB free before it."
        for bar in bars
        if bar.died and FREE in bar.measured
    ][:4]
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
            *(_amount(bar, name) for name in names),
            count(bar.kv_tokens),
            count(bar.running),
            _known(bar, predictions.get(bar.config_id)),
        )
        for bar in bars[:MOST_ROWS]
    )
    more = len(bars) - MOST_ROWS
    note = f"{more:,} more are in dataset/trials." if more > 0 else ""
    return Table(f"memory-table{part.mark}", "Memory by config", columns, rows, note=note)


def _amount(bar: MemoryBar, name: str) -> Cell:
    if name not in bar.measured and name in bar.predicted:
        return Cell(f"{bar.predicted[name]:.2f}", sort=bar.predicted[name], tone="muted", note="predicted")
    return gib(bar.measured[name]) if name in bar.measured else NOTHING


def _known(bar: MemoryBar, prediction: Prediction | None) -> Cell:
    if not bar.died:
        return Cell("measured")
    limit = prediction.limit if prediction else None
    short = ""
    if limit is not None and limit.spare.gib < 0:
        short = f"; predicted: short by {-limit.spare.gib:.1f} ± {limit.spare.error_gib:.1f} GiB in {limit.phase}"
    return Cell(f"died of {bar.died}{short}", tone="bad", note=clipped(bar.evidence, 300))
