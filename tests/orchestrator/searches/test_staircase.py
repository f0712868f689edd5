"""The boundary of a grid, against all its cells."""

from __future__ import annotations

import itertools
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.searches.staircase import Staircase


def probes_until_closed(rows: int, columns: int, truth: list[int], slots: int = 1) -> tuple[int, int]:
    """(probes, rounds); row r holds its first `truth[r]` columns."""
    known, count, rounds = Staircase.of(rows, columns), 0, 0
    while not known.closed:
        rounds += 1
        for row, column in known.probes(slots):
            known = known.told((row, column), holds=column < truth[row])
            count += 1
    assert known.ceilings == tuple(of - 1 for of in truth)
    return count, rounds


@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(1, 4))
@settings(max_examples=60, deadline=None)
def test_any_staircase_is_found_cell_by_cell(truth: list[int], slots: int) -> None:
    probes_until_closed(len(truth), 9, sorted(truth, reverse=True), slots)


def test_all_staircases_are_counted() -> None:
    """Against all monotone rows of 3 x 4, and the formula for a free grid."""
    known = Staircase.of(3, 4, holds=[(1, 0)], fails=[(1, 3)])
    free = [rows for rows in itertools.product(range(5), repeat=3) if list(rows) == sorted(rows, reverse=True)]
    left = [rows for rows in free if rows[1] >= 1 and rows[1] <= 3 and rows[0] >= 1 and rows[2] <= 3]

    assert known.counts() == [[sum(rows[r] == v for rows in left) for v in range(5)] for r in range(3)]
    assert sum(Staircase.of(10, 64).counts()[0]) == math.comb(74, 10)


@pytest.mark.parametrize("shape", ["rows", "paths", "flat", "step"])
def test_a_grid_of_10_by_64_takes_45_probes_at_most(shape: str) -> None:
    draw = random.Random(shape)
    for _ in range(5):
        if shape == "rows":
            truth = [draw.randint(0, 64) for _ in range(10)]
        elif shape == "paths":  # each staircase equally likely
            truth = [cut - i for i, cut in enumerate(sorted(draw.sample(range(74), 10)))]
        else:
            half = draw.randint(0, 10)
            truth = [draw.randint(0, 64)] * 10 if shape == "flat" else [64] * half + [0] * (10 - half)
        assert probes_until_closed(10, 64, sorted(truth, reverse=True))[0] <= 45


def test_four_slots_take_a_quarter_of_the_rounds() -> None:
    truth = [60, 51, 40, 40, 22, 20, 13, 7, 3, 0]

    probes, rounds = probes_until_closed(10, 64, truth, slots=4)

    assert probes <= 45
    assert rounds <= 12


def test_what_is_on_its_way_is_not_asked_again() -> None:
    known = Staircase.of(4, 4)
    first = known.probes(1)

    assert first[0] not in known.probes(16, pending=first)
