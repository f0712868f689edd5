"""What broke or could not run, by its diagnosis: how often, with what evidence, and what to do. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from actors.diagnosis.advice import advice, explanation
from orchestrator.documents.report_document import Block, Cell, Code, Column, Fold, Items, Paragraph, Table
from orchestrator.documents.report_numbers import clipped, count
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.plural import plural
from orchestrator.reports.report_part import PartMaterial, Row

MOST_EVIDENCE = 5
MOST_LOGS = 20
MOST_LETTERS = 2000
MOST_ADVICE = 300


def failure_blocks(part: PartMaterial) -> list[Block]:
    """A table of diagnoses, then each with its evidence."""
    groups: dict[str, list[Row]] = {}
    for trial in part.trials:
        if trial["outcome"] not in ("measured", "cancelled"):
            groups.setdefault(trial["label"] or "unknown", []).append(trial)
    if not groups:
        return [Paragraph("Every server that was started came up and was measured.", "good")]
    ordered = sorted(groups.items(), key=lambda group: (-len(group[1]), group[0]))
    rows = tuple(_row(label, trials) for label, trials in ordered)
    columns = (
        Column("diagnosis", numeric=False), Column("what it means", numeric=False), Column("starts"),
        Column("configs"), Column("phase", numeric=False, help="Where in its start, or later, the server died."),
        Column("counts as", numeric=False, help="infeasible: cannot run by nature, a result; failed: broke, and says "
               "nothing about the config."),
        Column("what may help", numeric=False),
    )  # fmt: skip
    table = Table(f"diagnoses{part.mark}", "Diagnoses", columns, rows)
    return [table, *(_details(part, label, trials) for label, trials in ordered)]


def _row(label: str, trials: Sequence[Row]) -> tuple[Cell, ...]:
    phases = Counter(trial["phase"] or "-" for trial in trials)
    kinds = Counter(trial["outcome"] for trial in trials)
    return (
        Cell(label, tone="bad"),
        Cell(_means(trials[-1])),
        count(len(trials)),
        count(len({trial["config_id"] for trial in trials})),
        Cell(", ".join(phases)),
        Cell(", ".join(kinds)),
        Cell(_first_advice(trials[-1])),
    )


def _diagnosis(trial: Row) -> Diagnosis | None:
    """None for a label or phase that this release does not know."""
    if trial["label"] not in set(Label):
        return None
    phase = Phase(trial["phase"]) if trial["phase"] in set(Phase) else Phase.LAUNCH
    return Diagnosis(Label(trial["label"]), phase, trial["evidence"] or "", exit_code=trial["exit_code"])


def _first_advice(trial: Row) -> str:
    """The best; all of it is below."""
    diagnosis = _diagnosis(trial)
    return clipped((advice(diagnosis) or ("",))[0], MOST_ADVICE) if diagnosis else ""


def _means(trial: Row) -> str:
    diagnosis = _diagnosis(trial)
    return explanation(diagnosis) if diagnosis else "a diagnosis of another release"


def _details(part: PartMaterial, label: str, trials: Sequence[Row]) -> Fold:
    evidence = Counter(trial["evidence"] or "" for trial in trials)
    blocks: list[Block] = [
        Code(clipped(text, MOST_LETTERS), f"Evidence ({plural(n, 'start')})")
        for text, n in evidence.most_common(MOST_EVIDENCE)
        if text
    ]
    if len(evidence) > MOST_EVIDENCE:
        blocks.append(Paragraph(f"{len(evidence) - MOST_EVIDENCE} more kinds of evidence are in dataset/trials."))
    diagnosis = _diagnosis(trials[-1])
    told = advice(diagnosis) if diagnosis else ()
    if told:
        blocks += [Paragraph("What may help, best first:"), Items(told)]
    named = [
        f"{part.name(trial['config_id'])}, on slot {trial['slot']}: {log_name(trial)}{_line(trial)}"
        for trial in trials[:MOST_LOGS]
    ]
    more = len(trials) - MOST_LOGS
    blocks.append(Items((*named, *((f"and {more} more",) if more > 0 else ()))))
    return Fold(f"{label}: {plural(len(trials), 'start')}", tuple(blocks))


def log_name(trial: Row) -> str:
    """Of a start's log in the run directory; earlier attempts keep theirs under their number."""
    attempt = f"-{trial['attempt']}" if trial["attempt"] > 1 else ""
    return f"logs/{trial['trial_id']}/server{attempt}.log.zst"


def _line(trial: Row) -> str:
    return f", line {trial['line_number']}" if trial["line_number"] else ""
