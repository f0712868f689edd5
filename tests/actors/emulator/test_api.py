"""What the API has beside the contract with the real server (tests/contract): calibration, marks, secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.actors.emulator.planning import chain
from tests.actors.emulator.running import READY, Emulator, emulator

PROMPT = list(range(500, 540))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    flags = "--model-path m --context-length 4096 --enable-metrics" + chain(3)
    with emulator(tmp_path_factory.mktemp("api"), flags) as running:
        running.wait_for(READY)
        yield running


def test_accept_length_is_the_calibrated_one(server: Emulator) -> None:
    meta = server.generate(input_ids=PROMPT, sampling_params={"max_new_tokens": 200}).json["meta_info"]
    assert 1 + meta["spec_num_correct_drafts"] / meta["spec_verify_ct"] == pytest.approx(2.9, rel=0.02)


def test_server_info_tells_that_this_is_no_gpu(server: Emulator) -> None:
    info = server.call("GET", "/server_info").json
    assert (info["engine"], info["emulator_profile"]) == ("emulator", "generic")


def test_keys_are_required_and_never_shown(tmp_path: Path) -> None:
    with emulator(tmp_path, "--model-path m --api-key s3cret") as running:
        running.wait_for(READY)
        assert running.call("GET", "/server_info").status == 401
        assert running.call("GET", "/health").status == 200
        shown = running.call("GET", "/server_info", key="s3cret")
        assert shown.status == 200
        assert "s3cret" not in shown.text
        assert "s3cret" not in running.log


def test_incremental_output_sends_only_what_is_new(tmp_path: Path) -> None:
    with emulator(tmp_path, "--model-path m --incremental-streaming-output") as running:
        running.wait_for(READY)
        events = running.generate(text="hello", sampling_params={"max_new_tokens": 5}, stream=True).events[:-1]
        assert [len(event["output_ids"]) for event in events] == [1, 1, 1, 1, 1]
        assert "spec_verify_ct" not in events[-1]["meta_info"]
        assert "queue_time" not in events[-1]["meta_info"]
