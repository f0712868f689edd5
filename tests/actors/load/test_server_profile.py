"""The server's profiler is asked after the measured load, and its load does not count."""

from __future__ import annotations

from typing import Any

from orchestrator.records import RequestRecord
from orchestrator.trial import ClientReport, ProfileSpec
from tests.actors.load_specs import run, spec
from tests.fakes.load import load_endpoint
from tests.fakes.scripted_endpoint import ScriptedEndpoint, native_answer

PROFILE = ProfileSpec("/traces", duration_s=0.05, activities=("CPU",), with_stack=True)


def profiled(statuses: tuple[int, int] | None) -> tuple[list[RequestRecord], ClientReport, ScriptedEndpoint]:
    server = ScriptedEndpoint(lambda n, body: native_answer(2), profile_statuses=statuses)

    async def go() -> Any:
        async with server:
            return await load_endpoint(server.url, spec(requests=3, profile=PROFILE), point_id="p9")

    records, report = run(go())
    return records, report, server


def test_the_profile_is_taken_under_load_of_its_own_after_the_measured_one() -> None:
    records, report, server = profiled((200, 200))

    begun, ended = server.calls.index("/start_profile"), server.calls.index("/stop_profile")
    assert server.calls[:begun].count("/generate") == 3
    assert server.calls[begun:ended].count("/generate") >= 1
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


def test_a_server_that_refuses_is_not_loaded_for_it_and_the_refusal_is_told() -> None:
    _, report, server = profiled((400, 200))

    assert report.profile == "no profile: /start_profile answered 400 Start profiling.\n"
    assert server.calls.count("/generate") == 3
    assert "/stop_profile" not in server.calls


def test_traces_that_were_cut_short_are_told() -> None:
    _, report, _ = profiled((200, 500))

    assert report.profile is not None
    assert report.profile.startswith("profile cut short: /stop_profile answered 500")
