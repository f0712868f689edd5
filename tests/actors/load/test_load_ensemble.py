"""Who waits where in an ensemble of load processes, what ends it, and what its members say together."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.load.load_ensemble import Ensemble, FlightTimes, Order, merge_reports
from actors.load.load_member import Arrived, Beat, End, Place, Release, Silent
from orchestrator.trial import ClientReport
from tests.actors.load_specs import spec

NOW = 1_000
SCHEMA = pa.schema([("warmup", pa.bool_()), ("sent_ns", pa.int64()), ("end_ns", pa.int64())])
REPORT = ClientReport("p1", 2.0, 0.5, 3.0, 4.0, 5, 10, "duration")


def ensemble(count: int) -> Ensemble:
    return Ensemble(count, clock=lambda: NOW, lead_ns=50)


def test_nobody_goes_on_before_all_are_there_and_all_get_what_the_first_brought() -> None:
    three = ensemble(3)
    assert three.told(2, Arrived(Place.PROBED)) == []
    assert three.told(0, Arrived(Place.PROBED, [0, 41])) == []
    assert three.told(1, Arrived(Place.PROBED)) == [Order((0, 1, 2), Release(Place.PROBED, [0, 41]))]


def test_the_load_begins_for_all_at_one_moment_that_is_still_to_come() -> None:
    two = ensemble(2)
    two.told(0, Arrived(Place.START))
    assert two.told(1, Arrived(Place.START)) == [Order((0, 1), Release(Place.START, 1_050))]


def test_a_lost_member_ends_the_point_for_all_and_whoever_waits_is_let_go() -> None:
    three = ensemble(3)
    three.told(0, Arrived(Place.WARM))
    assert three.lost(1, "killed by SIGKILL") == [
        Order((0, 2), End("cancelled")),
        Order((0,), Release(Place.WARM)),
    ]
    assert three.told(2, Arrived(Place.WARM)) == [Order((2,), Release(Place.WARM))]
    assert three.lost(1, "told twice") == []
    for member in (0, 2):
        assert not three.done
        assert three.reported(member, replace(REPORT, stopped_by="cancelled")) == []
    assert three.done
    assert three.faults == ["killed by SIGKILL"]


def test_a_member_that_ends_before_the_load_ends_it_for_all() -> None:
    two = ensemble(2)
    two.told(0, Arrived(Place.WARM))
    assert two.told(1, Arrived(Place.WARM, ended=True)) == [
        Order((0, 1), End("cancelled")),
        Order((0,), Release(Place.WARM)),
        Order((1,), Release(Place.WARM)),
    ]


def test_a_member_that_cut_its_last_requests_waits_like_the_others() -> None:
    two = ensemble(2)
    two.told(0, Arrived(Place.DRAINED))
    assert two.told(1, Arrived(Place.DRAINED, ended=True)) == [Order((0, 1), Release(Place.DRAINED))]


def test_a_silent_member_beside_one_that_moves_hangs_nothing() -> None:
    two = ensemble(2)
    two.told(1, Beat(moved=True, busy=True))
    assert two.told(0, Silent()) == []
    assert two.told(1, Beat(moved=False, busy=True)) == []
    assert two.told(1, Silent()) == [Order((0, 1), End("hung"))]
    assert two.stop() == []  # it ends already


def test_a_member_without_requests_does_not_hide_that_the_server_hangs() -> None:
    two = ensemble(2)
    two.told(0, Arrived(Place.WARM))
    assert two.told(1, Silent()) == [Order((0, 1), End("hung")), Order((0,), Release(Place.WARM))]


def test_silence_is_forgotten_when_bytes_come() -> None:
    two = ensemble(2)
    two.told(0, Silent())
    two.told(0, Beat(moved=True, busy=True))
    assert two.told(1, Silent()) == []


def test_reports_are_added_up_and_of_delays_the_worst_counts() -> None:
    first = replace(REPORT, verify_calls_delta=7.0, cache_flushed=True, gated_requests=1, backlog_p99_kib=2.0)
    second = replace(REPORT, duration_s=2.5, cpu_s=0.7, loop_lag_p99_ms=1.0, schedule_delay_p99_ms=9.0, requests=11,
                     gated_requests=2, reconnects=3, gc_pause_max_ms=6.0, backlog_p99_kib=3.0)  # fmt: skip
    assert merge_reports([first, second], spec(requests=None, duration_s=2.0), peak=8) == ClientReport(
        "p1", 2.5, 1.2, 3.0, 9.0, 8, 21, "duration", verify_calls_delta=7.0, cache_flushed=True, gated_requests=3,
        reconnects=3, processes=2, gc_pause_max_ms=6.0, backlog_p99_kib=5.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "requests", "merged"),
    [
        (("requests", "requests"), 20, "requests"),
        (("requests", "duration"), 21, "duration"),
        (("duration", "cancelled"), None, "cancelled"),
        (("hung", "cancelled"), None, "hung"),
    ],
)
def test_the_end_of_the_point_is_that_of_all_members(said: tuple[str, str], requests: int | None, merged: str) -> None:
    reports = [replace(REPORT, stopped_by=why) for why in said]  # type: ignore[arg-type]
    assert merge_reports(reports, spec(requests=requests, duration_s=5.0), peak=1).stopped_by == merged


def test_the_report_of_a_point_that_was_ended_says_why() -> None:
    two = ensemble(2)
    assert two.report(spec(), 0) is None
    two.stop("hung")
    two.reported(0, REPORT)
    report = two.report(spec(), 4)
    assert report is not None
    assert (report.stopped_by, report.peak_concurrency, report.processes) == ("hung", 4, 1)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10), st.booleans()), max_size=30))
def test_the_peak_is_what_counting_at_every_moment_gives(flights: list[tuple[int, int, bool]]) -> None:
    times = FlightTimes()
    for part in (flights[:7], flights[7:]):
        rows = [{"warmup": warm, "sent_ns": at, "end_ns": at + took} for at, took, warm in part]
        times.saw(pa.RecordBatch.from_pylist(rows, SCHEMA))
    at_once = [sum(a <= t < a + d for a, d, warm in flights if not warm) for t in range(60)]
    assert times.peak == max(at_once)


class _Crowd:
    """Members that walk the path of a point, as the rules let them; checks after every step who is where."""

    def __init__(self, count: int) -> None:
        self.rules = ensemble(count)
        self.paths = {i: list(Place) for i in range(count)}
        self.waiting: set[int] = set()
        self.ended: set[int] = set()

    def act(self, member: int, roll: int) -> None:
        """A member is lost (0), the point is stopped (1), or it walks on, perhaps because its sending ended (2)."""
        path = self.paths[member]
        if roll == 1:
            self._carry_out(self.rules.stop())
        elif roll == 0 or not path:
            del self.paths[member]
            self.waiting.discard(member)
            gone = self.rules.lost(member, "lost") if roll == 0 else self.rules.reported(member, REPORT)
            self._carry_out(gone)
        elif member not in self.waiting:
            self.waiting.add(member)
            self._carry_out(self.rules.told(member, Arrived(path[0], ended=roll == 2)))

    def _carry_out(self, orders: list[Order]) -> None:
        for order in orders:
            for member in order.members:
                self._obey(member, order.what)
        left = {len(path) for member, path in self.paths.items() if member not in self.ended}
        assert len(left) <= 1  # nobody is ahead of another

    def _obey(self, member: int, what: Release | End) -> None:
        if isinstance(what, End):
            self.ended.add(member)
            return
        self.waiting.remove(member)
        assert self.paths[member].pop(0) is what.place


@given(st.integers(1, 5), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 19)), max_size=200))
def test_whatever_happens_in_whatever_order_nobody_overtakes_and_nobody_waits_for_ever(
    count: int, happenings: list[tuple[int, int]]
) -> None:
    crowd = _Crowd(count)
    for who, roll in happenings:
        if who in crowd.paths:
            crowd.act(who, roll)
    for _ in range(len(Place) + 1):  # from here on nothing goes wrong: all get through
        for member in list(crowd.paths):
            crowd.act(member, 10)
    assert crowd.rules.done
    assert crowd.paths == {}
