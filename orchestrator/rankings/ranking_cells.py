"""What tables, pages and files say of a ranking and its rows, in the same words. Pure."""

from __future__ import annotations

from orchestrator.rankings.ranking_row import Ranking, Row
from orchestrator.supported_digits import percent, shown


def heading(ranking: Ranking, aim: str) -> str:
    """`best: highest output throughput at C=1 (chat) on h100`; `aim`: what it ranks by, as the reader is told."""
    way = "highest" if ranking.maximize else "lowest"
    on = f" on {ranking.host_class}" if ranking.host_class else ""
    return f"{ranking.objective}: {way} {aim} ({ranking.workload}){on}"


def value_text(row: Row) -> str:
    """`12350 tok/s`"""
    return "not measured" if row.value is None else f"{shown(row.value, row.low, row.high)} {row.unit}".rstrip()


def places_text(row: Row, place: int) -> str:
    """Its place, as a range where the data leave it open; `-` for what does not pass."""
    if row.rank_low is not None and row.rank_low != row.rank_high:
        return f"{row.rank_low}-{row.rank_high}"
    return str(place) if row.eligible else "-"


def half_share(row: Row) -> float | None:
    """Half of its 95 % interval, as a share of the value; None where nothing is known of the spread."""
    if row.low is None or row.high is None or not row.value:
        return None
    return (row.high - row.low) / 2 / abs(row.value)


def gap_texts(row: Row) -> tuple[str, str]:
    """How much worse than the best, and from where to where at 95 %: empty where that is not known."""
    if row.gap_to_best is None:
        return "-", ""
    told = percent(row.gap_to_best, row.gap_low, row.gap_high)
    if row.gap_low is None or row.gap_high is None or row.gap_low == row.gap_high:
        return told, ""
    low, high = (percent(bound, row.gap_low, row.gap_high).rstrip("%") for bound in (row.gap_low, row.gap_high))
    return told, f"{low} to {high}"


def trials_text(row: Row) -> str:
    """How often it was measured, and on how many hosts, if several."""
    return f"{row.trials} ({row.hosts} hosts)" if row.hosts > 1 else str(row.trials)
