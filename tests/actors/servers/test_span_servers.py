"""Emulated servers over two hosts that are addresses of loopback here: starts, deaths, and that nothing is left."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import zstandard

from actors.gpus.gpu_ledger import LEDGER_VARIABLE, GpuLedger
from orchestrator.outcome import Label, Phase
from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.server_start import LoadSeen, ServerDied, ServerReady
from orchestrator.slots.slot_port import SlotFacts
from orchestrator.slots.span_slot import SpanSlot
from tests.fakes.local_slot import LocalSlot
from tests.integration.programs import wait_until
from tests.orchestrator.scenario_samples import small_scenario


@contextlib.contextmanager
def two_hosts(run_id: str) -> Iterator[SpanSlot]:
    with contextlib.ExitStack() as stack:
        ranks = [stack.enter_context(LocalSlot(run_id, n, (str(n),), f"127.0.0.{n + 1}", f"gpu-{n}")) for n in (0, 1)]
        yield SpanSlot(SlotFacts("gpu-0+gpu-1/0", "gpu-0+gpu-1", ("0", "1")), ranks)


def spec_of(run_id: str, tmp_path: Path, faults: str = "") -> Any:
    engine: dict[str, Any] = {"kind": "emulator", "start_speedup": 300}
    if faults:
        (tmp_path / "faults.yaml").write_text(faults)
        engine["faults"] = str(tmp_path / "faults.yaml")
    scenario = small_scenario(
        engine=engine, slots={"gpus": 1, "nnodes": 2}, sweep={"axes": {"mem_fraction_static": [0.8]}}
    )
    (trial,) = make_plan(scenario, 1).trials
    return launch_spec(scenario, run_id, trial)


def of_run(run_id: str, title: str = "") -> list[psutil.Process]:
    """Living processes of a run whose command line begins so."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get("SPECSWEEP_RUN_ID") == run_id and " ".join(process.cmdline()).startswith(title):
                found.append(process)
    return found


def log_of(slot: SpanSlot) -> str:
    return zstandard.ZstdDecompressor().stream_reader(slot.server_log()).read().decode()


def test_a_server_of_two_ranks_starts_serves_and_stops_as_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = GpuLedger.create(tmp_path / "ledger", [96.0, 96.0])
    monkeypatch.setenv(LEDGER_VARIABLE, str(ledger.folder))
    run_id = f"span-serves-{os.getpid()}"
    with two_hosts(run_id) as slot:
        *_, ready = slot.launch(spec_of(run_id, tmp_path))
        assert isinstance(ready, ServerReady)
        assert ready.url.startswith("http://127.0.0.1:")
        assert (ready.resolved["nnodes"], ready.resolved["tp_size"]) == (2, 2)
        assert {Phase.WEIGHTS, Phase.KV_POOL, Phase.READY} <= {fact.phase for fact in ready.phases}
        assert [bool(gpu.holders) for gpu in ledger.gpus()] == [True, True]
        assert slot.died(LoadSeen()) is None

        stopped = slot.stop()
        assert (stopped.refused, stopped.notes) == (None, ())
        assert of_run(run_id) == []
        assert [gpu.used_gib for gpu in ledger.gpus()] == [0.0, 0.0]
        log = log_of(slot)
        assert log.index("==== rank 0 of 2 on gpu-0 ====") < log.index("fired up and ready to roll!")
        assert log.index("==== rank 1 of 2 on gpu-1 ====") < log.index("terminated with 0\n")


def test_a_scheduler_of_the_second_host_that_is_killed_is_told_as_the_cause_and_nothing_is_left(tmp_path: Path) -> None:
    run_id = f"span-killed-{os.getpid()}"
    with two_hosts(run_id) as slot:
        *_, ready = slot.launch(spec_of(run_id, tmp_path))
        assert isinstance(ready, ServerReady)
        (scheduler,) = of_run(run_id, "sglang::scheduler_TP1")
        scheduler.send_signal(signal.SIGKILL)
        deaths: list[ServerDied] = []

        def told() -> bool:
            deaths.extend(filter(None, [slot.died(LoadSeen())]))
            return bool(deaths)

        wait_until(told, "the death is seen")
        assert (deaths[0].diagnosis.label, deaths[0].diagnosis.phase) == (Label.HOST_OOM, Phase.SERVING)
        assert deaths[0].diagnosis.evidence.startswith("rank 1 on gpu-1: ")
        slot.stop()
        assert of_run(run_id) == []
        assert "Connection reset by peer" in log_of(slot).split("==== rank 1")[0]


def test_a_start_in_which_one_rank_runs_out_of_memory_is_infeasible_by_that(tmp_path: Path) -> None:
    run_id = f"span-memory-{os.getpid()}"
    spec = spec_of(run_id, tmp_path, "start: {label: oom_graph_target, when: {node_rank: 1}}")
    with two_hosts(run_id) as slot:
        *_, end = slot.launch(spec)
        assert isinstance(end, ServerDied)
        assert (end.diagnosis.label, end.diagnosis.infeasible) == (Label.OOM_GRAPH_TARGET, True)
        assert end.diagnosis.evidence.startswith("rank 1 on gpu-1: ")
        slot.stop()
        assert of_run(run_id) == []
