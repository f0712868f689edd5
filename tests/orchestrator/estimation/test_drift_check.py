"""A host that changed while its trials ran: found by its reference, left out where others measured the same."""

from __future__ import annotations

import math

import numpy as np
import pytest

from orchestrator.estimation.drift_check import find_drifts, noise_floor, repeats_of
from orchestrator.objectives.aim import Observation, PointValue, trials_of
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.rankings.ranking import rank
from orchestrator.trial import LoadLevel

C1 = LoadLevel("concurrency", 1.0)
SPEED = "output_throughput_tok_s"


def point(config: str, host: str, repeat: int, value: float) -> PointValue:
    return PointValue(config, "chat", C1, repeat, {SPEED: value}, trial_id=f"{config}-r{repeat}", host=host)


def block(host: str, number: int, begin: float, end: float, **configs: float) -> list[PointValue]:
    """A host's trials: its reference `ref` at both ends, each config once."""
    return [
        point("ref", host, 1000 + 2 * number, begin),
        *(point(name, host, number, value) for name, value in configs.items()),
        point("ref", host, 1001 + 2 * number, end),
    ]


def drifts(points: list[PointValue]) -> list[tuple[str, bool]]:
    seen = [Observation(p.config_id, p.trial_id, p.host, p.metrics[SPEED] or 0.0) for p in points]
    return [(d.host, d.left_out) for d in find_drifts(seen, repeats_of(trials_of(points)))]


STEADY = block("h1", 0, 100, 100.5, a=120, b=110) + block("h2", 1, 90, 90.3, a=108, b=99)
MOVED = block("h3", 2, 100, 80, a=115, b=95)


def test_a_reference_that_moves_by_noise_is_no_drift() -> None:
    assert drifts(STEADY) == []


def test_a_block_whose_reference_moved_is_left_out_where_others_cover_its_configs() -> None:
    assert drifts([*STEADY, *MOVED]) == [("h3", True)]


def test_a_block_that_alone_measured_a_config_is_kept_with_a_loud_note() -> None:
    points = [*STEADY, *MOVED, point("only", "h3", 2, 70.0)]

    assert drifts(points) == [("h3", False)]
    objective = Objective.model_validate({"name": "o", "maximize": SPEED, "at": {"concurrency": 1}})
    configs = {name: {"page_size": name} for name in ("ref", "a", "b", "only")}
    note = next(n for n in rank(objective, configs, points, workload="chat").notes if n.startswith("drift"))
    assert note.startswith("drift on h3: the reference page_size=ref went from 100 to 80 (-20.0%, noise ")
    assert "they COUNT, since no other hosts measured all its configs" in note


def test_a_block_that_connects_the_others_is_kept() -> None:
    points = [point("a", "h1", 0, 100), point("b", "h2", 0, 90), *block("h3", 2, 100, 80, a=115, b=95)]
    points += [point("ref", "h1", 5, 90), point("ref", "h1", 6, 91)]

    assert drifts(points) == [("h3", False)]


def test_what_is_left_out_changes_neither_values_nor_counts() -> None:
    objective = Objective.model_validate({"name": "o", "maximize": SPEED, "at": {"concurrency": 1}})
    configs = {name: {"page_size": name} for name in ("ref", "a", "b")}
    without, with_it = (rank(objective, configs, p, workload="chat") for p in (STEADY, [*STEADY, *MOVED]))

    assert with_it.rows == without.rows
    assert "they do not count, other hosts measured the same configs" in with_it.notes[0]


def test_the_noise_floor_is_what_starts_of_one_config_on_one_host_differ_by() -> None:
    rng = np.random.default_rng(1)
    seen = [
        Observation(f"c{c}", f"{c}{h}{k}", f"h{h}", math.exp(c + 0.3 * h + rng.normal(0, 0.02)))
        for c in range(20)
        for h in range(4)
        for k in range(3)
    ]
    floor = noise_floor(seen)

    assert (floor.source, floor.df) == ("starts", 160)
    assert floor.share == pytest.approx(math.sqrt(2) * 0.02, rel=0.15)
    # Each config once on each host: what hosts and configs do not explain.
    once = noise_floor([s for s in seen if s.trial_id.endswith("0")])
    assert once.source == "fit"
    assert once.share == pytest.approx(math.sqrt(2) * 0.02, rel=0.25)
    assert noise_floor(seen[:1]).source == "assumed"


def test_steady_hosts_are_seldom_accused() -> None:
    rng = np.random.default_rng(2)
    accused = 0
    for _ in range(200):
        points = []
        for number in range(3):
            speed = rng.normal(0, 0.05)
            values = np.exp(5 + speed + rng.normal(0, 0.015, 8))
            names = {f"c{i}": float(v) for i, v in enumerate(values[2:])}
            points += block(f"h{number}", number, float(values[0]), float(values[1]), **names)
        accused += len(drifts(points))

    assert accused / 600 <= 0.06


def test_with_many_steady_hosts_hardly_a_run_loses_one() -> None:
    rng = np.random.default_rng(3)
    runs_with_one = 0
    for _ in range(60):
        points = []
        for number in range(16):
            names = {f"c{i}": float(v) for i, v in enumerate(np.exp(5 + rng.normal(0, 0.015, 4)))}
            begin, end = np.exp(5 + rng.normal(0, 0.015, 2))
            points += block(f"h{number}", number, float(begin), float(end), **names)
        runs_with_one += bool(drifts(points))

    assert runs_with_one <= 8
