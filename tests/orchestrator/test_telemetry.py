"""What slots sample, from the slot to the tables of the dataset."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow.parquet as pq
import pytest

from orchestrator.happening import Happening, TelemetryArrived, TrialEnded
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.run_files import dataset
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.run_files.run_telemetry import RunTelemetry, read_telemetry, salvage, starts_with_telemetry
from orchestrator.scenarios.scenario import Scenario
from orchestrator.slots.slot_port import SlotFacts, SlotLost, TrialBroken
from orchestrator.slots.span_slot import SpanSlot
from orchestrator.sweeps.sweep import Sweep
from orchestrator.sweeps.telemetry_pull import TelemetryPull
from orchestrator.telemetry import GpuSample, Sample, ServerSample
from orchestrator.trial import Point
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import Keeper, sweep_on

GPUS = (
    GpuSample("0", 70.5, 80.0, 612.3, 700.0, 1755, 61, 97, ("power_cap", "sw_thermal"), 0),
    GpuSample("1", 71.0, 80.0),
)
SERVER = ServerSample(4, 1, 0, 1500, 0.36, 812.25, 0.5, 2.41, 3, 5.5, 1.25)
ONE = small_scenario(sweep={"axes": {"speculative_num_steps": [2]}})
START = {"trial_id": "t-r0", "config_id": "t", "attempt": 1, "slot": "a/0", "host": "a"}


def sample(at_s: float, **changes: Any) -> Sample:
    return replace(Sample(at_s, 1000.0 + at_s, at_s - 0.5 if at_s > 0.5 else None, SERVER, GPUS), **changes)


def swept(root: Path, scenario: Scenario, slot: FakeSlot) -> list[Happening]:
    run = RunDirectory.create(root, scenario)
    keeper = Keeper()
    Sweep(make_plan(scenario, 1), [slot], run, lambda t: launch_spec(scenario, "run", t), keeper).run()
    run.close(complete=True)
    return keeper.seen


def test_what_a_slot_samples_is_told_before_the_end_of_its_trial_and_becomes_two_tables(tmp_path: Path) -> None:
    slot = FakeSlot("a/0", host="a")
    slot.sampled = [sample(0.25), sample(1.25)]
    seen = swept(tmp_path / "run", ONE, slot)

    arrived, ended = (next(i for i, h in enumerate(seen) if isinstance(h, k)) for k in (TelemetryArrived, TrialEnded))
    assert arrived < ended
    (server,) = (tmp_path / "run" / "dataset" / "telemetry_server").iterdir()
    (gpu,) = (tmp_path / "run" / "dataset" / "telemetry_gpu").iterdir()
    trial_id = slot.launched[0]
    assert server.name == gpu.name == f"{trial_id}-1.parquet"
    first, _ = pq.read_table(server).to_pylist()
    assert first == {
        "run_id": first["run_id"], "trial_id": trial_id, "config_id": trial_id.removesuffix("-r0"),
        "engine": "emulator", "attempt": 1, "slot": "a/0", "host": "a", "rank": 0,
        "at_s": 0.25, "unix_s": 1000.25, "lived_s": None, "running_requests": 4, "queued_requests": 1,
        "retracted_requests": 0, "used_tokens": 1500, "token_usage": 0.36, "generation_tok_s": 812.25,
        "cache_hit_rate": 0.5, "accept_length": 2.41, "processes": 3, "rss_gib": 5.5, "cpu_cores": 1.25,
    }  # fmt: skip
    told = pq.read_table(gpu).to_pylist()
    assert [(row["at_s"], row["gpu"], row["memory_used_gib"], row["power_w"], row["throttle"]) for row in told] == [
        (0.25, "0", 70.5, 612.3, ["power_cap", "sw_thermal"]),
        (0.25, "1", 71.0, None, None),
        (1.25, "0", 70.5, 612.3, ["power_cap", "sw_thermal"]),
        (1.25, "1", 71.0, None, None),
    ]
    assert not list((tmp_path / "run" / "stream").iterdir())


def test_duckdb_and_polars_read_the_tables_with_a_glob(tmp_path: Path) -> None:
    telemetry = RunTelemetry(RunPaths(tmp_path), {"run_id": "run", "engine": "sglang"})
    for trial_id in ("a", "b"):
        telemetry.append({**START, "trial_id": trial_id}, [sample(0.5), sample(1.5)])
        telemetry.end(trial_id, 1)

    peak = (
        f"select trial_id, max(memory_used_gib) from '{tmp_path}/dataset/telemetry_gpu/*.parquet' group by 1 order by 1"
    )
    assert duckdb.sql(peak).fetchall() == [("a", 71.0), ("b", 71.0)]
    assert polars.read_parquet(tmp_path / "dataset/telemetry_server")["running_requests"].sum() == 16


def test_nothing_is_asked_of_the_slot_where_a_scenario_wants_no_telemetry(tmp_path: Path) -> None:
    slot = FakeSlot("a/0")
    slot.sampled = [sample(0.25)]
    quiet = small_scenario(sweep=ONE.sweep.model_dump(), measure={"duration_s": 5, "telemetry_s": 0})
    seen = swept(tmp_path / "run", quiet, slot)

    assert not any(isinstance(happening, TelemetryArrived) for happening in seen)
    assert slot.sampled == [sample(0.25)]
    assert not (tmp_path / "run" / "dataset" / "telemetry_server").exists()


@pytest.mark.parametrize(("told", "seconds"), [("0.1", 0.1), ("61", 61), ("-1", -1)])
def test_an_interval_that_a_server_would_feel_is_refused(told: str, seconds: float) -> None:
    from orchestrator.errors import BadInput

    with pytest.raises(BadInput, match="telemetry_s"):
        small_scenario(measure={"duration_s": 5, "telemetry_s": seconds})


def test_what_a_dead_driver_had_stored_is_in_the_tables_when_the_run_goes_on(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", ONE)
    paths = run.paths
    run.telemetry.append(START, [sample(0.25), sample(1.25)])
    run.telemetry.append(START, [sample(2.25)])
    assert list(read_telemetry(paths, "telemetry_server", "t-r0", 1)["at_s"]) == [0.25, 1.25, 2.25]  # while it runs
    assert starts_with_telemetry(paths) == {"t-r0": 1}
    run.close(complete=False)
    torn = paths.stream / "t-r0-1.telemetry_gpu"
    torn.write_bytes(torn.read_bytes()[:-200])  # it died while it wrote

    again = RunDirectory.reopen(tmp_path / "run", ONE)
    sweep_on(again, ONE, [FakeSlot("a/0")])
    again.close(complete=True)
    assert [row["at_s"] for row in dataset.read_rows(paths, "telemetry_server")] == [0.25, 1.25, 2.25]
    assert [row["at_s"] for row in dataset.read_rows(paths, "telemetry_gpu")] == [0.25, 0.25, 1.25, 1.25]
    assert not list(paths.stream.iterdir())


def test_samples_that_come_after_the_end_of_their_server_change_nothing(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    telemetry = RunTelemetry(paths, {"run_id": "run", "engine": "sglang"})
    telemetry.append(START, [sample(0.25)])
    telemetry.end("t-r0", 1)
    telemetry.append(START, [sample(9.25)])
    telemetry.append({**START, "attempt": 2}, [sample(5.25)])
    telemetry.end("t-r0", 2)
    telemetry.end("never", 1)
    telemetry.close()

    assert not list(paths.stream.iterdir())
    assert [row["at_s"] for row in dataset.read_rows(paths, "telemetry_server")] == [0.25, 5.25]
    assert starts_with_telemetry(paths) == {"t-r0": 2}


def test_a_server_without_gpus_has_no_table_of_gpus(tmp_path: Path) -> None:
    telemetry = RunTelemetry(RunPaths(tmp_path), {"run_id": "run", "engine": "sglang"})
    telemetry.append(START, [sample(0.25, gpus=())])
    telemetry.end("t-r0", 1)

    assert not (tmp_path / "dataset" / "telemetry_gpu").exists()
    assert read_telemetry(RunPaths(tmp_path), "telemetry_gpu", "t-r0", 1) == {}


def test_an_empty_stream_leaves_no_part(tmp_path: Path) -> None:
    paths = RunPaths(tmp_path)
    paths.stream.mkdir()
    (paths.stream / "t-r0-1.telemetry_gpu").write_bytes(b"")
    salvage(paths)

    assert not list(paths.stream.iterdir())
    assert not paths.table("telemetry_gpu").exists()


class Answering(FakeSlot):
    """Answers `telemetry` from a script; an error is raised."""

    def __init__(self, *answers: tuple[Sample, ...] | Exception) -> None:
        super().__init__("a/0")
        self.answers = list(answers)
        self.asked = threading.Semaphore(0)

    def telemetry(self) -> tuple[Sample, ...]:
        answer = self.answers.pop(0) if self.answers else ()
        self.asked.release()
        if isinstance(answer, Exception):
            raise answer
        return answer


def pulled(slot: Answering, asked: int, every_s: float = 0.001) -> list[float]:
    """The times of what a pull put until the slot was asked so often, and at its end."""
    (trial,) = make_plan(ONE, 1).trials
    put: list[Happening] = []
    pull = TelemetryPull(slot, trial, 3, put.append, every_s)
    pull.begin()
    pull.begin()  # every event of a launch says so
    for _ in range(asked):
        assert slot.asked.acquire(timeout=60)
    pull.end(lost=False)
    assert all(isinstance(h, TelemetryArrived) and (h.trial, h.attempt) == (trial, 3) for h in put)
    return [s.at_s for h in put if isinstance(h, TelemetryArrived) for s in h.samples]


@pytest.mark.parametrize("fault", [SlotLost("cut off"), TrialBroken("it raised")])
def test_a_slot_that_does_not_answer_is_asked_again(fault: Exception) -> None:
    slot = Answering((sample(1.0),), fault, (), (sample(2.0), sample(3.0)))

    assert pulled(slot, 4) == [1.0, 2.0, 3.0]


def test_the_rest_is_fetched_when_the_server_is_stopped() -> None:
    assert pulled(Answering((sample(9.0),)), 0, every_s=60.0) == [9.0]


def test_a_lost_slot_is_not_waited_for() -> None:
    release = threading.Event()

    class Hanging(Answering):
        def telemetry(self) -> tuple[Sample, ...]:
            self.asked.release()
            assert release.wait(60)
            return (sample(5.0),)

    slot = Hanging()
    (trial,) = make_plan(ONE, 1).trials
    put: list[Happening] = []
    pull = TelemetryPull(slot, trial, 1, put.append, every_s=0.001)
    pull.begin()
    assert slot.asked.acquire(timeout=60)
    pull.end(lost=True)
    release.set()
    pull._thread.join(60)

    assert put == []


def test_a_pull_that_never_began_ends_at_once() -> None:
    slot = Answering((sample(1.0),))
    (trial,) = make_plan(ONE, 1).trials
    pull = TelemetryPull(slot, trial, 1, lambda _: None)
    pull.end(lost=False)
    pull.begin()

    assert slot.answers == [(sample(1.0),)]


def test_a_server_over_two_hosts_tells_which_is_which_and_one_that_is_cut_off_costs_its_own_only() -> None:
    ranks = [Answering((sample(1.0),), (sample(2.0),)), Answering(SlotLost("cut off"), (sample(1.1), sample(2.1)))]
    span = SpanSlot(SlotFacts("a+b/0", "a+b", ("0", "1")), ranks)  # type: ignore[arg-type]

    assert [(s.rank, s.at_s) for s in span.telemetry()] == [(0, 1.0)]
    assert [(s.rank, s.at_s) for s in span.telemetry()] == [(0, 2.0), (1, 1.1), (1, 2.1)]


def test_samples_come_while_a_long_point_is_measured(tmp_path: Path) -> None:
    """Not only with its batches: a server that is silent for minutes is looked at all the same."""
    slot, arrived = FakeSlot("a/0"), threading.Event()

    def wait(point: Point) -> None:
        slot.sampled = [sample(1.0)]
        assert arrived.wait(60)

    class Told(Keeper):
        def saw(self, slot: str, happening: Happening) -> None:
            super().saw(slot, happening)
            if isinstance(happening, TelemetryArrived):
                arrived.set()

    slot.on_point = wait
    run = RunDirectory.create(tmp_path / "run", ONE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("orchestrator.sweeps.telemetry_pull.PULL_S", 0.01)
        Sweep(make_plan(ONE, 1), [slot], run, lambda t: launch_spec(ONE, "run", t), Told()).run()
    run.close(complete=True)

    assert [row["at_s"] for row in dataset.read_rows(run.paths, "telemetry_server")][:1] == [1.0]


def test_a_trial_that_ends_while_it_is_read_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    telemetry = RunTelemetry(RunPaths(tmp_path), {"run_id": "run", "engine": "sglang"})
    telemetry.append(START, [sample(0.25), sample(1.25)])

    def ends(file: Path) -> list[Any]:
        telemetry.end("t-r0", 1)
        return []

    monkeypatch.setattr("orchestrator.run_files.run_telemetry._streamed", ends)

    assert list(read_telemetry(RunPaths(tmp_path), "telemetry_server", "t-r0", 1)["at_s"]) == [0.25, 1.25]


def test_a_sample_that_no_column_can_hold_is_left_out_and_ends_no_run(tmp_path: Path) -> None:
    kept = RunTelemetry(RunPaths(tmp_path), {"run_id": "run", "engine": "emulator"})
    odd = replace(sample(1.0), server=ServerSample(running_requests=10**30), gpus=(GpuSample("0", ecc_errors=2**70),))

    kept.append(START, [odd])
    kept.append(START, [sample(2.0)])
    kept.end("t-r0", 1)

    assert read_telemetry(RunPaths(tmp_path), "telemetry_server", "t-r0", 1)["at_s"].tolist() == [2.0]
    assert len(read_telemetry(RunPaths(tmp_path), "telemetry_gpu", "t-r0", 1)["at_s"]) == 2
