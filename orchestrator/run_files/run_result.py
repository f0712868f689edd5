"""How a run ended, for machines: the content of `result.json`, and the line about it in the log of a job. Pure."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from orchestrator.errors import SpecsweepError

RESULT_SCHEMA = 1
# Begins the line of a job's log that holds the whole result. A job has no other way to tell more than 0 or 1.
RESULT_MARK = "specsweep-result: "
OUTCOMES = ("measured", "infeasible", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Pick:
    """The winner of one objective. `value` is in `unit`."""

    objective: str
    config_id: str
    label: str
    settings: dict[str, Any]
    metric: str
    at: str
    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Ending:
    """Exit code, verdict in one word, and what to do about it."""

    exit_code: int
    verdict: str
    message: str


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run at its end. Counts are over all its starts, not only the last; times are UTC, `elapsed_s` of this start.

    `run_dir` and `run_id` are None where no run directory remains. `resume` is the command that continues the run.
    """

    ending: Ending
    scenario: str | None = None
    engine: str | None = None
    run_id: str | None = None
    run_dir: str | None = None
    trials: Mapping[str, int] = field(default_factory=dict)
    points: Mapping[str, int] = field(default_factory=dict)
    hosts_quarantined: tuple[str, ...] = ()
    picks: tuple[Pick, ...] = ()
    resume: str | None = None
    job_id: str | None = None
    started_at: str = ""
    ended_at: str = ""
    elapsed_s: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """The documented form (docs/operations.md)."""
        told = asdict(self)
        ending = told.pop("ending")
        lists = {"hosts_quarantined": list(self.hosts_quarantined), "picks": list(told["picks"])}
        return {"schema": RESULT_SCHEMA, **ending, **told, **lists}

    def line(self) -> str:
        """The line of a job's log."""
        return RESULT_MARK + json.dumps(self.as_json(), separators=(",", ":"))

    @classmethod
    def from_json(cls, told: Mapping[str, Any]) -> Self:
        """What `as_json` made. ValueError for another schema, KeyError or TypeError for what is no result."""
        if told["schema"] != RESULT_SCHEMA:
            raise ValueError(f"result has schema {told['schema']}, this specsweep reads {RESULT_SCHEMA}")
        given = {name: told[name] for name in cls.__slots__ if name in told}
        given["picks"] = tuple(Pick(**pick) for pick in told["picks"])
        given["hosts_quarantined"] = tuple(told["hosts_quarantined"])
        return cls(Ending(told["exit_code"], told["verdict"], told["message"]), **given)


def result_of_line(line: str) -> RunResult | None:
    """The result that a line of a job's log holds, None for any other line."""
    if not line.startswith(RESULT_MARK):
        return None
    try:
        return RunResult.from_json(json.loads(line.removeprefix(RESULT_MARK)))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def ending_of(error: BaseException | None) -> Ending:
    """How a run ends that raised this, or nothing."""
    match error:
        case None:
            return Ending(0, "complete", "All trials are measured, or cannot run by nature.")
        case SpecsweepError():
            return Ending(error.exit_code, error.verdict, str(error))
        case KeyboardInterrupt() | SystemExit():
            return Ending(130, "interrupted", "Stopped at once; every point that was measured is kept.")
        case _:
            return Ending(1, "crashed", f"a fault of Specsweep: {type(error).__name__}: {error}")


def trial_counts(planned: Iterable[str], outcomes: Mapping[str, str]) -> dict[str, int]:
    """Trials by their last outcome; `not_run` are planned ones without any.

    Repaired trials, which the plan does not have, count with their outcome.
    """
    counted = Counter(outcomes.values())
    return {name: counted[name] for name in OUTCOMES} | {"not_run": len(set(planned) - set(outcomes))}
