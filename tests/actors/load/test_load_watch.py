"""What the load client says of itself."""

from __future__ import annotations

from actors.load.load_watch import OwnSpeed


def lag_ms_of(lags_s: list[float]) -> float:
    speed = OwnSpeed()
    speed.begin()
    for lag_s in lags_s:
        speed.saw_lag(lag_s)
    speed.end()
    return speed.loop_lag_p99_ms


def test_one_hiccup_in_a_short_point_is_not_its_lag_and_two_are() -> None:
    assert lag_ms_of([0.001] * 19 + [0.08]) == 1.0
    assert lag_ms_of([0.001] * 18 + [0.08, 0.08]) == 80.0
    assert lag_ms_of([0.001] * 197 + [0.08] * 3) == 80.0
    assert lag_ms_of([0.08]) == 0.0
    assert lag_ms_of([]) == 0.0
