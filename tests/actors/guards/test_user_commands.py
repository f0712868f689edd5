"""The user's commands around a server: before it, after it however it ended, and what limits and paths a host has."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import zstandard

from actors.guards.guard import ServerNotStarted
from actors.guards.guard_orders import Step, Surroundings
from actors.servers.server import Server, StopReport
from actors.servers.server_command import on_host
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec, ServerReady, StartEvent, UserCommand
from orchestrator.trial import freeze_settings
from tests.actors.guards.test_guard import eventually as soon
from tests.actors.guards.test_guard import is_alive
from tests.fakes.guarded import guarded
from tests.fakes.leaping_clock import ClockOfChildren
from tests.fakes.scripted_server import START, diagnosis_of, events_of, eventually, spec_for, started

ROOT = Path(__file__).resolve().parent.parent.parent.parent
SERVE = {"lines": START, "then": "serve"}


def sh(script: str, timeout_s: float = 30.0) -> UserCommand:
    return UserCommand(("sh", "-c", script), timeout_s)


def files_of(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def text_of(server: Server) -> str:
    return zstandard.ZstdDecompressor().decompress(server.log_bytes(), max_output_size=10_000_000).decode()


def test_commands_run_before_and_after_with_the_environment_of_the_server(tmp_path: Path) -> None:
    told = "echo $0 $SPECSWEEP_RUN_ID $SPECSWEEP_TRIAL_ID $SPECSWEEP_PORT g$SPECSWEEP_GPU_IDS $FAKE_NAME $PWD"
    work = tmp_path / "work"
    work.mkdir()
    spec = spec_for(
        SERVE,
        env=(("FAKE_SCRIPT", json.dumps(SERVE)), ("FAKE_NAME", "x")),
        before_start=(sh(f"{told} > before; echo prepared"),),
        after_stop=(sh("test -e before && echo tidy > after"),),
        work_dir=str(work),
    )

    async def run() -> tuple[StartEvent, bool, StopReport, str]:
        async with started(spec, tmp_path) as (server, events):
            early = (work / "after").exists()
            return events[-1], early, await server.stop(60.0), text_of(server)

    ready, early, report, log = asyncio.run(run())
    assert isinstance(ready, ServerReady)
    port = ready.url.rsplit(":", 1)[1]
    assert (work / "before").read_text(encoding="utf-8") == f"sh run-7 trial-3 {port} g x {work}\n"
    assert (early, (work / "after").read_text(encoding="utf-8"), report.notes) == (False, "tidy\n", ())
    lines = log.splitlines()
    assert lines[0].startswith("[specsweep] before_start: sh -c 'echo $0")
    assert lines[1] == "prepared"
    assert lines[-1] == "[specsweep] after_stop: sh -c 'test -e before && echo tidy > after' (at most 30 s)"


def test_a_command_before_the_start_that_fails_is_the_diagnosis_and_what_follows_still_runs(tmp_path: Path) -> None:
    after = tmp_path / "after"
    spec = spec_for(
        SERVE,
        before_start=(sh("echo CUDA out of memory; echo no such disk >&2; exit 3"), sh(f"touch {tmp_path}/second")),
        after_stop=(sh(f"touch {after}"),),
    )

    async def run() -> tuple[StartEvent, str]:
        async with started(spec, tmp_path) as (server, events):
            return events[-1], text_of(server)

    died, log = asyncio.run(run())
    evidence = (
        "before_start: sh -c 'echo CUDA out of memory; echo no such disk >&2; exit 3' "
        "ended with exit code 3: no such disk"
    )
    assert diagnosis_of(died) == Diagnosis(Label.USER_COMMAND, Phase.LAUNCH, evidence)
    assert (after.exists(), (tmp_path / "second").exists()) == (True, False)
    assert START[1] not in log


def test_a_command_that_takes_too_long_is_ended_with_its_process_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, log = ClockOfChildren(monkeypatch, tmp_path), tmp_path / "server.log"
    script = f"sleep 600 & echo $! > {tmp_path}/pid; echo waiting; wait"
    spec = spec_for(SERVE, before_start=(sh(script, 600.0),))

    async def waits() -> bool:
        return log.exists() and "waiting\n" in log.read_text(encoding="utf-8")

    async def run() -> StartEvent:
        async with started(spec, tmp_path) as (_, events):
            return events[-1]

    async def leapt() -> StartEvent:
        start = asyncio.create_task(run())
        assert await eventually(waits)
        while not start.done():  # the guard may not have begun to count
            clock.leap_by(600.0)
            await asyncio.sleep(0.05)
        return await start

    diagnosis = diagnosis_of(asyncio.run(leapt()))
    assert diagnosis.label is Label.USER_COMMAND
    assert diagnosis.evidence.endswith(" did not end within 600 s: waiting")
    assert not is_alive(int((tmp_path / "pid").read_text(encoding="utf-8")))


def test_a_stop_during_a_command_ends_it_and_is_a_stop(tmp_path: Path) -> None:
    spec = spec_for(
        SERVE, before_start=(sh(f"touch {tmp_path}/began; sleep 600"),), after_stop=(sh(f"touch {tmp_path}/after"),)
    )

    async def run() -> tuple[StartEvent, StopReport]:
        server = Server()

        async def last() -> StartEvent:
            return [event async for event in events_of(server, spec, tmp_path)][-1]

        async def began() -> bool:
            return files_of(tmp_path).count("began") == 1

        start = asyncio.create_task(last())
        assert await eventually(began)
        report = await server.stop(60.0)
        return await start, report

    died, report = asyncio.run(run())
    assert diagnosis_of(died).label is Label.STOP_REQUESTED
    assert report.exit_code is None
    assert (tmp_path / "after").exists()


def test_a_command_after_the_end_that_fails_is_a_note_without_secrets_and_the_others_run(tmp_path: Path) -> None:
    spec = spec_for(SERVE, after_stop=(sh("echo $HF_TOKEN; exit 4"), sh(f"touch {tmp_path}/after")))

    async def run() -> tuple[StopReport, str]:
        async with started(spec, tmp_path) as (server, _):
            return await server.stop(60.0), text_of(server)

    report, log = asyncio.run(run())
    assert report.exit_code == -15
    assert report.notes == ("after_stop: sh -c 'echo $HF_TOKEN; exit 4' ended with exit code 4: ***",)
    assert (tmp_path / "after").exists()
    assert "[specsweep] after_stop: sh -c 'echo $HF_TOKEN; exit 4' ended with exit code 4: ***\n" in log


def test_what_the_commands_print_is_no_evidence_about_the_server(tmp_path: Path) -> None:
    killer = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    spec = spec_for(
        {"lines": ["ValueError: of the server"], "then": "exit", "exit_code": 1},
        before_start=(sh(f"echo '{killer}'"),),
        after_stop=(sh(f"echo '{killer}'"),),
    )

    async def run() -> StartEvent:
        async with started(spec, tmp_path) as (_, events):
            return events[-1]

    diagnosis = diagnosis_of(asyncio.run(run()))
    assert (diagnosis.label, diagnosis.evidence, diagnosis.line_number) == (
        Label.CONFIG_CONFLICT, "ValueError: of the server", 3,
    )  # fmt: skip


def test_a_daemon_of_a_command_lives_until_the_commands_after_the_end_are_through(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    spec = spec_for(
        SERVE,
        before_start=(sh(f"sleep 600 & echo $! > {pid}"),),
        after_stop=(sh(f"kill -0 $(cat {pid}) && touch {tmp_path}/lived"),),
    )

    async def run() -> StopReport:
        async with started(spec, tmp_path) as (server, _):
            return await server.stop(60.0)

    report = asyncio.run(run())
    assert (report.exit_code, report.killed, report.notes) == (-15, (), ())
    assert (tmp_path / "lived").exists()
    assert not is_alive(int(pid.read_text(encoding="utf-8")))


HOLDER = """
import os, sys, time
from pathlib import Path
from tests.fakes.guarded import guarded
from actors.guards.guard_orders import Step, Surroundings
step = Step(("sh", "-c", "kill -0 $1; echo $? > $2.part; mv $2.part $2", "sh", "0", sys.argv[2]), (), 30.0)
held = guarded(["sleep", "600"], env=dict(os.environ), log_path=Path(sys.argv[1]), grace_s=0.3,
                     around=Surroundings(after=(step,)))
