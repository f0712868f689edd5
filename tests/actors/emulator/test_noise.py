"""Hidden differences between emulated servers: as large as said, fixed by the seed, and shown by nothing but speed."""

from __future__ import annotations

import io
import itertools
import math
import statistics
from dataclasses import replace
from pathlib import Path

import pytest

from actors.emulator.batching import Batch, BatchLimits, Request
from actors.emulator.flags import parse_flags
from actors.emulator.log import LogWriter
from actors.emulator.metrics_text import Metrics
from actors.emulator.noise import Noise, NoiseLevels
from actors.emulator.profiles import QWEN35_122B
from actors.emulator.serving import Engine, EngineOptions
from tests.actors.emulator.running import READY, emulator

LEVELS = NoiseLevels(7, 0.05, 0.015, 0.02)
LIMITS = BatchLimits(max_running=64, kv_tokens=400_000, chunk_tokens=8192, captured_batch=64)


def factors(noise: Noise, points: int) -> list[float]:
    found = []
    for _ in range(points):
        found.append(noise.factor)
        noise.next_point()
    return found


@pytest.mark.parametrize("kind", ["host", "start", "point"])
def test_each_kind_of_difference_is_as_large_as_said_and_centred_on_one(kind: str) -> None:
    only = NoiseLevels(3, *(0.05 if kind == part else 0.0 for part in ("host", "start", "point")))
    if kind == "point":
        logs = [math.log(f) for f in factors(Noise(only, "h", "t"), 2000)]
    elif kind == "start":
        logs = [math.log(Noise(only, "h", f"trial {i}").factor) for i in range(2000)]
    else:
        logs = [math.log(Noise(only, f"host {i}", "t").factor) for i in range(2000)]

    assert statistics.stdev(logs) == pytest.approx(0.05, rel=0.06)
    assert statistics.fmean(logs) == pytest.approx(0.0, abs=0.004)
    assert max(map(abs, logs)) > 0.13


def test_the_same_seed_host_and_trial_are_equally_slow_again_and_another_seed_is_not() -> None:
    first = factors(Noise(LEVELS, "gpu-1", "trial"), 3)

    assert factors(Noise(LEVELS, "gpu-1", "trial"), 3) == first
    assert len(set(first)) == 3
    assert factors(Noise(replace(LEVELS, seed=8), "gpu-1", "trial"), 3) != first
    assert factors(Noise(LEVELS, "gpu-2", "trial"), 3) != first


def test_a_host_is_equally_slow_for_every_start_on_it() -> None:
    still = NoiseLevels(1, 0.05, 0.0, 0.0)

    on_one = {Noise(still, "gpu-1", f"trial {i}").factor for i in range(20)}
    assert len(on_one) == 1
    assert len({Noise(still, f"gpu-{i}", "trial").factor for i in range(20)}) == 20


def test_a_slow_moment_makes_prefill_and_decode_longer_by_its_factor_and_changes_no_token() -> None:
    def played(pace: float) -> tuple[list[float], list[int]]:
        batch = Batch(QWEN35_122B.speed, replace(LIMITS, num_steps=2, draft_tokens=3), seed=1)
        batch.pace = pace
        batch.submit(Request("a", tuple(range(4000)), 64))
        seconds, tokens, now = [], [], 0.0
        while (step := batch.next_step()) is not None:
            now += step.seconds
            seconds.append(step.seconds)
            tokens += [request.generated for request in batch.finish_step(step, now)]
        return seconds, tokens

    (plain_s, plain_tokens), (slow_s, slow_tokens) = played(1.0), played(1.1)
    assert slow_s == pytest.approx([1.1 * s for s in plain_s])
    assert slow_tokens == plain_tokens
    assert len(plain_s) > 10


def test_flushing_the_cache_begins_another_moment() -> None:
    log, noise = LogWriter(io.StringIO()), Noise(LEVELS, "h", "t")
    engine = Engine(Batch(QWEN35_122B.speed, LIMITS), EngineOptions(1000, 40), log, Metrics("m", False), noise=noise)
    first, second = factors(Noise(LEVELS, "h", "t"), 2)

    assert engine.batch.pace == first
    assert engine.flush()
    assert engine.batch.pace == second


def test_neither_the_server_nor_its_log_shows_the_seed(tmp_path: Path) -> None:
    with emulator(tmp_path, "--model-path m --emulator-noise 918273645:0.05:0.015:0.02") as running:
        running.wait_for(READY)
        shown = running.call("GET", "/server_info")
        assert shown.status == 200
        assert "--emulator-noise '<redacted>'" in shown.json["launch_command"]
        assert "918273645" not in shown.text + running.log


def test_the_flag_is_read_and_a_wrong_one_refused(capsys: pytest.CaptureFixture[str]) -> None:
    flags, _ = parse_flags(["--model-path", "m", "--emulator-noise", "7:0.05:0.015:0.02"])

    assert flags.noise == LEVELS
    for wrong, way in itertools.product(["7", "7:0.05:0.015", "x:0:0:0", "7:0:0:2", "7:-1:0:0"], ["=", " "]):
        given = [f"--emulator-noise={wrong}"] if way == "=" else ["--emulator-noise", wrong]
        with pytest.raises(SystemExit) as stop:
            parse_flags(["--model-path", "m", *given])
        assert stop.value.code == 2
    assert "--emulator-noise" in capsys.readouterr().err
