"""What a search asked and why, what it decided, and what it left behind. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from orchestrator.documents.report_document import Block, Cell, Column, Facts, Items, Paragraph, Table
from orchestrator.documents.report_numbers import clipped, count, more_in
from orchestrator.plural import plural
from orchestrator.reports.report_part import Row, RunMaterial

MOST_ROWS = 600
MOST_STEPS = 60


def search_blocks(run: RunMaterial) -> list[Block]:
    """Nothing for a grid, which asks for all."""
    search = run.scenario.search
    if search.method == "grid":
        return []
    asked = asked_once(run.events)
    steps = [event for event in run.events if event["event"] == "search_step"]
    spared = [event for event in run.events if event["event"] == "point_spared"]
    labels = run.labels
    rows = [("method", search.method), ("asked for", plural(len(asked), "start"))]
    if search.budget_trials:
        rows.append(("budget", plural(search.budget_trials, "start")))
    rows.append(("spared", plural(len(spared), "point")))
    blocks: list[Block] = [Facts("search-facts", tuple(rows))]
    if steps:
        told = [str(step["text"]) for step in steps]
        more = len(told) - MOST_STEPS
        blocks.append(Paragraph("What it decided, in order:"))
        blocks.append(Items((*told[:MOST_STEPS], *((f"and {more:,} more steps",) if more > 0 else ()))))
    left = _left_table(steps, labels)
    if left is not None:
        blocks.append(left)
    if spared:
        reasons = Counter(str(event["reason"]) for event in spared)
        found = tuple(f"{plural(n, 'point')}: {clipped(reason, 300)}" for reason, n in reasons.most_common(20))
        blocks += [Paragraph("Points that were not measured, since the config had lost by then:"), Items(found)]
    if asked:
        blocks.append(_asked_table(run, asked, labels))
    return blocks


def asked_once(events: Sequence[Row]) -> list[Row]:
    """What was asked for: a resumed run asks again for what was on its way."""
    first: dict[tuple[str, str, int], Row] = {}
    for event in events:
        if event["event"] == "trial_asked":
            first.setdefault((event.get("host_class", ""), event["config_id"], event["repeat"]), event)
    return list(first.values())


def _left_table(steps: Sequence[Row], labels: dict[str, str]) -> Table | None:
    """Configs that it dropped, by objective: the last reason of each."""
    dropped: dict[tuple[str, str], str] = {}
    for step in steps:
        objective = str(step.get("objective") or "all")
        dropped |= {(objective, config_id): str(why) for config_id, why in step["dropped"].items()}
    if not dropped:
        return None
    rows = tuple(
        (Cell(labels.get(config_id, config_id), note=config_id), Cell(objective), Cell(clipped(reason, 400)))
        for (objective, config_id), reason in list(dropped.items())[:MOST_ROWS]
    )
    columns = (Column("config", numeric=False), Column("objective", numeric=False), Column("why", numeric=False))
    note = more_in(len(dropped) - MOST_ROWS, "ranking.json (`search`)")
    return Table("search-left", "What it left behind", columns, rows, note=note)


def _asked_table(run: RunMaterial, asked: Sequence[Row], labels: dict[str, str]) -> Table:
    ends = {event["trial_id"]: event for event in run.events if event["event"] == "trial_ended"}
    columns = (
        Column("#"), Column("config", numeric=False), Column("start"), Column("why", numeric=False),
        Column("became", numeric=False),
    )  # fmt: skip
    rows = []
    for number, event in enumerate(asked[:MOST_ROWS], 1):
        config_id = str(event["config_id"])
        end = ends.get(f"{config_id}-r{event['repeat']}")
        became = "-" if end is None else end.get("label") or end["outcome"]
        rows.append(
            (count(number), Cell(labels.get(config_id, config_id), note=config_id), count(event["repeat"] + 1),
             Cell(clipped(str(event.get("why") or ""), 300)), Cell(str(became)))
        )  # fmt: skip
    note = more_in(len(asked) - MOST_ROWS, "journal.jsonl")
    return Table("search-asked", "What it asked, in order", columns, tuple(rows), note=note)
