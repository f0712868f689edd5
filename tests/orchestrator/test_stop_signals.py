"""Wishes to stop: the first, its echo, and a second one."""

from __future__ import annotations

from orchestrator.stop_signals import StopWish


def test_a_wish_that_is_delivered_twice_is_one_and_one_that_comes_later_is_a_second() -> None:
    now_s = [100.0]
    wish = StopWish(lambda: now_s[0])

    assert not wish.is_echo()
    now_s[0] = 100.4
    assert wish.is_echo()
    now_s[0] = 100.6
    assert not wish.is_echo()