print(held.pid, flush=True)
time.sleep(600)
"""


def test_the_commands_after_the_end_run_when_the_holder_is_killed(tmp_path: Path) -> None:
    after = tmp_path / "after"
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path / "log"), str(after)], stdout=subprocess.PIPE, cwd=ROOT
    )
    assert holder.stdout is not None
    server = int(holder.stdout.readline())
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert soon(after.exists)
    assert not is_alive(server)


def test_a_command_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(ServerNotStarted, match=r"before_start: /no/such --token '\*\*\*': .*No such file") as caught:
        guarded(
            ["sleep", "600"],
            env=dict(os.environ),
            log_path=tmp_path / "log",
            around=Surroundings(before=(Step(("/no/such", "--token", "t"), ("/no/such", "--token", "***"), 5.0),)),
        )
    assert caught.value.by_user_command


def test_a_server_gets_soft_limits_and_keeps_the_hard_ones(tmp_path: Path) -> None:
    script = "import resource as r; print(r.getrlimit(r.RLIMIT_NOFILE), r.getrlimit(r.RLIMIT_CORE), flush=True)"
    hard = [resource.getrlimit(number)[1] for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)]
    held = guarded(
        [sys.executable, "-c", script],
        env={},
        log_path=tmp_path / "log",
        around=Surroundings(limits={"nofile": 128, "core": 0}),
    )
    ended = held.poll(60)
    assert ended is not None
    assert ended.code == 0
    assert (tmp_path / "log").read_text(encoding="utf-8") == f"(128, {hard[0]}) (0, {hard[1]})\n"


def test_a_limit_above_the_hard_one_of_the_host_is_told_by_its_name(tmp_path: Path) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    told = rf"engine.ulimits.nofile is {hard + 1}, above the hard limit of this host, {hard}"
    with pytest.raises(ServerNotStarted, match=told):
        guarded(["true"], env={}, log_path=tmp_path / "log", around=Surroundings(limits={"nofile": hard + 1}))


def mapped(**changes: Any) -> LaunchSpec:
    settings = {"speculative_draft_model_path": "org/draft", "speculative_num_steps": 3}
    return spec_for(
        {},
        **{
            "model_path": "org/model",
            "draft_path": "org/draft",
            "settings": freeze_settings(settings),
            "model_path_by_host": (("gpu-a1*", "/nvme/a1"), ("gpu-a*", "/nvme/a"), ("gpu-b", "org/model")),
            "draft_path_by_host": (("gpu-a*", "/nvme/draft"),),
            **changes,
        },
    )


@pytest.mark.parametrize(
    ("host", "model", "draft", "extra"),
    [
        ("gpu-a12", "/nvme/a1", "/nvme/draft", ("--served-model-name", "org/model")),
        ("gpu-a2", "/nvme/a", "/nvme/draft", ("--served-model-name", "org/model")),
        ("gpu-b", "org/model", "org/draft", ()),
        ("GPU-A2", "org/model", "org/draft", ()),
    ],
)
def test_the_first_pattern_that_fits_the_host_gives_the_path_there(
    host: str, model: str, draft: str, extra: tuple[str, ...]
) -> None:
    spec, _ = on_host(mapped(), host)
    assert (spec.model_path, dict(spec.settings)["speculative_draft_model_path"]) == (model, draft)
    assert spec.extra_args == extra


def test_a_draft_of_another_name_and_a_name_of_the_users_own_stay(tmp_path: Path) -> None:
    settings = freeze_settings({"speculative_draft_model_path": "org/other", "served_model_name": "mine"})
    spec, remarks = on_host(mapped(settings=settings), "gpu-a2")
    assert (spec.settings, spec.extra_args) == (settings, ())
    assert remarks == ("model path on gpu-a2: /nvme/a",)


def test_the_path_that_a_host_uses_stands_in_the_log(tmp_path: Path) -> None:
    async def run() -> str:
        spec = spec_for({"lines": [], "then": "exit"}, model_path="m", model_path_by_host=(("*", "/nvme/m"),))
        async with started(spec, tmp_path) as (server, _):
            return text_of(server)

    first = asyncio.run(run()).splitlines()[0]
    assert first.startswith("[specsweep] model path on ")
    assert first.endswith(": /nvme/m")
