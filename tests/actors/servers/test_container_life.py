"""Servers in containers, which are nobody's children: started, reached, and gone however their start, client, guard or
holder ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

import actors.guards.guard_steps
from actors.guards.guard_orders import Container
from actors.host.host_cleanup import end_leftovers
from actors.servers.container import container_name
from actors.servers.container_end import remove_container
from actors.servers.server import Server, StopReport
from orchestrator.outcome import Label, Phase
from orchestrator.server_start import LaunchSpec, ServerDied, ServerReady, StartEvent
from tests.actors.guards.test_guard import eventually as soon
from tests.actors.guards.test_guard import is_alive
from tests.fakes.docker_host import DockerHost, docker_host
from tests.fakes.scripted_server import diagnosis_of, eventually, spec_for, started

ROOT = Path(__file__).resolve().parent.parent.parent.parent
EMULATOR = (sys.executable, "-m", "actors.emulator")
STUBBORN = "import signal, time; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[DockerHost]:
    with docker_host(monkeypatch) as running:
        yield running


def emulated(*inner: str, image: str = "image", **changes: Any) -> LaunchSpec:
    """An emulated server in a container."""
    return spec_for(
        {},
        **{
            "engine": "emulator",
            "command": ("docker", "run", image, *(inner or EMULATOR)),
            "model_path": "example/small-model",
            "env": (("PYTHONPATH", str(ROOT)), ("HF_TOKEN", "hf_do_not_store")),
            "extra_args": ("--emulator-start-speedup", "100"),
            **changes,
        },
    )


async def last_of(events: AsyncIterator[StartEvent]) -> StartEvent:
    return [event async for event in events][-1]


def text_of(server: Server) -> str:
    return zstandard.ZstdDecompressor().decompress(server.log_bytes(), max_output_size=10_000_000).decode()


def test_a_server_in_a_container_comes_up_serves_and_is_gone_after_its_stop(host: DockerHost, tmp_path: Path) -> None:
    async def run() -> tuple[StartEvent, str, dict[str, str], list[str], StopReport, str]:
        async with started(emulated(), tmp_path) as (server, events):
            (name,) = host.names()
            env, options = host.env(name), host.options(name)
            return events[-1], name, env, options, await server.stop(60.0), text_of(server)

    ready, name, env, options, report, log = asyncio.run(run())
    assert isinstance(ready, ServerReady)
    assert name.startswith("specsweep-run-7-")
    assert env.keys() == {
        "PYTHONPATH", "HF_TOKEN", "SPECSWEEP_RUN_ID", "SPECSWEEP_TRIAL_ID", "SPT_NOENV", "CUDA_DEVICE_ORDER",
    }  # fmt: skip
    assert (env["HF_TOKEN"], env["SPECSWEEP_RUN_ID"], env["SPECSWEEP_TRIAL_ID"]) == (
        "hf_do_not_store",
        "run-7",
        "trial-3",
    )
    assert not any("hf_do_not_store" in option for option in options)
    assert {"--rm", "--init", "--network", "host", "--label", "specsweep.run=run-7"} <= set(options)
    assert (report.exit_code, report.notes) == (0, ())
    assert (host.names(), host.living(name)) == ([], [])
    assert "The server is fired up and ready to roll!" in log


def test_a_client_that_is_killed_takes_its_container_with_it(host: DockerHost, tmp_path: Path) -> None:
    async def run() -> tuple[ServerDied, str]:
        async with started(emulated(), tmp_path) as (server, events):
            ready = events[-1]
            assert isinstance(ready, ServerReady)
            assert ready.pid is not None
            (name,) = host.names()
            os.kill(ready.pid, signal.SIGKILL)
            died: ServerDied = await eventually(server.died)
            return died, name

    died, name = asyncio.run(run())
    assert (died.diagnosis.phase, died.diagnosis.exit_code) == (Phase.SERVING, -9)
    assert (host.names(), host.living(name)) == ([], [])


def test_a_container_that_ignores_sigterm_is_killed_after_the_grace(host: DockerHost, tmp_path: Path) -> None:
    spec = emulated(sys.executable, "-c", STUBBORN, extra_args=())

    async def run() -> tuple[str, StopReport]:
        server = Server()
        events = server.start(spec, gpu_ids=(), host="127.0.0.1", port=31999, log_path=tmp_path / "server.log")
        start = asyncio.create_task(last_of(events))
        log = tmp_path / "server.log"

        async def deaf() -> bool:
            return log.exists() and b"deaf" in log.read_bytes()

        assert await eventually(deaf)
        (name,) = host.names()
        report = await server.stop(0.5)
        assert diagnosis_of(await start).label is Label.STOP_REQUESTED
        return name, report

    name, report = asyncio.run(run())
    assert (report.exit_code, report.notes) == (137, ())
    assert (host.names(), host.living(name)) == ([], [])


HOLDER = """
import sys, time
from pathlib import Path
from tests.fakes.guarded import guarded
from actors.guards.guard_orders import Container, Surroundings
import os
command = ["docker", "run", "--name", "held", "image", sys.executable, "-c", sys.argv[1]]
held = guarded(command, env=dict(os.environ), log_path=Path(sys.argv[2]), grace_s=0.3,
                     around=Surroundings(container=Container(("docker",), "held")))
