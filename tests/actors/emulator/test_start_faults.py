"""Every start fault of a script, through the eyes of the product: the diagnosis of the start that it spoils."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, get_args

import psutil
import pytest

from actors.emulator.start_fault import StartLabel
from actors.servers.life_state import Life, Starting
from actors.servers.server import Server
from orchestrator.outcome import Diagnosis, Phase
from orchestrator.server_start import LaunchSpec, PhaseBudget, ServerDied, ServerReady, StartEvent
from orchestrator.trial import freeze_settings
from tests.actors.emulator.running import READY, free_port
from tests.fakes.scripted_server import Clock

# All labels start for one fixture: a slow machine takes its time.
pytestmark = pytest.mark.timeout(900)

LOGS = Path(__file__).parents[2] / "data/logs"
PHASES = ("launch", "args", "dist_init", "weights", "kv_pool", "graph_target", "graph_draft", "warmup")
# So long without a line, CPU time or disk traffic ends a start. A slow machine is not silent for as long; it is leapt.
SILENT_S = 600.0
NO_LIMIT_S = 1e6
# The real cause -> what a start that dies of it is said to have died of: label, phase, exit code.
TOLD = {
    "stop_requested": ("stop_requested", "shutdown", 0),
    "oom_weights": ("oom_weights", "weights", -9),
    "kv_budget": ("kv_budget", "kv_pool", -9),
    "oom_kv_alloc": ("oom_kv_alloc", "kv_pool", -9),
    "state_pool": ("state_pool", "state_pool", -9),
    "oom_graph_target": ("oom_graph_target", "graph_target", -9),
    "oom_graph_draft": ("oom_graph_draft", "graph_draft", -9),
    "capture_error": ("capture_error", "graph_target", -9),
    "runtime_pool": ("runtime_pool", "serving", -9),
    "runtime_oom": ("runtime_oom", "warmup", -9),
    "gpu_occupied": ("gpu_occupied", "dist_init", -9),
    "host_oom": ("host_oom", "weights", 1),
    "watchdog_hang": ("watchdog_hang", "warmup", -9),
    "flag_invalid": ("flag_invalid", "args", 2),
    "config_conflict": ("config_conflict", "args", 1),
    "model_missing": ("model_missing", "weights", -9),
    "port_in_use": ("port_in_use", "http_bind", -9),
    "gpu_unequal": ("gpu_unequal", "dist_init", -9),
    "shm_or_disk": ("shm_or_disk", "dist_init", -9),
    "kernel_arch": ("kernel_arch", "graph_target", -9),
    "jit_toolchain": ("jit_toolchain", "graph_target", -9),
    "cuda_ima": ("cuda_ima", "graph_target", -9),
    "segfault_abort": ("segfault_abort", "graph_target", 1),
    "nccl_init": ("nccl_init", "dist_init", -9),
    "nccl_timeout": ("nccl_timeout", "warmup", -9),
    "health_stale": ("health_stale", "warmup", -15),
    "model_download": ("model_download", "args", 1),
    "peer_rank_failed": ("peer_rank_failed", "weights", -9),
    "software_bug": ("software_bug", "warmup", -9),
    "net_config": ("net_config", "dist_init", -9),
}
DRAFTING = {
    "speculative_algorithm": "NEXTN",
    "speculative_num_steps": 3,
    "speculative_eagle_topk": 1,
    "speculative_num_draft_tokens": 4,
}


def spec_for(script: Path, **changes: Any) -> LaunchSpec:
    flags = ("--emulator-start-speedup", "1000", "--emulator-faults", str(script))
    given: dict[str, Any] = {
        "run_id": "run-f",
        "trial_id": "trial-f",
        "engine": "emulator",
        "command": (),
        "model_path": "m",
        "settings": freeze_settings(dict(DRAFTING)),
        "env": (),
        "extra_args": flags,
        "start_timeout_s": NO_LIMIT_S,
        "phase_timeout_s": NO_LIMIT_S,
        "stop_grace_s": 60.0,
    }
    return LaunchSpec(**given | changes)


def _written(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "faults.yaml"
    file.write_text(script, encoding="utf-8")
    return file


def held_to(silent_s: float, total_s: float = 1000.0) -> tuple[PhaseBudget, ...]:
    """The same budget for all phases."""
    return tuple(PhaseBudget(phase, total_s, silent_s, "the test", "the test") for phase in Phase)


def silent_in(phase: str) -> Callable[[Life], float]:
    """Leaps over the time that a start may be silent, as soon as it has come to the phase."""
    return lambda life: 2 * SILENT_S if life.state == Starting() and life.signs.phase == phase else 0.0


@asynccontextmanager
async def started(
    folder: Path,
    script: str,
    seen: list[StartEvent] | None = None,
    leaps: tuple[Clock, Callable[[Life], float]] | None = None,
    **changes: Any,
) -> AsyncIterator[tuple[Server, StartEvent]]:
    """A server with these faults, and the last event of its start (all are put into `seen`); it is gone afterwards.

    It has nothing but its budgets for a limit; with a clock it `leaps` over them.
    """
    seen = [] if seen is None else seen
    file = _written(folder, script)
    server = Server()
    leaping: asyncio.Task[None] | None = None
    if leaps is not None:
        clock, by_s = leaps
        clock.go_apart()
        leaping = asyncio.create_task(clock.leap_on(server, by_s))
    try:
        events = server.start(
            spec_for(file, **changes),
            gpu_ids=(),
            host="127.0.0.1",
            port=free_port(),
            log_path=folder / "server.log",
        )
        async for event in events:
            seen.append(event)
        yield server, seen[-1]
    finally:
        if leaping is not None:
            leaping.cancel()
        await server.stop(1.0)


def end_of(folder: Path, script: str, **changes: Any) -> Diagnosis:
    async def go() -> StartEvent:
        async with started(folder, script, **changes) as (_, last):
            return last

    event = asyncio.run(go())
    assert isinstance(event, ServerDied), event
    return event.diagnosis


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> dict[str, StartEvent]:
    """All labels at once, a few at a time: a start is mostly the start of a Python."""
    folder, few = tmp_path_factory.mktemp("labels"), asyncio.Semaphore(4)

    async def one(label: str, **changes: Any) -> StartEvent:
        script = f"start: {{label: {label}}}"
        async with few, started(folder / label, script, **changes) as (_, last):
            return last

    def silent(clock: Clock) -> dict[str, Any]:
        log, leap_s = folder / "health_stale" / "server.log", silent_in("warmup")
        words = "Health check failed."
        return {
            "phase_budgets": held_to(SILENT_S),
            "leaps": (clock, lambda life: leap_s(life) if words in log.read_text(encoding="utf-8") else 0.0),
        }

    async def go(clock: Clock) -> dict[str, StartEvent]:
        labels = get_args(StartLabel)
        more = {"health_stale": silent(clock)}
        ends = (one(label, **more.get(label, {})) for label in labels)
        return dict(zip(labels, await asyncio.gather(*ends), strict=True))

    with pytest.MonkeyPatch.context() as monkeypatch:
        return asyncio.run(go(Clock(monkeypatch)))


def test_every_label_is_in_the_table() -> None:
    assert sorted([*TOLD, "benign"]) == sorted(get_args(StartLabel))


@pytest.mark.parametrize(("label", "told"), TOLD.items())
def test_a_start_that_dies_is_said_to_have_died_of_its_cause(
    ends: dict[str, StartEvent], label: str, told: tuple[str, str, int]
) -> None:
    event = ends[label]
    assert isinstance(event, ServerDied), event
    diagnosis = event.diagnosis
    assert (str(diagnosis.label), str(diagnosis.phase), diagnosis.exit_code) == told
    assert diagnosis.line_number > 0


def test_a_frightening_line_of_a_healthy_start_is_no_death(ends: dict[str, StartEvent]) -> None:
    assert isinstance(ends["benign"], ServerReady)


def test_a_hang_is_found_in_the_phase_that_it_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)

    async def one(phase: str) -> StartEvent:
        script, leaps = f"start: {{hang: {phase}}}", (clock, silent_in(phase))
        async with started(tmp_path / phase, script, leaps=leaps, phase_budgets=held_to(SILENT_S)) as (_, last):
            return last

    async def go() -> list[StartEvent]:
        return await asyncio.gather(*(one(phase) for phase in PHASES))

    told = [event.diagnosis for event in asyncio.run(go()) if isinstance(event, ServerDied)]
    assert [(d.label, d.phase, d.exit_code) for d in told] == [("start_timeout", phase, -15) for phase in PHASES]
    assert [d.evidence[:16] for d in told] == ["silent in phase "] * len(PHASES)


def test_a_start_that_ignores_sigterm_and_leaves_a_daemon_is_ended_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = "start: [{orphan: true}, {hang: weights, ignore_sigterm: true}]"
    told = end_of(
        tmp_path, script, leaps=(Clock(monkeypatch), silent_in("weights")),
        phase_budgets=held_to(SILENT_S), stop_grace_s=0.5, run_id="run-orphan",
    )  # fmt: skip
    assert (told.label, told.phase, told.exit_code) == ("start_timeout", "weights", -9)
    assert [p.pid for p in psutil.process_iter(["environ"]) if _is_of(p, "run-orphan")] == []


def _is_of(process: psutil.Process, run_id: str) -> bool:
    return (process.info["environ"] or {}).get("SPECSWEEP_RUN_ID") == run_id and process.status() != "zombie"


def test_a_silent_end_is_told_by_its_phase_and_signal(tmp_path: Path) -> None:
    told = end_of(tmp_path, "start: {exit: weights, exit_code: -11}")
    assert (told.label, told.phase, told.exit_code) == ("segfault_abort", "weights", -11)
    assert told.evidence.startswith("ended by SIGSEGV")


def test_a_replayed_log_ends_with_its_diagnosis(tmp_path: Path) -> None:
    log = (LOGS / "20-oom-kvalloc-2x3090-compose-prefix.log").read_bytes()
    (tmp_path / "real.log").write_bytes(log)
    told = end_of(tmp_path, "start: {replay: real.log, exit_code: -9}")
    assert (told.label, told.phase, told.exit_code) == ("oom_kv_alloc", "kv_pool", -9)
    printed = (tmp_path / "server.log").read_bytes()
    assert printed.splitlines() == [line for line in log.splitlines() if line != b"[[gap]]"]


def test_a_flooded_log_loses_neither_the_ready_line_nor_the_phases(tmp_path: Path) -> None:
    async def go() -> StartEvent:
        script = "start: [{flood: weights, mib: 12}, {flood: warmup, mib: 12, lines: [long, bar]}]"
        async with started(tmp_path, script) as (_, last):
            return last

    ready = asyncio.run(go())
    assert isinstance(ready, ServerReady)
    phases = [str(fact.phase) for fact in ready.phases]
    assert phases[:5] == ["launch", "args", "spawn", "dist_init", "weights"]
    assert "graph_draft" in phases
    assert (tmp_path / "server.log").stat().st_size > 24 << 20
    assert READY.encode() in (tmp_path / "server.log").read_bytes()[-2000:]


def test_a_start_is_held_in_its_phase_until_a_file_is_there(tmp_path: Path) -> None:
    log = tmp_path / "held" / "server.log"

    async def go() -> StartEvent:
        async with started(log.parent, "start: {slow: weights, until: ../go}") as (_, last):
            return last

    async def opened() -> StartEvent:
        start = asyncio.ensure_future(go())
        while not log.exists() or b"  5%|" not in log.read_bytes():  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.02)
        assert not start.done()
        assert b"Load weight end" not in log.read_bytes()
        (tmp_path / "go").touch()
        return await start

    assert isinstance(asyncio.run(opened()), ServerReady)


def test_a_fault_of_the_first_start_is_over_at_the_second(tmp_path: Path) -> None:
    script = "start: {label: kv_budget, starts: 1}"

    async def go() -> StartEvent:
        async with started(tmp_path, script) as (_, last):
            return last

    first, second = asyncio.run(go()), asyncio.run(go())
    assert (isinstance(first, ServerDied), isinstance(second, ServerReady)) == (True, True)


def test_a_fault_of_one_config_leaves_the_others_alone(tmp_path: Path) -> None:
    script = "start: {label: kv_budget, when: {speculative_num_steps: [4, 5]}}"

    async def go(steps: int) -> StartEvent:
        settings = freeze_settings(
            DRAFTING | {"speculative_num_steps": steps, "speculative_num_draft_tokens": steps + 1}
        )
        async with started(tmp_path / str(steps), script, settings=settings) as (_, last):
            return last

    assert isinstance(asyncio.run(go(4)), ServerDied)
    assert isinstance(asyncio.run(go(3)), ServerReady)
