"""How busy the server says it is, in the words of old and new releases."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from actors.load.server_load import ServerLoad, ServerLoadWatch, read_load

CAPTURES = Path(__file__).parents[2] / "data/captures"


def body(capture: str) -> str:
    text = (CAPTURES / capture).read_text(encoding="utf-8")
    return text.partition("\n\n")[2]


def test_an_idle_server_of_both_dialects_is_read_as_captured() -> None:
    assert read_load(body("0.5.23-base/v1_loads.txt")) == ServerLoad(0, 0, 0.0)
    assert read_load(body("0.5.6.post2-base/get_load.txt")) == ServerLoad(0, 0, None)


def test_ranks_are_added_and_the_fullest_decides_the_usage() -> None:
    text = """{"loads": [{"num_running_reqs": 5, "num_waiting_reqs": 1, "token_usage": 0.25},
                         {"num_running_reqs": 3, "num_waiting_reqs": 0, "token_usage": 0.75}]}"""
    assert read_load(text) == ServerLoad(8, 1, 0.75)


def test_the_old_count_of_requests_has_the_waiting_ones_in_it() -> None:
    assert read_load('[{"num_reqs": 7, "num_waiting_reqs": 3}]') == ServerLoad(4, 3, None)


@pytest.mark.parametrize(
    "text", ["", "not json", "{}", '{"loads": []}', '{"loads": [{"num_running_reqs": null}]}', "[1]", '"x"']
)
def test_anything_else_is_no_load(text: str) -> None:
    assert read_load(text) is None


def test_a_server_without_either_endpoint_is_asked_twice_and_left_alone() -> None:
    asked: list[str] = []

    async def get_text(path: str) -> str | None:
        asked.append(path)
        return None

    watch = ServerLoadWatch(get_text)
    asyncio.run(watch.poll())
    assert asked == ["/v1/loads?include=core", "/get_load"]
    assert (watch.running_mean, watch.running_max, watch.queued_max, watch.token_usage_max) == (None, None, None, None)


def test_what_was_seen_is_summed_up() -> None:
    answers = [
        '{"loads": [{"num_running_reqs": 2, "num_waiting_reqs": 0, "token_usage": 0.1}]}',
        '{"loads": [{"num_running_reqs": 6, "num_waiting_reqs": 4, "token_usage": 0.3}]}',
    ]

    async def go() -> ServerLoadWatch:
        done = asyncio.Event()

        async def get_text(path: str) -> str | None:
            del path
            if answers:
                return answers.pop(0)
            done.set()
            return None

        watch = ServerLoadWatch(get_text)
        polling = asyncio.create_task(watch.poll())
        await done.wait()
        polling.cancel()
        return watch

    watch = asyncio.run(go())
    assert (watch.running_mean, watch.running_max, watch.queued_max, watch.token_usage_max) == (4.0, 6, 4, 0.3)
