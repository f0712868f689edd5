"""The largest value that holds, against all there are."""

from __future__ import annotations

import pytest

from orchestrator.searches.bracket import Bracket


def probed(count: int, ceiling: int, slots: int = 1, guess: int | None = None) -> tuple[int, int]:
    """(probes, rounds) until the ceiling is known; values up to `ceiling` hold."""
    holds: list[int] = []
    fails: list[int] = []
    rounds = 0
    while not (bracket := Bracket.of(count, holds, fails)).closed:
        rounds += 1
        for index in bracket.probes(slots, guess):
            (holds if index <= ceiling else fails).append(index)
    assert bracket.yes == ceiling
    return len(holds) + len(fails), rounds


@pytest.mark.parametrize("slots", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("count", [1, 2, 7, 10, 64])
def test_every_ceiling_is_found_with_any_number_of_slots(count: int, slots: int) -> None:
    for ceiling in range(-1, count):
        probed(count, ceiling, slots)


def test_ten_depths_take_four_starts_at_most() -> None:
    assert max(probed(10, ceiling)[0] for ceiling in range(-1, 10)) == 4


def test_four_slots_need_three_rounds_for_64_values_where_one_needs_seven() -> None:
    assert max(probed(64, ceiling, slots=4)[1] for ceiling in range(-1, 64)) == 3
    assert max(probed(64, ceiling)[1] for ceiling in range(-1, 64)) == 7


def test_a_right_guess_takes_two_starts_and_any_other_is_put_right() -> None:
    assert {probed(64, ceiling, guess=ceiling)[0] for ceiling in range(1, 63)} == {2}
    for ceiling in range(-1, 64):
        for guess in (-3, 0, 10, 40, 63, 99):
            assert probed(64, ceiling, guess=guess)[0] <= 13


def test_what_is_on_its_way_is_not_asked_again() -> None:
    bracket = Bracket.of(10, [], [])

    assert bracket.probes(1, None) == [4]
    assert bracket.probes(2, None, pending=[4]) == [7, 1]
