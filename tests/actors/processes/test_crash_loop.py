"""A server that comes back is told from one that stays, a replica, and another server."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from actors.processes.crash_loop import CrashLoops, Sighting
from actors.processes.process_identity import ProcessIdentity

SERVER = "python -m sglang.launch_server --model-path /m --port 30000"


def seen(pid: int, server: str = SERVER, unit: str | None = "sglang.service", started: int = 0) -> Sighting:
    stop = f"systemctl stop {unit}" if unit else None
    return Sighting(ProcessIdentity(pid, started or pid, "boot"), server, server, unit, stop)


def test_the_same_command_with_a_new_pid_after_its_predecessor_ended_is_a_return() -> None:
    loops = CrashLoops()
    assert loops.saw([seen(10)]) == ()
    assert loops.saw([]) == ()
    (back,) = loops.saw([seen(11)])
    assert (back.gone, back.now, back.evicted, back.times) == (seen(10), seen(11), False, 1)
    assert str(back) == (
        f"pid 11 runs the command of pid 10 again, which ended: {SERVER}. Something restarts it: sglang.service. "
        "Stop that first: systemctl stop sglang.service"
    )
    (again,) = loops.saw([seen(12)])
    assert "(2 times so far)" in str(again)


def test_after_an_eviction_it_is_said_that_we_ended_it_and_without_a_unit_how_to_look() -> None:
    loops = CrashLoops()
    loops.saw([seen(10, unit=None)])
    loops.evicted([seen(10).process])
    (back,) = loops.saw([seen(11, unit=None)])
    assert str(back) == (
        f"pid 11 runs the command of pid 10 again, which was evicted: {SERVER}. Something restarts it; find the "
        "supervisor (systemctl status 11) and stop that"
    )


def test_a_number_that_is_given_again_is_another_process() -> None:
    loops = CrashLoops()
    loops.saw([seen(10, started=100)])
    (back,) = loops.saw([seen(10, started=200)])
    assert back.now.process.started_ticks == 200


def test_a_second_replica_another_port_and_one_that_goes_on_are_no_returns() -> None:
    loops = CrashLoops()
    loops.saw([seen(10)])
    assert loops.saw([seen(10), seen(11)]) == ()
    assert loops.saw([seen(11), seen(12, SERVER.replace("30000", "30001"))]) == ()
    assert loops.saw([seen(11)]) == ()


@given(st.lists(st.frozensets(st.integers(1, 4), max_size=3), max_size=10))
def test_there_are_never_more_returns_than_ends_before_them(looks: list[frozenset[int]]) -> None:
    loops = CrashLoops()
    ends = returns = 0
    before: frozenset[int] = frozenset()
    for look in looks:
        ends += len(before - look)
        returns += len(loops.saw([seen(pid) for pid in look]))
        assert returns <= ends
        before = look
