"""`specsweep load` against a server that runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.actors.emulator.running import READY, emulator
from tests.integration.programs import run

pytestmark = pytest.mark.timeout(120)


@pytest.mark.parametrize("api", ["auto", "completions", "chat"])
def test_every_api_of_one_server_gives_the_same_counts(tmp_path: Path, api: str) -> None:
    flags = "--model-path example/small --speculative-algorithm NEXTN --speculative-num-steps 2"
    flags += " --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --max-running-requests 8 --enable-metrics"
    with emulator(tmp_path, flags) as server:
        server.wait_for(READY)
        said = run(
            "load", "--url", f"http://127.0.0.1:{server.port}", "--api", api, "--concurrency", "2", "--requests", "6",
            "--output-tokens", "16", "--input-tokens", "32", "--warmup", "0", "--json",
        )  # fmt: skip

    assert said.returncode == 0, said.stderr
    measured = json.loads(said.stdout)
    assert measured["requests_ok"] == measured["requests_total"] == 6
    assert measured["requests_failed"] == 0
    assert measured["output_tokens_total"] == 96
    assert measured["peak_concurrency"] == 2
    assert measured["accept_length"] > 1
    assert measured["valid"] is True
    assert measured["ttft_ms"]["n"] == 6


def test_the_table_is_for_people_and_the_open_loop_says_its_rate(tmp_path: Path) -> None:
    with emulator(tmp_path, "--model-path example/small") as server:
        server.wait_for(READY)
        said = run(
            "load", "--url", f"http://127.0.0.1:{server.port}", "--rate", "20", "--requests", "10",
            "--output-tokens", "4", "--warmup", "0",
        )  # fmt: skip

    assert said.returncode == 0, said.stderr
    assert "10 of 10 requests ok, 0 failed" in said.stdout
    assert "achieved_rate_rps" in said.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url", "127.0.0.1:1"], "--url 127.0.0.1:1: write http://HOST:PORT"),
        (["--url", "http://127.0.0.1:1", "--rate", "1", "--concurrency", "1"], "give one of --concurrency"),
        (
            ["--url", "http://127.0.0.1:1", "--requests", "1", "--duration", "1"],
            "give one of --requests and --duration",
        ),
        (["--url", "http://127.0.0.1:1", "--max-concurrency", "1"], "--max-concurrency is for --rate"),
        (["--url", "http://127.0.0.1:1", "--dataset", "sharegpt"], "--dataset sharegpt: allowed: random_text"),
        (["--url", "http://127.0.0.1:1", "--api-key-env", "NO_SUCH_KEY"], "there is no such environment variable"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], told: str) -> None:
    said = run("load", *arguments)

    assert said.returncode == 2
    assert told in said.stderr


def test_an_address_where_nothing_answers_is_told_as_such() -> None:
    said = run("load", "--url", "http://127.0.0.1:1", "--requests", "1")

    assert said.returncode == 1
    assert "nothing answers there" in said.stderr
