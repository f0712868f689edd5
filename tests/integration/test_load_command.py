"""`specsweep load` against a server that runs: what users of load tools met, as they would see it."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from orchestrator.cli import main
from tests.actors.emulator.running import READY, emulator
from tests.fakes.scripted_endpoint import DONE, Script, ScriptedEndpoint, native, native_answer
from tests.fakes.served_script import served
from tests.fakes.stall_witness import undisturbed
from tests.integration.programs import start, wait_until

pytestmark = pytest.mark.timeout(240)

Answer = Callable[[int, dict[str, Any]], Script]
QUICK = (
    "--api",
    "generate",
    "--warmup-s",
    "0",
    "--warmup-requests",
    "0",
    "--input-tokens",
    "20",
    "--output-tokens",
    "3",
)


def specsweep(*arguments: str, **more: Any) -> Result:
    return CliRunner().invoke(main, ["load", *arguments], **more)


def measure(
    answer: Answer, *arguments: str, exit_code: int = 0, **more: Any
) -> tuple[dict[str, Any], ScriptedEndpoint]:
    """The JSON of a load on a server that answers so, and the server."""
    with served(ScriptedEndpoint(answer, **more)) as server:
        said = specsweep("--url", server.url, *QUICK, "--json", *arguments)
    assert said.exit_code == exit_code, said.output
    return json.loads(said.stdout, parse_constant=_refused), server


def _refused(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def faults(told: dict[str, Any]) -> list[str]:
    """Why the load is void, but for a client that had no CPU: tests run beside each other."""
    return [reason for reason in told["void_reasons"] if not reason.startswith("the client ")]


def good(n: int, body: dict[str, Any]) -> Script:
    return native_answer(3)


@pytest.mark.parametrize("api", ["auto", "chat"])
def test_every_api_of_one_server_gives_the_same_counts(tmp_path: Path, api: str) -> None:
    flags = "--model-path example/small --speculative-algorithm NEXTN --speculative-num-steps 2"
    flags += " --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 --max-running-requests 8 --enable-metrics"
    with emulator(tmp_path, flags) as server:
        server.wait_for(READY)
        said = specsweep(
            "--url", f"http://127.0.0.1:{server.port}", "--api", api, "--concurrency", "2", "--requests", "6",
            "--output-tokens", "16", "--input-tokens", "32", "--warmup-s", "0", "--json",
        )  # fmt: skip

    assert said.exit_code == 0, said.output
    measured = json.loads(said.stdout)
    assert measured["requests_ok"] == measured["requests_total"] == 6
    assert measured["requests_failed"] == 0
    assert measured["output_tokens_total"] == 96
    assert measured["peak_concurrency"] == 2
    assert measured["accept_length"] > 1
    assert faults(measured) == []
    assert measured["ttft_ms"]["n"] == 6


def test_the_json_has_every_key_and_null_where_nothing_can_be_known() -> None:
    told, _ = measure(good, "--concurrency", "2", "--requests", "6")
    assert {
        "requests_total", "requests_ok", "requests_failed", "errors", "duration_s", "window_s",
        "request_throughput_rps", "output_throughput_tok_s", "input_throughput_tok_s", "prompt_tokens_total",
        "cached_tokens_total", "output_tokens_total", "ttft_ms", "tpot_ms", "chunk_gap_ms", "e2e_ms",
        "schedule_delay_ms", "accept_length", "peak_concurrency", "requested_rate_rps", "achieved_rate_rps",
        "goodput_rps", "unique_prompt_share", "client", "valid", "void_reasons", "warnings", "seed", "workload_hash",
        "stopped_by",
    } <= set(told)  # fmt: skip
    assert set(told["ttft_ms"]) == {"n", "mean", "p50", "p90", "p95", "p99", "max"}
    assert {"cpu_s", "cpu_share", "loop_lag_ms_p99", "processes"} <= set(told["client"])
    for name in ("schedule_delay_ms", "accept_length", "requested_rate_rps", "goodput_rps"):
        assert told[name] is None


def test_a_server_that_never_sends_a_token_gives_a_report_with_nothing_in_it() -> None:
    told, _ = measure(lambda n, body: Script([(0, DONE)]), "--requests", "5", exit_code=1)
    assert (told["requests_total"], told["requests_ok"], told["valid"]) == (5, 0, False)
    assert "no request of 5 succeeded" in told["void_reasons"]
    for name in ("ttft_ms", "tpot_ms", "e2e_ms", "output_throughput_tok_s", "request_throughput_rps"):
        assert told[name] is None


def test_answers_without_a_token_have_no_first_token_time() -> None:
    answer = lambda n, body: Script([(0, DONE)]) if n % 10 == 0 else native_answer(2, first_s=0.002)  # noqa: E731
    told, _ = measure(answer, "--requests", "50", "--concurrency", "4")
    assert (told["requests_empty"], told["ttft_ms"]["n"]) == (5, 45)
    assert any("5 requests ended well without a token" in warning for warning in told["warnings"])


def test_250_requests_are_in_flight_at_once_if_that_is_what_was_asked() -> None:
    many = ("--concurrency", "250", "--requests", "250")
    told, server = measure(lambda n, body: native_answer(1), *many, together=range(250))
    assert (server.peak_open, told["peak_concurrency"], told["requests_failed"]) == (250, 250, 0)


def test_an_error_answer_is_a_failure_and_is_not_tried_again_behind_the_back() -> None:
    answer = lambda n, body: Script([(0, b"{}")], status=503) if n < 3 else native_answer(2)  # noqa: E731
    told, server = measure(answer, "--requests", "10")
    assert (len(server.bodies), told["requests_failed"], told["errors"]) == (10, 3, {"http_error": 3})


def test_failed_connections_count_in_no_latency_and_no_throughput() -> None:
    def every_other(n: int, body: dict[str, Any]) -> Script:
        return Script([(0, native("x", 1))], end="reset") if n % 2 else native_answer(3, first_s=0.05)

    told, _ = measure(every_other, "--requests", "20", "--slo", "ttft_ms=10000")
    assert (told["requests_failed"], told["errors"]) == (10, {"truncated": 10})
    assert (told["ttft_ms"]["n"], told["output_tokens_total"]) == (10, 30)
    assert told["ttft_ms"]["p50"] >= 50
    assert told["valid"] is False
    assert told["goodput_rps"] is not None


def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    told, server = measure(good, "--requests", "4")
    assert (told["requests_ok"], len(server.bodies)) == (4, 4)


def test_an_open_loop_offers_the_rate_that_was_asked_and_says_what_it_reached(tmp_path: Path) -> None:
    told, _ = measure(good, "--request-rate", "200", "--requests", "400", "--out", str(tmp_path / "kept"))
    rows = [row for file in (tmp_path / "kept").glob("requests-*.parquet") for row in pq.read_table(file).to_pylist()]
    due, sent = ([row[name] for row in rows] for name in ("scheduled_ns", "sent_ns"))

    assert told["requested_rate_rps"] == 200
    assert 399e9 / (max(due) - min(due)) == pytest.approx(200, rel=0.01)
    assert told["achieved_rate_rps"] == pytest.approx(399e9 / (max(sent) - min(sent)))
    late_ms = sorted((row["sent_ns"] - row["scheduled_ns"]) / 1e6 for row in rows)
    assert late_ms[0] >= 0
    # On a machine that stands still they are sent late, and that is told.
    assert late_ms[390] < max(5.0, 0.05 * told["ttft_ms"]["p50"]) or not told["valid"]


def test_a_gate_that_holds_the_load_back_is_told() -> None:
    told, server = measure(
        lambda n, body: native_answer(1, first_s=0.3), "--request-rate", "50", "--max-concurrency", "4",
        "--requests", "24", together=range(4),
    )  # fmt: skip
    assert (server.peak_open, told["peak_concurrency"]) == (4, 4)
    assert told["achieved_rate_rps"] < 25
    (note,) = [warning for warning in told["warnings"] if "max_concurrency" in warning]
    assert "TTFT includes that wait" in note


def test_the_peak_is_never_above_the_level_nor_below_the_mean() -> None:
    ten = ("--concurrency", "10", "--requests", "100")
    told, server = measure(lambda n, body: native_answer(2, pause_s=0.01), *ten, together=range(10))
    assert server.peak_open == told["peak_concurrency"] == 10
    mean_in_flight = told["request_throughput_rps"] * told["e2e_ms"]["mean"] / 1000
    assert mean_in_flight <= 10.001


def test_tokens_are_counted_once_and_warm_up_is_left_out() -> None:
    answer = lambda n, body: Script([  # noqa: E731
        (0.01, native("x", 5, prompt_tokens=100)),
        (0.01, native("xx", 10, {"type": "length", "length": 10}, prompt_tokens=100)), (0, DONE),
    ])  # fmt: skip
    told, server = measure(
        answer, "--concurrency", "2", "--requests", "8", "--warmup-requests", "2", "--warmup-s", "0.2"
    )
    assert told["requests_total"] == 8 < len(server.bodies) - 2
    assert (told["prompt_tokens_total"], told["output_tokens_total"]) == (800, 80)


def test_the_same_command_twice_sends_other_prompts_and_a_seed_the_same_ones() -> None:
    def prompts(*more: str) -> tuple[list[str], int]:
        told, server = measure(good, "--requests", "4", *more)
        return [body["text"] for body in server.bodies], told["seed"]

    (first, seed), (second, other) = prompts(), prompts()
    assert not set(first) & set(second)
    assert prompts("--seed", str(seed)) == (first, seed)
    ladder, _ = prompts("--seed", str(seed), "--concurrency", "2")
    assert not set(first) & set(ladder)
    assert seed != other


def test_the_table_begins_with_what_failed() -> None:
    answer = lambda n, body: Script([(0, b"{}")], status=500) if n % 10 < 3 else native_answer(3, pause_s=0.005)  # noqa: E731
    with served(ScriptedEndpoint(answer)) as server:
        said = specsweep("--url", server.url, *QUICK, "--requests", "100", "--concurrency", "4", "--histogram")
    assert said.exit_code == 0
    lines = said.stdout.splitlines()
    assert lines[:3] == [
        "30 of 100 requests failed (http_error: 30)",
        "70 of 100 requests ok",
        "void: 30 of 100 requests failed",
    ]
    assert "achieved_rate_rps" in said.stdout
    assert "\ntpot_ms\n" in said.stdout  # not of answers that came all at once, as they may on a busy host
    for name in ("ttft_ms", "e2e_ms"):
        bars = said.stdout.split(f"\n{name}\n")[1].split("\n\n")[0]
        assert sum(int(line.rsplit(maxsplit=1)[1]) for line in bars.splitlines() if "|" in line) == 70


def test_a_server_that_falls_silent_ends_the_load_as_hung() -> None:
    answer = lambda n, body: native_answer(2) if n < 100 else Script(end="hang")  # noqa: E731

    def load() -> dict[str, Any]:
        return measure(answer, "--concurrency", "4", "--requests", "1000", "--timeout-s", "0.8")[0]

    def ends(told: dict[str, Any]) -> tuple[Any, ...]:
        return told["stopped_by"], told["requests_ok"], told["errors"]

    told = undisturbed(load, lambda told: ends(told) == ("hung", 100, {"timeout": 4}))
    assert ends(told) == ("hung", 100, {"timeout": 4})
    assert "the server hung: no request made progress" in told["void_reasons"]


def test_the_dataset_is_kept_whole_and_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-never-shown")
    out = tmp_path / "kept"
    with served(ScriptedEndpoint(good)) as server:
        said = specsweep(
            "--url", server.url, *QUICK, "--requests", "9", "--warmup-requests", "1", "--processes", "2",
            "--concurrency", "4", "--api-key-env", "SOME_KEY", "--header", "X-Tenant=tenant-never-shown", "--json",
            "--out", str(out),
        )  # fmt: skip
    assert said.exit_code == 0, said.output
    assert {headers["Authorization"] for headers in server.headers} == {"Bearer sk-never-shown"}
    assert {headers["X-Tenant"] for headers in server.headers} == {"tenant-never-shown"}
    rows = [row for file in sorted(out.glob("requests-*.parquet")) for row in pq.read_table(file).to_pylist()]
    assert sorted(row["request_index"] for row in rows if not row["warmup"]) == list(range(9))
    told = json.loads((out / "load.json").read_text())
    assert told == json.loads(said.stdout)
    assert told["client"]["processes"] == json.loads((out / "client.json").read_text())["processes"] == 2
    kept = b"".join(file.read_bytes() for file in out.iterdir()) + said.output.encode() + repr(rows).encode()
    assert b"never-shown" not in kept


def test_ctrl_c_ends_all_processes_of_a_load_and_what_was_measured_is_told() -> None:
    with served(ScriptedEndpoint(lambda n, body: native_answer(3, pause_s=0.01))) as server:
        driver = start(
            "load",
            "--url",
            server.url,
            *QUICK,
            "--duration-s",
            "600",
            "--concurrency",
            "4",
            "--processes",
            "2",
            "--json",
        )
        wait_until(lambda: len(server.bodies) > 20, "requests come", 120)
        driver.send_signal(signal.SIGINT)
        printed, complained = driver.communicate(timeout=120)

    assert driver.returncode == 130, complained
    told = json.loads(printed)
    assert (told["stopped_by"], told["client"]["processes"], told["requests_failed"]) == ("cancelled", 2, 0)
    assert told["requests_ok"] > 10
    assert "the load was stopped; what was measured is told above" in complained


NOWHERE = ["--url", "http://127.0.0.1:1"]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--url", "127.0.0.1:1"], "--url 127.0.0.1:1: write http://HOST:PORT"),
        (["--url", "http://127.0.0.1:port"], "write http://HOST:PORT"),
        (["--url", "http://me:sk-1@127.0.0.1:1"], "--url: write http://HOST:PORT without user, password"),
        ([*NOWHERE, "--request-rate", "1", "--concurrency", "1"], "give one of --concurrency"),
        ([*NOWHERE, "--max-concurrency", "1"], "--max-concurrency is for --request-rate"),
        ([*NOWHERE, "--request-rate", "inf"], "--request-rate inf: give a finite number above 0"),
        ([*NOWHERE, "--request-rate", "0"], "--request-rate 0: give a finite number above 0"),
        ([*NOWHERE, "--request-rate", "nan"], "--request-rate nan: give a finite number above 0"),
        ([*NOWHERE, "--request-rate", "1", "--burstiness", "2"], "--burstiness is the shape of --arrival gamma"),
        ([*NOWHERE, "--request-rate", "1", "--arrival", "gamma", "--burstiness", "0"], "--burstiness 0: give a finite"),
        ([*NOWHERE, "--request-rate", "1", "--arrival", "gamma", "--burstiness", "-1"], "--burstiness -1: give a"),
        ([*NOWHERE, "--request-rate", "1", "--arrival", "gamma"], "--arrival gamma: its --burstiness is missing"),
        ([*NOWHERE, "--export-bench-serving", "/no/such/b.jsonl"], "b.jsonl: there is no folder /no/such"),
        ([*NOWHERE, "--export-bench-serving", "/"], "--export-bench-serving /: is no file that may be written to"),
        ([*NOWHERE, "--out", "/dev/null/out"], "--out /dev/null/out: /dev/null is no folder that may be written to"),
        ([*NOWHERE, "--arrival", "constant"], "--arrival is for --request-rate"),
        ([*NOWHERE, "--duration-s", "inf"], "--duration-s inf: give a finite number above 0"),
        ([*NOWHERE, "--warmup-s", "-1"], "--warmup-s -1: give a finite number, at least 0"),
        ([*NOWHERE, "--concurrency", "2", "--processes", "3"], "--processes 3: 2 requests in flight keep at most 2"),
        ([*NOWHERE, "--processes", "2"], "--processes 2: 1 request in flight keeps at most 1 busy"),
        ([*NOWHERE, "--trace-speed", "1", "--dataset", "x/y.csv", "--processes", "2"], "x/y.csv: no such file"),
        (
            [*NOWHERE, "--trace-speed", "1", "--dataset", "x/y.csv", "--shared-prefix-tokens", "9"],
            "--shared-prefix-tokens: a trace says itself what its prompts share",
        ),
        ([*NOWHERE, "--dataset", "sharegpt"], "--dataset sharegpt: allowed: random_text"),
        ([*NOWHERE, "--dataset", "no/such.jsonl"], "--dataset no/such.jsonl: no such file"),
        ([*NOWHERE, "--tokenizer", "no/such"], "--tokenizer no/such: no such folder"),
        ([*NOWHERE, "--out", "."], "--out .: exists and is not an empty folder"),
        ([*NOWHERE, "--out", "/proc/no/such"], "--out /proc/no/such: cannot be made"),
        (
            [*NOWHERE, "--export-bench-serving", "no/such/file"],
            "--export-bench-serving no/such/file: there is no folder",
        ),
        ([*NOWHERE, "--export-bench-serving", "."], "--export-bench-serving .: is no file that may be written to"),
        ([*NOWHERE, "--slo", "ttft_ms=1,ttft_ms=2"], "ttft_ms is given twice"),
        ([*NOWHERE, "--slo", "ttft_ms=nan"], "limits are finite numbers above 0"),
        ([*NOWHERE, "--slo", "ttft=1"], "ttft is not one of ttft_ms"),
        ([*NOWHERE, "--header", "sk-secret"], "--header number 1: write NAME=VALUE"),
        ([*NOWHERE, "--header", "A=b", "--header", "X Y=sk-secret"], "--header number 2: write NAME=VALUE"),
        ([*NOWHERE, "--header", "content-type=sk-secret"], "--header content-type=...: is set by the client itself"),
        ([*NOWHERE, "--shared-prefix-tokens", "256"], "--shared-prefix-tokens: must be less than --input-tokens"),
        ([*NOWHERE, "--api-key-env", "NO_SUCH_KEY"], "there is no such environment variable"),
    ],
)
def test_bad_arguments_are_refused(arguments: list[str], told: str) -> None:
    said = specsweep(*arguments)

    assert said.exit_code == 2
    assert told in said.stderr
    assert "sk-" not in said.stderr.replace("sk-1@", "")


def test_an_address_where_nothing_answers_is_told_as_such() -> None:
    said = specsweep(*NOWHERE, "--requests", "1")

    assert said.exit_code == 1
    assert "nothing answers there" in said.stderr
