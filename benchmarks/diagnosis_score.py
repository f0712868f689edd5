"""How often the diagnosis is right on a folder of real logs whose answers are known.

    python -m benchmarks.diagnosis_score CORPUS

CORPUS holds `index.csv` with the columns file, label, phase, log_alone_suffices (yes/no) and log_only_label, and the
logs. Lines `[[gap]]` of a log mark what was left out and are dropped. Where the log alone does not suffice, the label
or the weaker one that the log allows is right; a weaker label may be more than a label, e.g. `unknown(warm-up)`.
"""

from __future__ import annotations

import csv
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from actors.diagnosis import diagnose
from actors.servers.follower import split_log
from orchestrator.outcome import Diagnosis

HEALTHY = frozenset({"ready", "benign", "stop_requested"})
_WEAKER = {"oom_unknown_phase": "out_of_memory"}


@dataclass(frozen=True, slots=True)
class Case:
    """A log and its answer. `labels`: all that count as right."""

    file: str
    label: str
    labels: frozenset[str]
    phase: str
    suffices: bool
    told: Diagnosis

    @property
    def is_right(self) -> bool:
        return str(self.told.label) in self.labels

    @property
    def is_false_alarm(self) -> bool:
        return self.label in HEALTHY and str(self.told.label) not in HEALTHY


def cases(folder: Path) -> list[Case]:
    """All logs of the folder with what the diagnosis says of them."""
    with (folder / "index.csv").open(newline="", encoding="utf-8") as file:
        return [_case(folder, row) for row in csv.DictReader(file)]


def _case(folder: Path, row: dict[str, str]) -> Case:
    log = b"".join(
        line for line in (folder / row["file"]).read_bytes().splitlines(keepends=True) if line.strip() != b"[[gap]]"
    )
    suffices = row["log_alone_suffices"] != "no"
    weaker = row["log_only_label"].partition("(")[0]
    labels = {row["label"]} if suffices else {row["label"], _WEAKER.get(weaker, weaker)}
    told = diagnose(split_log(log), is_dead=False)
    return Case(row["file"], row["label"], frozenset(labels), row["phase"], suffices, told)


def _share(part: int, of: int) -> str:
    return f"{part} of {of} ({part / of:.0%})" if of else "none"


def print_scores(found: list[Case]) -> None:
    """The table by label, then what was missed."""
    counts, right = Counter(c.label for c in found), Counter(c.label for c in found if c.is_right)
    lines = ["| label | logs | right |", "|---|---|---|"]
    lines += [f"| `{label}` | {count} | {right[label]} |" for label, count in sorted(counts.items())]
    for title, group in (("log alone suffices", True), ("weaker label allowed", False)):
        chosen = [c for c in found if c.suffices is group]
        lines.append(f"{title}: label right {_share(sum(c.is_right for c in chosen), len(chosen))}")
    in_place = sum(str(c.told.phase) == c.phase for c in found)
    lines.append(f"phase right: {_share(in_place, len(found))}")
    lines.append(f"crash labels on healthy logs: {sum(c.is_false_alarm for c in found)}")
    for c in found:
        if not c.is_right or str(c.told.phase) != c.phase:
            what = "MISS " if not c.is_right else "phase"
            lines.append(
                f"{what} {c.file}: {c.told.label}/{c.told.phase}, not {c.label}/{c.phase}: {c.told.evidence[:90]}"
            )
    print("\n".join(lines))  # noqa: T201


if __name__ == "__main__":
    print_scores(cases(Path(sys.argv[1])))