print(held.pid, held.guard_pid, flush=True)
time.sleep(600)
"""


def test_a_holder_that_is_killed_leaves_neither_client_nor_container_nor_guard(
    host: DockerHost, tmp_path: Path
) -> None:
    log = tmp_path / "log"
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, STUBBORN, str(log)], stdout=subprocess.PIPE, cwd=ROOT)
    assert holder.stdout is not None
    client, guard = map(int, holder.stdout.readline().split())
    assert soon(lambda: b"deaf" in log.read_bytes())
    assert (host.names(), len(host.living("held"))) == (["held"], 1)
    holder.kill()
    holder.wait()
    holder.stdout.close()
    assert soon(lambda: not is_alive(guard))
    assert (is_alive(client), host.names(), host.living("held")) == (False, [], [])


def test_a_guard_that_is_killed_leaves_the_container_to_the_stop(host: DockerHost, tmp_path: Path) -> None:
    async def run() -> tuple[str, StopReport]:
        async with started(emulated(), tmp_path) as (server, _):
            (name,) = host.names()
            assert server._lifeline is not None
            assert server._lifeline.guarded is not None
            os.kill(server._lifeline.guarded.guard_pid, signal.SIGKILL)
            return name, await server.stop(60.0)

    name, report = asyncio.run(run())
    assert (report.exit_code, report.notes) == (None, ())
    assert (host.names(), host.living(name)) == ([], [])


@pytest.mark.parametrize(
    ("image", "inner", "label", "evidence", "code"),
    [
        ("missing", EMULATOR, Label.COMMAND_NOT_FOUND, "pull access denied for missing, repository does not", 125),
        ("image", ("python4",), Label.COMMAND_NOT_FOUND, 'exec: "python4": executable file not found in $PATH', 127),
    ],
)
def test_a_container_that_cannot_be_run_is_told_in_the_words_of_the_runtime(
    host: DockerHost, tmp_path: Path, image: str, inner: tuple[str, ...], label: Label, evidence: str, code: int
) -> None:
    async def run() -> StartEvent:
        async with started(emulated(*inner, image=image), tmp_path) as (_, events):
            return events[-1]

    diagnosis = diagnosis_of(asyncio.run(run()))
    assert (diagnosis.label, diagnosis.exit_code) == (label, code)
    assert diagnosis.evidence.startswith("docker: Error response from daemon: ")
    assert evidence in diagnosis.evidence


def test_a_name_that_is_taken_is_told_and_the_container_that_had_it_is_of_this_run_and_goes(
    host: DockerHost, tmp_path: Path
) -> None:
    async def run() -> StartEvent:
        events = Server().start(emulated(), gpu_ids=(), host="127.0.0.1", port=31998, log_path=tmp_path / "log")
        return await last_of(events)

    taken = container_name("run-7", "31998", "trial-3")
    other = subprocess.Popen(["docker", "run", "--name", taken, "image", "sleep", "600"], stdout=subprocess.DEVNULL)
    assert soon(lambda: host.names() == [taken])
    diagnosis = diagnosis_of(asyncio.run(run()))
    assert (diagnosis.label, diagnosis.exit_code) == (Label.UNKNOWN, 125)
    assert "Conflict. The container name" in diagnosis.evidence
    other.wait()
    assert host.names() == []


def test_a_removal_that_fails_is_tried_again_and_written_into_the_log(host: DockerHost, tmp_path: Path) -> None:
    async def run() -> tuple[StopReport, str]:
        async with started(emulated(), tmp_path) as (server, _):
            host.fail_next_removal()
            return await server.stop(60.0), text_of(server)

    report, log = asyncio.run(run())
    assert report.notes == ()
    assert ": Error response from daemon: device or resource busy\n" in log
    assert host.names() == []


def test_sudo_gets_the_variables_in_a_file_that_is_gone_once_the_server_is_ready(
    host: DockerHost, tmp_path: Path
) -> None:
    async def run() -> tuple[dict[str, str], list[str], list[str], StopReport]:
        spec = emulated(command=("sudo", "docker", "run", "image", *EMULATOR))
        async with started(spec, tmp_path) as (server, events):
            assert isinstance(events[-1], ServerReady)
            (name,) = host.names()
            return host.env(name), host.options(name), files(), await server.stop(60.0)

    def files() -> list[str]:
        return sorted(path.name for path in tmp_path.iterdir())

    env, options, left, report = asyncio.run(run())
    assert left == ["server.log"]
    assert (env["HF_TOKEN"], env["SPECSWEEP_RUN_ID"]) == ("hf_do_not_store", "run-7")
    assert "-e" not in options
    assert (report.exit_code, host.names()) == (0, [])


def test_leftover_containers_go_by_their_label_and_no_others(host: DockerHost) -> None:
    run_id = f"left-{os.getpid()}"
    clients = [
        subprocess.Popen(
            ["docker", "run", "--rm", "--name", name, "--label", f"specsweep.run={label}", "image", "sleep", "600"],
            stdout=subprocess.DEVNULL,
        )
        for name, label in (("mine", run_id), ("other", run_id + "1"))
    ]
    assert soon(lambda: sorted(host.names()) == ["mine", "other"])
    assert end_leftovers(run_id, ("docker",)) == [(0, "mine")]
    assert host.names() == ["other"]
    assert end_leftovers(run_id, ("no-such-runtime",)) == []
    host.docker("rm", "-f", "other")
    for client in clients:
        client.wait()


def test_a_runtime_that_does_not_answer_any_more_is_reported(host: DockerHost, tmp_path: Path) -> None:
    env = {**os.environ, "FAKE_DOCKER_SOCKET": str(tmp_path / "nobody")}
    told = remove_container(Container(("docker",), "gone"), env)
    assert told == (
        "container gone may still run: docker: Cannot connect to the Docker daemon at unix:///var/run/docker.sock."
    )
    assert actors.guards.guard_steps.says_gone("Error response from daemon: No such container: gone")
    assert actors.guards.guard_steps.says_gone('Error: no container with name or ID "gone" found: no such container')
