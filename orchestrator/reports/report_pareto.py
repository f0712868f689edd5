"""Throughput against the speed that a user sees, and the fronts that a scenario declares. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from orchestrator.documents.report_document import Axis, Block, Cell, Column, Paragraph, Plot, Series, Table
from orchestrator.documents.report_numbers import NOTHING, cell, more_in, rounded
from orchestrator.plural import plural
from orchestrator.rankings.pareto import FrontRow, ParetoFront, on_front
from orchestrator.reports.report_part import MOST_MUTED, PartMaterial, undrawn
from orchestrator.reports.report_values import Bounded, WorkloadValues
from orchestrator.supported_digits import plain
from orchestrator.trial import LoadLevel

MOST_ROWS = 300
PER_GPU = "output_throughput_tok_s_per_gpu"
TOTAL = "output_throughput_tok_s"
SPEED = "tok_s_per_user_p50"
_PLACES = {"on": "on the front", "possible": "possible", "dominated": "dominated", "gated": "", "absent": ""}
Spot = tuple[str, LoadLevel, Bounded, Bounded]  # config, level, speed of a user, throughput


def speed_blocks(part: PartMaterial, workloads: Sequence[WorkloadValues]) -> list[Block]:
    """One plot a workload: each config at each level, and those of which none is better in both."""
    blocks: list[Block] = []
    for number, of in enumerate(workloads):
        metric = PER_GPU if of.has(PER_GPU) else TOTAL
        spots = _spots(of, metric)
        if spots:
            blocks.append(_speed_plot(part, of, metric, spots, f"speed-{number}{part.mark}"))
    return blocks


def _spots(of: WorkloadValues, metric: str) -> list[Spot]:
    found = []
    for level in of.levels:
        throughput, speed = of.at(metric, level), of.at(SPEED, level)
        found += [(c, level, speed[c], throughput[c]) for c in throughput if c in speed]
    return found


def _best(spots: Sequence[Spot]) -> list[Spot]:
    """Those of which none is better in both, slow users first; of equal ones the first."""
    flags = on_front(np.array([(x.value, y.value) for _, _, x, y in spots]))
    found: dict[tuple[float, float], Spot] = {}
    for spot, on in zip(spots, flags, strict=True):
        if on:
            found.setdefault((spot[2].value, spot[3].value), spot)
    return [found[place] for place in sorted(found)]


def _speed_plot(part: PartMaterial, of: WorkloadValues, metric: str, spots: Sequence[Spot], block_id: str) -> Plot:
    best = _best(spots)
    series = []
    for config_id in part.highlighted:
        own = [spot for spot in spots if spot[0] == config_id]
        if own:
            series.append(replace(_series(part.name(config_id), own, part), look=part.look(config_id)))
    others = list(dict.fromkeys(spot[0] for spot in spots if spot[0] not in part.highlighted))
    for config_id in others[:MOST_MUTED]:
        series.append(_series("other configs", [spot for spot in spots if spot[0] == config_id], part, muted=True))
    series.append(_series("none is better in both", best, part, dashed=True))
    unit = "tok/s per GPU" if metric == PER_GPU else "tok/s"
    first, last = best[-1], best[0]
    told = (
        f"{plural(len(best), 'point')} of {len(spots)} are best in their kind. The fastest for one user is "
        f"{part.name(first[0])} at {first[1]} with {plain(first[2].value)} tok/s per user; most throughput has "
        f"{part.name(last[0])} at {last[1]} with {plain(last[3].value)} {unit}."
    )
    if others:
        told += f" {plural(len(others), 'other config')} muted{undrawn(len(others))}."
    return Plot(
        block_id,
        f"Throughput against the speed of a user ({of.workload})",
        "line",
        Axis("speed of the median user (1000 / TPOT)", "tok/s"),
        Axis("output throughput" + (" per GPU" if metric == PER_GPU else ""), "tok/s"),
        tuple(series),
        told,
        height_px=460,
    )


def _series(
    name: str, spots: Sequence[Spot], part: PartMaterial, *, dashed: bool = False, muted: bool = False
) -> Series:
    known = all(y.low is not None for _, _, _, y in spots) and not dashed and not muted
    return Series(
        name=name,
        x=tuple(x.value for _, _, x, _ in spots),
        y=tuple(y.value for _, _, _, y in spots),
        low=tuple(y.low for _, _, _, y in spots) if known else (),
        high=tuple(y.high for _, _, _, y in spots) if known else (),
        labels=tuple(f"{part.name(c)} at {level}" if dashed or muted else str(level) for c, level, _, _ in spots),
        group=name if muted else "",
        tone="muted" if muted else "plain",
        dashed=dashed,
    )


def front_blocks(part: PartMaterial) -> list[Block]:
    """A plot (of two axes) and a table for each declared front."""
    blocks: list[Block] = []
    for number, front in enumerate(part.ranking.fronts):
        if len(front.aims) >= 2 and any(_known(row) for row in front.rows):
            blocks.append(_front_plot(front, part, f"front-{number}{part.mark}"))
        blocks.append(_front_table(front, part, f"front-table-{number}{part.mark}"))
        blocks += [Paragraph(front.note, "warn")] if front.note else []
    return blocks


def _known(row: FrontRow) -> bool:
    return len(row.values) >= 2 and row.values[0] is not None and row.values[1] is not None


def _front_plot(front: ParetoFront, part: PartMaterial, block_id: str) -> Plot:
    by_place: dict[str, list[FrontRow]] = {}
    for row in front.rows:
        if _known(row):
            by_place.setdefault(row.place, []).append(row)
    series = []
    for place, rows in by_place.items():
        ordered = sorted(rows, key=lambda row: row.values[0] or 0.0)
        series.append(
            Series(
                name=_PLACES[place] or "a limit is not kept",
                x=tuple(rounded(row.values[0]) or 0.0 for row in ordered),
                y=tuple(rounded(row.values[1]) for row in ordered),
                labels=tuple(part.name(row.config_id) for row in ordered),
                tone={"on": "good", "possible": "plain", "gated": "bad"}.get(place, "muted"),  # type: ignore[arg-type]
            )
        )
    x, y = front.aims[:2]
    on = [part.name(row.config_id) for row in by_place.get("on", ())]
    more = f" Only the first two of {len(front.aims)} axes are drawn." if len(front.aims) > 2 else ""
    told = f"On the front: {', '.join(on[:8]) or 'none for sure'}{f' and {len(on) - 8} more' if len(on) > 8 else ''}."
    ways = f"{'higher' if x.maximize else 'lower'} and {'higher' if y.maximize else 'lower'} is better"
    return Plot(block_id, f"{front.name}: {ways}", "scatter", Axis(str(x), x.unit), Axis(str(y), y.unit),
                tuple(series), told + more)  # fmt: skip


def _front_table(front: ParetoFront, part: PartMaterial, block_id: str) -> Table:
    columns = (
        Column("config", numeric=False),
        *(Column(str(aim), aim.unit) for aim in front.aims),
        Column("P(front)", help="Share of 1,000 draws from the estimates in which it is on the front."),
        Column("place", numeric=False),
    )
    rows = tuple(
        (
            Cell(part.name(row.config_id), note=row.config_id),
            *(cell(value) for value in row.values),
            NOTHING if row.probability is None else Cell(f"{row.probability:.2f}", sort=round(row.probability, 3)),
            Cell(_PLACES[row.place] or row.why, tone="good" if row.place == "on" else "plain"),
        )
        for row in front.rows[:MOST_ROWS]
    )
    marked = tuple(i for i, row in enumerate(front.rows[:MOST_ROWS]) if row.place == "on")
    note = more_in(len(front.rows) - MOST_ROWS, "ranking.json")
    return Table(block_id, f"{front.name}: places", columns, rows, marked, note)
