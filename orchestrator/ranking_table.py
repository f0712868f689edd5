"""Rankings -> tables for a terminal."""

from __future__ import annotations

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from orchestrator.pareto_table import front_table
from orchestrator.ranking import BESIDE, Ranking, Row
from orchestrator.recovery import repair_text
from orchestrator.run_ranking import NotMeasured, RunRanking


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
    for front in result.fronts:
        console.print(front_table(front, labels))
    if result.repaired:
        console.print(_repaired(result, labels))
    if result.infeasible:
        console.print(_not_measured(f"Infeasible: cannot run like this{on}", result.infeasible, labels))
    if result.failed:
        console.print(_not_measured(f"Failed: broke, says nothing about the config{on}", result.failed, labels))


def _objective(ranking: Ranking, result: RunRanking, labels: dict[str, str]) -> RenderableType:
    way = "highest" if ranking.maximize else "lowest"
    title = f"{ranking.objective}: {way} {ranking.aim} ({ranking.workload})"
    title += f" on {ranking.host_class}" if ranking.host_class else ""
    table = Table(title=escape(title), title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("#", justify="right")
    table.add_column("config", overflow="fold")
    unit = ranking.rows[0].unit if ranking.rows else ""
    table.add_column(unit or "value", justify="right")
    table.add_column("gap", justify="right")
    table.add_column("trials", justify="right")
    for name in BESIDE:
        table.add_column(name.replace("_", " "), justify="right")
    table.add_column("remarks", overflow="fold")
    place = 0
    for row in ranking.rows:
        ranked = row.value is not None and not row.gates_failed
        place += ranked
        style = "bold green" if ranked and place == 1 else None if ranked else "dim"
        table.add_row(
            str(place) if ranked else "-",
            escape(labels.get(row.config_id, row.config_id)),
            "-" if row.value is None else f"{row.value:.4g}",
            "-" if row.gap_to_best is None else f"{row.gap_to_best:.1%}",
            str(row.trials),
            *("-" if value is None else f"{value:.4g}" for _, value in row.beside),
            escape(_remarks(row, result, labels)),
            style=style,
        )
    return Group(Text(""), table, Text(f"Why: {ranking.reason}", style="italic"))


def _remarks(row: Row, result: RunRanking, labels: dict[str, str]) -> str:
    remarks = ["near-tie"] if row.tie and not row.gates_failed else list(row.gates_failed)
    if row.config_id in result.repairs:
        remarks.append(result.repairs[row.config_id].text)
    for died in result.stands_for(row.config_id):
        if row.config_id not in result.repairs or result.repairs[row.config_id].asked_id != died.config_id:
            remarks.append(f"also serves for {labels[died.config_id]}, which died ({died.label})")
    remarks += [str(change) for change in result.changes.get(row.config_id, ())]
    remarks += [f"same server as {labels[other]}" for other in result.same_as(row.config_id)]
    return "; ".join(remarks)


def _repaired(result: RunRanking, labels: dict[str, str]) -> RenderableType:
    title = "Died as asked, served after repair"
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("config", "label", "phase", "served as", "evidence"):
        table.add_column(name, overflow="fold")
    for config in result.repaired:
        served = config.served_as or ""
        told = result.repairs[served].text if served in result.repairs else labels[served]
        died = len(config.story.attempts)
        tries = f" (after {died} that died as well)" if died else ""
        table.add_row(
            escape(labels[config.config_id]), config.label, config.phase, escape(told + tries), escape(config.evidence)
        )
    return Group(Text(""), table)


def _not_measured(title: str, configs: tuple[NotMeasured, ...], labels: dict[str, str]) -> RenderableType:
    table = Table(title=escape(title), title_justify="left", title_style="bold", box=None, pad_edge=False)
    for name in ("config", "label", "phase", "evidence", "what may help"):
        table.add_column(name, overflow="fold")
    for config in configs:
        label = labels.get(config.config_id, config.config_id)
        table.add_row(escape(label), config.label, config.phase, escape(config.evidence), escape(_help(config)))
    return Group(Text(""), table)


def _help(config: NotMeasured) -> str:
    """A repair that was not made, or why none was and what the user may do."""
    suggested = repair_text(config.story.suggestion)
    died = len(config.story.attempts)
    tried = f"{died} repair{'s' if died > 1 else ''} died as well; " if died else ""
    if suggested:
        return f"{tried}try {suggested}"
    return tried + "; ".join(filter(None, (config.story.reason, *config.advice[:1])))
