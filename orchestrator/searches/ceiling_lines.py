"""The lines of a ceiling search: configs that differ only in what is searched. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.scenarios.scenario_search import Direction
from orchestrator.searches.ceiling_line import Line
from orchestrator.searches.config_places import FOLLOWING, varying
from orchestrator.sglang.options import canonical_name
from orchestrator.trial import EngineConfig


def default_knobs(names: Sequence[str], directions: Mapping[str, Direction]) -> list[str]:
    """The settings whose ceiling is meant where none is named: those of these whose direction is known."""
    return [name for name in names if directions.get(canonical_name(name), "none") != "none"]


def ceiling_lines(
    configs: Sequence[EngineConfig], knobs: Sequence[str], directions: Mapping[str, Direction]
) -> list[Line]:
    """One line for each combination of the settings that are not searched; rows are those of the shorter of two knobs.

    The scenario was checked: there are one or two knobs of known direction, and all combinations of two.
    """
    axes = varying(configs)
    wanted = [canonical_name(name) for name in knobs or default_knobs(list(axes), directions)]
    others = [n for n in axes if n not in wanted and not (n in FOLLOWING and "speculative_num_steps" in wanted)]
    groups: dict[str, list[int]] = {}
    for i in range(len(configs)):
        groups.setdefault(", ".join(f"{name}={axes[name][i]}" for name in others), []).append(i)
    wanted.sort(key=lambda name: len(set(map(repr, axes[name]))))
    return [_line(name, [axes[k] for k in wanted], wanted, of, configs, directions) for name, of in groups.items()]


def _line(
    others: str,
    columns: Sequence[Sequence[Any]],
    knobs: Sequence[str],
    of: Sequence[int],
    configs: Sequence[EngineConfig],
    directions: Mapping[str, Direction],
) -> Line:
    steps = [
        sorted({values[i] for i in of}, reverse=directions[knob] == "down")
        for knob, values in zip(knobs, columns, strict=True)
    ]
    place = {tuple(values[i] for values in columns): configs[i] for i in of}
    if len(knobs) == 1:
        row = tuple(place[(value,)] for value in steps[0])
        return Line(others, knobs[0], tuple(steps[0]), (row,), directions[knobs[0]] == "interval")
    cells = tuple(tuple(place[row, column] for column in steps[1]) for row in steps[0])
    return Line(others, knobs[1], tuple(steps[1]), cells, row_knob=knobs[0], row_values=tuple(steps[0]))
