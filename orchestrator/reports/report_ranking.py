"""Rankings as tables of a report: one per objective, then what was repaired, could not run, or broke. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from orchestrator.documents.report_document import Block, Cell, Column, Items, Table, Tone
from orchestrator.documents.report_numbers import NOTHING, cell, clipped, more_in
from orchestrator.points.metric_names import RANKABLE
from orchestrator.points.metric_title import aim_title, metric_title
from orchestrator.rankings.not_measured import NotMeasured
from orchestrator.rankings.ranking_cells import gap_texts, half_share, heading, places_text, trials_text
from orchestrator.rankings.ranking_reason import probability
from orchestrator.rankings.ranking_remarks import remarks, what_helps
from orchestrator.rankings.ranking_row import Ranking, Row
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.reports.report_part import PartMaterial

# A page is no place for ten thousand rows; `ranking.json` has them all.
MOST_ROWS = 600
# Letters of a log line in a table.
MOST_LETTERS = 600
_BESIDE = {
    "accept_length": Column("accept length", "tok", help="Tokens that a verify pass yields, the bonus token included."),
    "ttft_p50_ms": Column("TTFT p50", "ms", help="Median time to the first token."),
    "tpot_p50_ms": Column("TPOT p50", "ms", help="Median time of a token after the first."),
}


def ranking_blocks(part: PartMaterial) -> tuple[Block, ...]:
    """All tables of one class of hosts."""
    tables = (ranking_table(ranking, part) for ranking in part.ranking.rankings if ranking.rows)
    return (*tables, *not_measured_blocks(part))


def ranking_table(ranking: Ranking, part: PartMaterial) -> Table:
    """One row a config, best first; what does not pass comes last, muted."""
    unit = ranking.rows[0].unit if ranking.rows else ""
    within = " in run" if ranking.spread.kind == "within_run" else ""
    beside = [name for name, _ in ranking.rows[0].beside] if ranking.rows else []
    columns = (
        Column("#", help="Place, or the places that the data leave open."),
        Column("config", numeric=False),
        Column(
            _value_title(ranking),
            unit,
            help=f"{ranking.aim} ({ranking.workload}), estimated over trials and hosts.",
        ),
        Column(f"± 95%{within}", "%", help="Half of the interval that holds the value at 95%."),
        Column("gap", "%", help="How much worse than the best value, with its 95% interval."),
        Column(f"P(best){within}", help="Probability that no other config that passes is better."),
        Column("trials"),
        *(_BESIDE.get(name, Column(metric_title(name))) for name in beside),
        Column("remarks", numeric=False),
    )
    rows, place = [], 0
    most = max((row.value for row in ranking.rows if row.value is not None and math.isfinite(row.value)), default=0.0)
    for row in ranking.rows[:MOST_ROWS]:
        place += row.eligible
        rows.append(_cells(row, place, part, most))
    more = len(ranking.rows) - MOST_ROWS
    return Table(
        block_id=f"ranking-{_slug(ranking.objective)}{part.mark}",
        caption=heading(ranking, aim_title(str(ranking.aim))),
        columns=columns,
        rows=tuple(rows),
        marked=(0,) if ranking.winner else (),
        note=f"{more:,} more configs are in ranking.json." if more > 0 else "",
    )


def _value_title(ranking: Ranking) -> str:
    """What an objective ranks by; an expression is in the caption already."""
    return metric_title(ranking.metric) if ranking.metric in RANKABLE else "value"


def _slug(name: str) -> str:
    kept = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower())
    return kept.strip("-")[:40] or "objective"


def _share(row: Row, most: float) -> float | None:
    return None if row.value is None or most <= 0 else max(0.0, row.value / most)


def _cells(row: Row, place: int, part: PartMaterial, most: float) -> tuple[Cell, ...]:
    first = row.eligible and place == 1
    told = clipped(remarks(row, part.ranking, part.labels), MOST_LETTERS)
    tone: Tone = "bad" if row.gates_failed else "warn" if row.doubtful or not row.comparable else "plain"
    return (
        Cell(places_text(row, place), sort=place if row.eligible else None, tone="good" if first else "plain"),
        Cell(part.name(row.config_id), note=row.config_id, tone="good" if first else _muted(row)),
        replace(cell(row.value, row.low, row.high, tone="good" if first else _muted(row)), share=_share(row, most)),
        _half(row),
        _gap(row),
        NOTHING if row.p_best is None else Cell(probability(row.p_best), sort=round(row.p_best, 4)),
        Cell(trials_text(row), sort=row.trials),
        *(cell(value) for _, value in row.beside),
        Cell(told, tone=tone) if told else Cell(""),
    )


def _muted(row: Row) -> Tone:
    return "plain" if row.eligible else "muted"


def _half(row: Row) -> Cell:
    share = half_share(row)
    return NOTHING if share is None else Cell(f"{share:.1%}", sort=round(100 * share, 3))


def _gap(row: Row) -> Cell:
    if row.gap_to_best is None:
        return NOTHING
    told, interval = gap_texts(row)
    return Cell(told, sort=round(100 * row.gap_to_best, 3), note=interval)


def not_measured_blocks(part: PartMaterial) -> list[Block]:
    """What died as asked and was served after a repair, what cannot run, and what broke; nothing where all ran."""
    ranking, mark = part.ranking, part.mark
    blocks: list[Block] = []
    if ranking.repaired:
        title = "Died as asked, served after a repair"
        blocks.append(_table(f"repaired{mark}", title, ranking.repaired, part, "served as"))
    if ranking.infeasible:
        blocks.append(_table(f"infeasible{mark}", "Infeasible: cannot run like this", ranking.infeasible, part))
    if ranking.failed:
        title = "Failed: broke, says nothing about the config"
        blocks.append(_table(f"failed{mark}", title, ranking.failed, part))
    return blocks


def _table(
    block_id: str, caption: str, configs: Sequence[NotMeasured], part: PartMaterial, last: str = "what may help"
) -> Table:
    columns = tuple(Column(name, numeric=False) for name in ("config", "diagnosis", "phase", "evidence", last))
    rows = tuple(
        (
            Cell(part.name(c.config_id), note=c.config_id),
            Cell(c.label, tone="bad", anchor="failures"),
            Cell(c.phase),
            Cell(clipped(c.evidence, MOST_LETTERS)),
            Cell(clipped(_followed(c, part.ranking, part.labels), MOST_LETTERS)),
        )
        for c in configs[:MOST_ROWS]
    )
    return Table(block_id, caption, columns, rows, note=more_in(len(configs) - MOST_ROWS, "ranking.json"))


def _followed(config: NotMeasured, ranking: RunRanking, labels: dict[str, str]) -> str:
    served = config.served_as
    if served is None:
        return what_helps(config)
    told = ranking.repairs[served].text if served in ranking.repairs else f"served as {labels.get(served, served)}"
    died = len(config.story.attempts)
    return told + (f" (after {died} that died as well)" if died else "")


def not_started(part: PartMaterial) -> Items | None:
    """Configs of the sweep that no table has: never started."""
    told = {r.config_id for ranking in part.ranking.rankings for r in ranking.rows}
    told |= {c.config_id for c in (*part.ranking.repaired, *part.ranking.infeasible, *part.ranking.failed)}
    told |= set(part.ranking.merged) | {trial["config_id"] for trial in part.trials}  # repairs may have died as well
    left = [part.name(c) for c in part.ranking.configs if c not in told]
    if not left:
        return None
    named = ", ".join(left[:10]) + (f" and {len(left) - 10:,} more" if len(left) > 10 else "")
    return Items((f"{len(left):,} of {len(part.ranking.configs):,} configs were not started: {named}",))
