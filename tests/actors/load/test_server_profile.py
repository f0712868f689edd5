"""The server's profiler is asked after the measured load, and its load does not count."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from orchestrator.records import RequestRecord
from orchestrator.trial import ClientReport, ProfileSpec
from tests.actors.load_specs import run, spec
from tests.fakes.leaping_clock import LeapingClock
from tests.fakes.load import load_endpoint
from tests.fakes.scripted_endpoint import ScriptedEndpoint, native_answer

Loaded = tuple[list[RequestRecord], ClientReport, ScriptedEndpoint]
Profiled = Callable[[tuple[int, int]], Loaded]
PROFILE = ProfileSpec("/traces", duration_s=600.0, activities=("CPU",), with_stack=True)


@pytest.fixture
def profiled(clock: LeapingClock) -> Profiled:
    """A point whose profile is over at the third request of its load."""
    return partial(_profiled, clock)


def _profiled(clock: LeapingClock, statuses: tuple[int, int]) -> Loaded:
    script = lambda n, body: native_answer(2, first_s=600.0 if n == 5 else 0.0)  # noqa: E731
    server = ScriptedEndpoint(script, profile_statuses=statuses, clock=clock)

    async def go() -> Any:
        async with server:
            return await load_endpoint(
                server.url, spec(requests=3, profile=PROFILE, request_timeout_s=3600.0), point_id="p9"
            )

    records, report = run(go())
    return records, report, server


def test_the_profile_is_taken_under_load_of_its_own_after_the_measured_one(profiled: Profiled) -> None:
    records, report, server = profiled((200, 200))

    begun, ended = server.calls.index("/start_profile"), server.calls.index("/stop_profile")
    assert server.calls[:begun].count("/generate") == 3
    assert server.calls[begun:ended].count("/generate") == 3
    assert sum(not r.warmup for r in records) == 3
    assert (report.requests, report.profile) == (3, "/traces/-p9")
    assert server.profiles == [
        {
            "output_dir": "/traces/-p9",
            "activities": ["CPU"],
            "profile_by_stage": False,
            "with_stack": True,
            "record_shapes": False,
        }
    ]


def test_a_server_that_refuses_is_not_loaded_for_it_and_the_refusal_is_told(profiled: Profiled) -> None:
    _, report, server = profiled((400, 200))

    assert report.profile == "no profile: /start_profile answered 400 Start profiling.\n"
    assert server.calls.count("/generate") == 3
    assert "/stop_profile" not in server.calls


def test_traces_that_were_cut_short_are_told(profiled: Profiled) -> None:
    _, report, _ = profiled((200, 500))

    assert report.profile is not None
    assert report.profile.startswith("profile cut short: /stop_profile answered 500")
