"""Figures are measured anew where the machine stood still only: else a fault of now and then would be hidden."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fakes import stall_witness
from tests.fakes.stall_witness import Again, StallWitness, undisturbed


def measuring(*figures: int) -> tuple[Callable[[], int], list[int]]:
    """A measurement that gives one figure after the other, and those that it has given."""
    coming, given = list(figures), list[int]()

    def measure() -> int:
        given.append(coming.pop(0))
        return given[-1]

    return measure, given


@pytest.fixture(autouse=True)
def _nothing_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Again, "spent_s", 0.0)


@pytest.mark.parametrize(
    ("stall_s", "measured"),
    [
        (float("inf"), [1]),  # never seen to stand still: what disagrees is a fault
        (float("-inf"), [1, 2, 3]),  # always: until it agrees
    ],
)
def test_what_disagrees_is_measured_anew_only_where_the_machine_stood_still(
    monkeypatch: pytest.MonkeyPatch, stall_s: float, measured: list[int]
) -> None:
    monkeypatch.setattr(stall_witness, "_STALL_S", stall_s)
    measure, given = measuring(1, 2, 3, 4)

    assert undisturbed(measure, lambda figure: figure == 3) == measured[-1]
    assert given == measured


def test_what_never_agrees_is_measured_four_times_and_told_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_witness, "_STALL_S", float("-inf"))
    measure, given = measuring(1, 2, 3, 4, 5)

    assert undisturbed(measure, lambda figure: False) == 4
    assert given == [1, 2, 3, 4]


def test_nothing_is_measured_anew_for_more_than_four_minutes_of_a_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_witness, "_STALL_S", float("-inf"))
    Again.spent_s = 240.0
    measure, given = measuring(1, 2)

    assert undisturbed(measure, lambda figure: False) == 1
    assert given == [1]


def test_a_witness_tells_by_how_much_a_short_sleep_was_overslept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stall_witness, "_SLEEP_S", -5.0)  # as if each had taken five seconds more than asked for
    with StallWitness() as witness:
        while not witness.longest_s:
            pass

    assert witness.longest_s >= 5.0
