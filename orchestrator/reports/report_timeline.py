"""When a run did what: its slots over time, and the phases of server starts. Pure."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.documents.report_document import Axis, Block, Cell, Column, Paragraph, Plot, Series, Table, Tone
from orchestrator.documents.report_numbers import count, duration, natural, seconds
from orchestrator.outcome import Phase
from orchestrator.plural import plural
from orchestrator.reports.report_memory import LOOKS, PARTS
from orchestrator.reports.report_part import PartMaterial, Row
from orchestrator.trial import LoadLevel

# Bars that a browser draws at once without effort, and rows that one can tell apart.
MOST_BARS = 4000
MOST_STARTS = 40
_PHASES = tuple(phase for phase in Phase if phase not in (Phase.READY, Phase.SERVING, Phase.SHUTDOWN, Phase.STATE_POOL))
# What takes memory has the colour that it has there; what comes before and after is grey and light blue, by patterns.
_LOOKS = {
    **{phase: LOOKS[name] for phase, name in PARTS.items()},
    Phase.LAUNCH: 5, Phase.ARGS: 12, Phase.SPAWN: 6, Phase.DIST_INIT: 13, Phase.HTTP_BIND: 19, Phase.WARMUP: 20,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Stretch:
    """Something that a slot did: seconds since the Unix epoch, and how long."""

    slot: str
    kind: str
    began: float
    took_s: float
    label: str
    tone: Tone = "plain"


def epoch(told: str) -> float:
    """Seconds since the Unix epoch of a time in ISO form."""
    return round(datetime.fromisoformat(told).timestamp(), 1)


def stretches(part: PartMaterial) -> list[Stretch]:
    """Starts, deaths and points in the order of the tables; a point with its warm-up."""
    found = []
    for trial in part.trials:
        if trial.get("reused_from"):
            continue
        name = f"{part.name(trial['config_id'])}, start {trial['repeat'] + 1}"
        began = epoch(trial["began_at"])
        if trial["start_s"] is not None:
            took = float(trial["start_s"])
            found.append(Stretch(trial["slot"], "start", began, took, f"{name}: ready after {seconds(took)}", "muted"))
        elif trial["outcome"] != "measured":
            label = trial["label"] or trial["outcome"]
            found.append(
                Stretch(trial["slot"], f"no start: {label}", began, _lived_s(trial), f"{name}: {label}", "bad")
            )
    for load in part.loads:
        if load.get("reused_from"):
            continue
        client = json.loads(load["client_json"])
        level = LoadLevel(load["level_kind"], load["level"])
        took = float(client["duration_s"]) + part.scenario.measure.warmup_s
        label = f"{part.name(load['config_id'])}, start {load['repeat'] + 1}: {load['workload']} at {level}"
        found.append(Stretch(load["slot"], "point", epoch(load["began_at"]), took, label, "good"))
    return found


def _lived_s(trial: Row) -> float:
    """As far as its phases tell."""
    ends = [p["ended_s"] if p["ended_s"] is not None else p["began_s"] for p in trial["phases"] or ()]
    return float(max([*ends, 0.1]))


def slot_blocks(part: PartMaterial) -> list[Block]:
    """What each slot did, as a plot over time and as sums."""
    found = stretches(part)
    if not found:
        return [Paragraph("Nothing was started in this run: all that it has was taken over from earlier ones.")]
    drawn = found[:MOST_BARS]
    kinds = dict.fromkeys(one.kind for one in drawn)
    slots = tuple(sorted({one.slot for one in drawn}, key=natural))
    series = []
    for kind in sorted(kinds, key=lambda k: (k.startswith("no start"), k)):
        own = [one for one in drawn if one.kind == kind]
        series.append(
            Series(
                name=kind,
                x=tuple(round(one.took_s, 1) for one in own),
                y=tuple(one.slot for one in own),
                labels=tuple(one.label for one in own),
                base=tuple(one.began for one in own),
                tone=own[0].tone,
            )
        )
    sums = _sums(found)
    busy = sum(s["start"] + s["point"] for s in sums.values())
    whole = sum(s["whole"] for s in sums.values())
    left = f" Only the first {MOST_BARS:,} stretches of {len(found):,} are drawn." if len(found) > MOST_BARS else ""
    told = (
        f"{plural(len(slots), 'slot')} over {seconds(max(s['whole'] for s in sums.values()))}; "
        f"{busy / whole:.0%} of their time went into starts and points.{left}"
    )
    plot = Plot(
        f"slots-plot{part.mark}", "What the slots did", "gantt", Axis("time", times=True),
        Axis("slot", categories=slots), tuple(series), told, height_px=min(140 + 26 * len(slots), 900),
    )  # fmt: skip
    return [plot, _slot_table(part, sums)]


def _sums(found: Sequence[Stretch]) -> dict[str, dict[str, float]]:
    """By slot: seconds in starts and points, deaths, and all from the first beginning to the last end of the run."""
    begin, end = min(one.began for one in found), max(one.began + one.took_s for one in found)
    sums: dict[str, dict[str, float]] = {}
    for one in found:
        own = sums.setdefault(one.slot, {"start": 0.0, "point": 0.0, "starts": 0, "deaths": 0, "points": 0})
        own["whole"] = max(end - begin, 0.1)
        if one.kind == "point":
            own["point"] += one.took_s
            own["points"] += 1
        else:
            own["start"] += one.took_s
            own["starts"] += 1
            own["deaths"] += one.kind != "start"
    return sums


def _slot_table(part: PartMaterial, sums: Mapping[str, Mapping[str, float]]) -> Table:
    columns = (
        Column("slot", numeric=False), Column("starts"), Column("without a server"), Column("points"),
        Column("starting", "s"), Column("measuring", "s", help="Points with their warm-up."),
        Column("rest", "%", help="Waiting, stopping, preparing: what was neither a start nor a point."),
    )  # fmt: skip
    rows = []
    for slot, own in sorted(sums.items(), key=lambda item: natural(item[0])):
        rest = max(0.0, 1 - (own["start"] + own["point"]) / own["whole"])
        rows.append(
            (
                Cell(slot), count(own["starts"]), count(own["deaths"]), count(own["points"]), duration(own["start"]),
                duration(own["point"]), Cell(f"{rest:.0%}", sort=round(rest, 4)),
            )
        )  # fmt: skip
    return Table(f"slot-sums{part.mark}", "Slots", columns, tuple(rows))


def start_blocks(part: PartMaterial) -> list[Block]:
    """The phases of starts: a few as bars, all of them as medians."""
    timed = [trial for trial in part.trials if trial["phases"] and not trial.get("reused_from")]
    if not timed:
        return [Paragraph("No server told the phases of its start.")]
    chosen = _chosen(part, timed)
    blocks: list[Block] = [_phase_plot(part, chosen, len(timed)), _phase_table(part, timed)]
    speedup = part.scenario.engine.start_speedup
    if part.scenario.engine.kind == "emulator" and speedup != 1:
        blocks.insert(0, Paragraph(f"Emulated starts are {speedup:g} times as fast as what they stand for.", "warn"))
    return blocks


def _chosen(part: PartMaterial, timed: Sequence[Row]) -> list[Row]:
    """Of highlighted configs the first start, what died, then the slowest of the others."""
    firsts: dict[str, Row] = {}
    for trial in timed:
        if trial["config_id"] in part.highlighted:
            firsts.setdefault(trial["config_id"], trial)
    dead = [trial for trial in timed if trial["start_s"] is None]
    slow = sorted(timed, key=lambda trial: -(trial["start_s"] or 0.0))
    found = {(t["trial_id"], t["attempt"]): t for t in (*firsts.values(), *dead[: MOST_STARTS // 3], *slow)}
    return list(found.values())[:MOST_STARTS]


def _phase_plot(part: PartMaterial, chosen: Sequence[Row], count_all: int) -> Plot:
    names = [_start_name(part, trial) for trial in chosen]
    longest = max(_lived_s(trial) for trial in chosen)
    series = []
    for phase in _PHASES:
        own = [
            (name, p)
            for name, trial in zip(names, chosen, strict=True)
            for p in trial["phases"]
            if p["phase"] == phase and p["ended_s"] is not None and p["ended_s"] > p["began_s"]
        ]
        if own:
            series.append(
                Series(
                    name=phase.value,
                    x=tuple(round(p["ended_s"] - p["began_s"], 3) for _, p in own),
                    y=tuple(name for name, _ in own),
                    labels=tuple(_phase_label(p) for _, p in own),
                    base=tuple(round(p["began_s"], 3) for _, p in own),
                    look=_LOOKS.get(phase),
                )
            )
    dead = [(name, t) for name, t in zip(names, chosen, strict=True) if t["start_s"] is None]
    if dead:
        series.append(
            Series(
                "died here", tuple(round(max(longest / 60, 0.05), 3) for _ in dead), tuple(name for name, _ in dead),
                labels=tuple(f"{t['label'] or t['outcome']} in {t['phase'] or 'an unknown phase'}" for _, t in dead),
                base=tuple(round(_lived_s(t), 3) for _, t in dead), tone="bad",
            )
        )  # fmt: skip
    ready = [float(t["start_s"]) for t in chosen if t["start_s"] is not None]
    told = f"{plural(len(chosen), 'start')} of {count_all:,}."
    if ready:
        told += f" Median until ready: {seconds(statistics.median(ready))}; the slowest {seconds(max(ready))}."
    return Plot(
        f"starts-plot{part.mark}", "Phases of server starts", "gantt", Axis("since launch", "s"),
        Axis(part.rows_title, categories=tuple(names)), tuple(series), told, height_px=min(140 + 24 * len(names), 1000),
    )  # fmt: skip


def _start_name(part: PartMaterial, trial: Row) -> str:
    again = f", try {trial['attempt']}" if trial["attempt"] > 1 else ""
    return f"{part.row_name(trial['config_id'])} #{trial['repeat'] + 1}{again}"


def _phase_label(phase: Mapping[str, object]) -> str:
    free = phase["free_gib"]
    left = f"{free:g} GiB free after it" if isinstance(free, int | float) else ""
    return "; ".join(filter(None, (str(phase["detail"] or ""), left)))


def _phase_table(part: PartMaterial, timed: Sequence[Row]) -> Table:
    columns = (
        Column("phase", numeric=False), Column("starts"), Column("median", "s"), Column("slowest", "s"),
        Column("slowest config", numeric=False), Column("died in it"),
    )  # fmt: skip
    rows = []
    for phase in _PHASES:
        took = [
            (p["ended_s"] - p["began_s"], trial["config_id"])
            for trial in timed
            for p in trial["phases"]
            if p["phase"] == phase and p["ended_s"] is not None
        ]
        died = sum(trial["phase"] == phase for trial in timed if trial["start_s"] is None)
        if took or died:
            slowest = max(took, default=(None, ""))
            median = statistics.median(s for s, _ in took) if took else None
            rows.append(
                (Cell(phase.value), count(len(took)), duration(median), duration(slowest[0]),
                 Cell(part.name(slowest[1]) if slowest[1] else "-"), count(died))
            )  # fmt: skip
    return Table(f"phases{part.mark}", "Phases of all starts", columns, tuple(rows))
