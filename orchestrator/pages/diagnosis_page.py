"""docs/diagnosis.md, from the labels and rules of the diagnosis (`make docs`)."""

from __future__ import annotations

from actors.diagnosis.labels import LABELS
from actors.diagnosis.rule import Rule
from actors.diagnosis.rulebook import KINDS
from orchestrator.outcome import INFEASIBLE, Label, Phase

HEAD = """\
# Diagnosis

Why a server died: `specsweep diagnose server.log`, or in a sweep by itself, in one line for each failed start. This
page is generated from the rules (`make docs`).

    specsweep diagnose LOG... [--exit-code N] [--json]      # .gz, .zst, - for standard input
    specsweep diagnose RUN [--json]                         # all failed starts of a run directory, judged anew

Several logs are those of the ranks or hosts of one start: the first cause among them is told; what is only the
consequence of another rank's death comes after it. The log that a run keeps of a server over several hosts holds
all ranks, each under its own heading, and is read like several. Exit code 0 when there is a verdict, 2 for what cannot
be read.

`--json` gives `label`, `phase`, `evidence` (the line, cut to 500 characters), `line` (from 1; 0 where no line shows
it), `confidence`, `rule`, `infeasible`, `explanation` and `advice` (best first); with several logs that of the cause,
and all under `files`; for a run `{"run", "starts": [...]}` with `trial_id`, `attempt`, `outcome` and the `recorded`
label. As a library: `orchestrator.diagnosing.log_diagnosis.diagnose_log(file, exit_code=None)`.

How a verdict is found:

* Prefixes of docker, kubectl, CRI, journald, Ray, torch and vLLM, colours, and progress bars glued to lines are taken
  off; a message that a terminal wrapped is put together again. Rules are matched at the start of a message, so that a
  prompt or an advice which mentions memory is no evidence.
* A cause beats a hint, a hint beats a bare exception; among equals the first line wins, since later ones are echoes.
* An exception that no rule knows is told by the place where it broke: the frames of its traceback, else the last mark
  of the start that its rank had reached.
* What a server works on after (the same rank goes on with batches) was no death: `benign`. After "somebody asked it to
  stop" nothing is a crash.
* Without an exit code the log may be a living server's: `ready` and `benign` are verdicts too. The healthy lines below
  are never more than `benign`.
* Of several starts in one file the last one counts.

**Confidence** is *high* where a line names the cause (or Specsweep saw it itself), *medium* where a line hints at it or
the place of an exception tells it, *low* where only the exit code or a line without its place is known.

**Infeasible** labels say that the config cannot run there; the others that something broke.
"""


def diagnosis_page() -> str:
    """docs/diagnosis.md."""
    parts = [
        HEAD,
        "## Labels\n\n| label | infeasible | what happened | what to change, best first |\n|---|---|---|---|\n",
    ]
    for label in Label:
        fact = LABELS[label]
        moves = "; ".join(fact.advice) or "nothing"
        parts[-1] += f"| `{label}` | {'yes' if label in INFEASIBLE else ''} | {fact.means} | {_cell(moves)} |\n"
    phases = ", ".join(f"`{phase}`" for phase in Phase)
    parts.append(f"## Phases\n\n{' '.join((Phase.__doc__ or '').split())}\n\nIn order: {phases}.\n")
    for title, rules in KINDS:
        head = "| rule | label | phase | means | typical line | beside the label's advice | words of |\n"
        parts.append(f"## {title}\n\n{head}|---|---|---|---|---|---|---|\n" + "".join(map(_row, rules)))
    return "\n".join(parts)


def _row(rule: Rule) -> str:
    label = f"`{rule.label}`" if rule.label is not None else "`oom_*` by place"
    weight = "" if rule.weight.name == "CAUSE" else f" ({rule.weight.name.lower()})"
    where = (
        f"`{rule.fixed}`"
        if rule.fixed
        else f"as the log shows, else `{rule.usual}`"
        if rule.usual
        else "as the log shows"
    )
    means = rule.means or (LABELS[rule.label].means if rule.label is not None else "device memory ran out")
    line = rule.example if len(rule.example) <= 120 else f"{rule.example[:117]}..."
    told = f"`{_cell(line).replace('`', chr(39))}`"
    cells = (
        f"`{rule.name}`",
        f"{label}{weight}",
        where,
        _cell(means),
        told,
        _cell("; ".join(rule.advice)) or "-",
        rule.source,
    )
    return f"| {' | '.join(cells)} |\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")
