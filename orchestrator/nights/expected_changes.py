"""`CHANGES.yaml`: shifts of nightly series that people expect, with the reason. Pure.

A change starts a new segment of the series that it names: change points are not looked for across it. With a `shift`,
verdicts of nights take it off until `until`, so that an accepted loss is not told again every night.

    changes:
      - date: 2026-12-01
        metric: ["tpot_*", output_throughput_tok_s]
        workload: chat
        shift: -3%
        why: "sampling on the CPU until the new kernel is in"
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from orchestrator.errors import ScenarioError
from orchestrator.nights.night import SeriesKey, better_sign
from orchestrator.scenarios.model_fault import first_fault
from orchestrator.scenarios.yaml_tree import dotted, parse_yaml

_PERCENT = re.compile(r"^\s*([+-]?\d+(?:\.\d+)?)\s*%\s*$")


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _share(value: Any) -> Any:
    """-0.03, or "-3%"."""
    if isinstance(value, str):
        found = _PERCENT.match(value)
        if not found:
            raise ValueError(f"is {value!r}; write a share such as -3% or -0.03")
        return float(found.group(1)) / 100
    return value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_listed), Field(min_length=1)]
Share = Annotated[float, BeforeValidator(_share), Field(gt=-1, lt=10)]


class ExpectedChange(BaseModel):
    """One shift. Patterns are those of a shell (`*`, `?`, `[..]`); what is left out matches everything."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    date: datetime.date = Field(description="The first night (UTC) that has it.")
    why: str = Field(min_length=1, description="What changed, for those who see the step.")
    metric: Patterns = Field(default=("*",), description="Names of metrics.")
    config: Patterns = Field(default=("*",), description="Ids of configs, or what they are called.")
    workload: Patterns = Field(default=("*",), description="Names of workloads; empty for facts of a start.")
    level: Patterns = Field(default=("*",), description="Load levels as they are shown, e.g. C=16.")
    host_class: Patterns = Field(default=("*",), description="Classes of hosts.")
    scenario: Patterns = Field(default=("*",), description="Names of scenarios.")
    shift: Share | None = Field(
        default=None,
        description="By which share the metric is expected to change against the reference, with its own sign: "
        "-3% of a throughput is a loss. Left out: of unknown size; nothing is taken off verdicts.",
    )
    until: datetime.date | None = Field(default=None, description="The first night without it; default: for good.")

    @model_validator(mode="after")
    def _ends_after_it_began(self) -> ExpectedChange:
        if self.until is not None and self.until <= self.date:
            raise ValueError(f"until {self.until} is not after date {self.date}")
        return self

    def names(self, key: SeriesKey, label: str = "", scenario: str = "") -> bool:
        """Whether a series is meant."""
        return (
            _matches(self.metric, key.metric)
            and (_matches(self.config, key.config) or _matches(self.config, label))
            and _matches(self.workload, key.workload)
            and _matches(self.level, key.level)
            and _matches(self.host_class, key.host_class)
            and _matches(self.scenario, scenario)
        )

    def holds(self, at: str) -> bool:
        """Whether it holds in a night that began at this time (ISO, UTC)."""
        return self.date.isoformat() <= at[:10] and (self.until is None or at[:10] < self.until.isoformat())


class ExpectedChanges(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    changes: tuple[ExpectedChange, ...] = Field(description="In any order.")


def expected_changes(data: bytes, file: str) -> tuple[ExpectedChange, ...]:
    """Read the file, by date. ScenarioError with file, line and key for what is wrong in it."""
    tree = parse_yaml(data, file, "list of expected changes")
    try:
        found = ExpectedChanges.model_validate(tree.value).changes
    except ValidationError as error:
        raise first_fault(tree, error, ExpectedChanges) from None
    for i, change in enumerate(found):
        for name in change.metric:
            if not set(name) & set("*?[") and not _is_metric(name):
                path = ("changes", i, "metric")
                raise ScenarioError(file, tree.line_of(path), dotted(path), f"{name} is no metric of a nightly series")
    return tuple(sorted(found, key=lambda change: change.date))


def expected_shift(changes: Sequence[ExpectedChange], key: SeriesKey, label: str, scenario: str, at: str) -> float:
    """What a series is expected to differ by in a night, as a log ratio with the metric's own sign; 0 for nothing."""
    return math.fsum(
        math.log1p(change.shift)
        for change in changes
        if change.shift is not None and change.holds(at) and change.names(key, label, scenario)
    )


def _matches(patterns: Sequence[str], text: str) -> bool:
    return any(fnmatchcase(text, pattern) for pattern in patterns)


def _is_metric(name: str) -> bool:
    try:
        better_sign(name)
    except KeyError:
        return False
    return True
