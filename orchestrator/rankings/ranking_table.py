"""Rankings -> tables for a terminal."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.text import Text

from orchestrator.fitted_table import FittedColumn, FittedTable, Kind
from orchestrator.plural import plural
from orchestrator.rankings.explanation_text import explanation_lines
from orchestrator.rankings.not_measured import NotMeasured
from orchestrator.rankings.pareto_table import front_table
from orchestrator.rankings.ranking import BESIDE
from orchestrator.rankings.ranking_cells import gap_texts, half_share, heading, places_text, trials_text
from orchestrator.rankings.ranking_reason import probability
from orchestrator.rankings.ranking_remarks import remarks, what_helps
from orchestrator.rankings.ranking_row import Ranking, Row
from orchestrator.rankings.run_ranking import RunRanking
from orchestrator.supported_digits import plain, shown

# Heads the values of a metric without a unit.
VALUE = "value"
# A terminal is no place for hundreds of configs.
SHOWN_ROWS = 20
# Longer names take several lines, so that numbers find room beside them.
NAME_WIDTH = 40


def print_rankings(result: RunRanking, console: Console) -> None:
    """One table per objective, then what had to be repaired, what could not run, and what broke."""
    for part in result.parts or (result,):
        _print_part(part, console)
    for note in result.notes:
        console.print(Text(note, style="yellow"))


def _print_part(result: RunRanking, console: Console) -> None:
    labels, on = result.labels, f", on {result.host_class}" if result.host_class else ""
    for ranking in result.rankings:
        console.print(_objective(ranking, result, labels))
        console.print(explanation_block(ranking.objective, result))
    for front in result.fronts:
        console.print(front_table(front, labels))
    if result.repaired:
        console.print(_repaired(result, labels))
    if result.infeasible:
        console.print(_not_measured(f"Infeasible: cannot run like this{on}", result.infeasible, labels))
    if result.failed:
        console.print(_not_measured(f"Failed: broke, says nothing about the config{on}", result.failed, labels))


def _objective(ranking: Ranking, result: RunRanking, labels: dict[str, str]) -> RenderableType:
    shown_columns = _columns(ranking)
    kinds: dict[str, Kind] = {"#": "name", "config": "name", "remarks": "text"}
    columns = [FittedColumn(name, kinds.get(name, "number")) for name in shown_columns]
    table = FittedTable(columns, heading(ranking, str(ranking.aim)))
    place = 0
    for row in ranking.rows[:SHOWN_ROWS]:
        place += row.eligible
        cells = _cells(row, place, result, labels)
        style = "bold green" if row.eligible and place == 1 else None if row.eligible else "dim"
        table.add_row(*(cells[name] for name in shown_columns), style=style)
    notes = [Text(f"Note: {note}", style="yellow") for note in ranking.notes]
    more = [Text(_more(len(ranking.rows)))] if len(ranking.rows) > SHOWN_ROWS else []
    return Group(Text(""), table, *more, Text(f"Why: {ranking.reason}", style="italic"), *notes)


def _more(rows: int) -> str:
    return f"... and {plural(rows - SHOWN_ROWS, 'more config')} (specsweep rank --json lists all)"


def _in_lines(label: str) -> str:
    """A long name, broken between its settings."""
    lines: list[str] = []
    for part in label.split(", "):
        if lines and len(lines[-1]) + len(part) + 2 <= NAME_WIDTH:
            lines[-1] += f", {part}"
        else:
            lines.append(part)
    return ",\n".join(lines)


def _columns(ranking: Ranking) -> list[str]:
    """Without those that would be empty. `±` is half of the 95 % interval."""
    unit = (ranking.rows[0].unit if ranking.rows else "") or VALUE
    within = " in run" if ranking.spread.kind == "within_run" else ""
    known = [f"± 95%{within}"] if any(row.low is not None for row in ranking.rows) else []
    best = [f"P(best){within}"] if any(row.p_best is not None for row in ranking.rows) else []
    return ["#", "config", unit, *known, "gap", *best, "trials", *(_spaced(name) for name in BESIDE), "remarks"]


def _cells(row: Row, place: int, result: RunRanking, labels: dict[str, str]) -> dict[str, str]:
    """The row's text by column."""
    share = half_share(row)
    half = "-" if share is None else f"{share:.1%}"
    best = "-" if row.p_best is None else probability(row.p_best)
    return {
        "#": places_text(row, place),
        "config": _in_lines(labels.get(row.config_id, row.config_id)),
        row.unit or VALUE: "-" if row.value is None else shown(row.value, row.low, row.high),
        "± 95%": half,
        "± 95% in run": half,
        "gap": _gap(row),
        "P(best)": best,
        "P(best) in run": best,
        "trials": trials_text(row),
        **{_spaced(name): "-" if value is None else plain(value) for name, value in row.beside},
        "remarks": remarks(row, result, labels),
    }


def _gap(row: Row) -> str:
    told, interval = gap_texts(row)
    return f"{told} ({interval})" if interval else told


def _spaced(name: str) -> str:
    return name.replace("_", " ")


def explanation_block(objective: str, result: RunRanking) -> RenderableType:
    """Below a table: why its winner won, in sentences; nothing where there is no winner."""
    found = next((e for e in result.explanations if e.objective == objective), None)
    lines = explanation_lines(found) if found else []
    return Group(*(Text(f"  {line}") for line in lines))


def _repaired(result: RunRanking, labels: dict[str, str]) -> RenderableType:
    table = FittedTable(_death_columns("served as", "evidence"), "Died as asked, served after repair")
    for config in result.repaired:
        served = config.served_as or ""
        told = result.repairs[served].text if served in result.repairs else labels[served]
        died = len(config.story.attempts)
        tries = f" (after {died} that died as well)" if died else ""
        table.add_row(labels[config.config_id], config.label, config.phase, told + tries, config.evidence)
    return Group(Text(""), table)


def _not_measured(title: str, configs: tuple[NotMeasured, ...], labels: dict[str, str]) -> RenderableType:
    table = FittedTable(_death_columns("evidence", "what may help"), title)
    for config in configs[:SHOWN_ROWS]:
        label = labels.get(config.config_id, config.config_id)
        table.add_row(label, config.label, config.phase, config.evidence, what_helps(config))
    return Group(Text(""), table, *([Text(_more(len(configs)))] if len(configs) > SHOWN_ROWS else []))


def _death_columns(*told: str) -> list[FittedColumn]:
    names = [FittedColumn(name, "name") for name in ("config", "label", "phase")]
    return [*names, *map(FittedColumn, told)]
