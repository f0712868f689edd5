"""The guard against every way in which a holder, a server or its descendants can end or refuse to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.guards.guard import RUN_MARK, Guarded, ServerExit, ServerNotStarted
from actors.guards.guard_process import process_table
from actors.host.leftovers import end_run_processes
from tests.fakes.guarded import guarded

# Ignores SIGTERM in a session of its own, with a parent that has exited: nothing but the guard knows it.
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(sys.argv[1] + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(sys.argv[1] + ".part", sys.argv[1])
    time.sleep(600)
os.wait()
"""
SERVER = DAEMON + "\ntime.sleep(600)\n"
ENDING_SERVER = DAEMON + "\nwhile not os.path.exists(sys.argv[1]): time.sleep(0.01)\nsys.exit(3)\n"

HOLDER = """
import os, sys, time
from pathlib import Path
from tests.fakes.guarded import guarded
held = guarded([sys.executable, "-c", sys.argv[1], sys.argv[2]], env=dict(os.environ),
                     log_path=Path(sys.argv[3]), grace_s=0.3)
print(held.pid, held.guard_pid, flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    return process_table().get(pid, (0, "Z"))[1] != "Z"


def eventually(condition: Callable[[], bool], within_s: float = 60.0) -> bool:
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def daemon_pid(file: Path) -> int:
    assert eventually(file.exists)
    return int(file.read_text(encoding="utf-8"))


@pytest.fixture
def holders() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def start(script: str, tmp_path: Path, *, grace_s: float = 60.0) -> Guarded:
    command = [sys.executable, "-c", script, str(tmp_path / "daemon")]
    return guarded(command, env=dict(os.environ), log_path=tmp_path / "log", grace_s=grace_s)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_nothing_outlives_a_holder_that_is_killed(
    number: signal.Signals, tmp_path: Path, holders: list[subprocess.Popen[bytes]]
) -> None:
    command = [sys.executable, "-c", HOLDER, SERVER, str(tmp_path / "daemon"), str(tmp_path / "log")]
    holder = subprocess.Popen(command, stdout=subprocess.PIPE)
    holders.append(holder)
    assert holder.stdout is not None
    server, guard = map(int, holder.stdout.readline().split())
    daemon = daemon_pid(tmp_path / "daemon")
    assert [is_alive(server), is_alive(guard), is_alive(daemon)] == [True, True, True]
    holder.send_signal(number)
    assert eventually(lambda: not any(map(is_alive, (server, guard, daemon))))


def test_stop_ends_the_server_with_sigterm_and_its_stubborn_daemon_with_sigkill(tmp_path: Path) -> None:
    held = start(SERVER, tmp_path)
    daemon = daemon_pid(tmp_path / "daemon")
    assert held.stop(0.5) == ServerExit(-15, (daemon,))
    assert [is_alive(held.pid), is_alive(daemon)] == [False, False]
    assert eventually(lambda: not is_alive(held.guard_pid))


def test_a_server_that_ends_by_itself_leaves_no_daemon_behind(tmp_path: Path) -> None:
    held = start(ENDING_SERVER, tmp_path, grace_s=0.3)
    assert held.poll(60) == ServerExit(3, (daemon_pid(tmp_path / "daemon"),))
    assert held.poll() == held.stop(1.0) == ServerExit(3, (daemon_pid(tmp_path / "daemon"),))


def test_a_second_stop_can_shorten_the_grace_of_the_first(tmp_path: Path) -> None:
    script = "import signal, time; signal.signal(15, signal.SIG_IGN); print('on', flush=True); time.sleep(600)"
    held = start(script, tmp_path)
    assert eventually(lambda: (tmp_path / "log").read_bytes() == b"on\n")
    held.request_stop(600.0)
    assert held.poll(0.2) is None
    assert held.stop(0.0) == ServerExit(-9, (held.pid,))


def test_the_server_dies_with_a_guard_that_is_killed(tmp_path: Path) -> None:
    held = start("import time; time.sleep(600)", tmp_path)
    os.kill(held.guard_pid, signal.SIGKILL)
    assert held.poll(60) == ServerExit(None)
    assert eventually(lambda: not is_alive(held.pid))


def test_the_environment_of_a_server_is_in_no_command_line(tmp_path: Path) -> None:
    env = {**os.environ, "HF_TOKEN": "hf_do_not_show"}
    held = guarded([sys.executable, "-c", "import time; time.sleep(600)"], env=env, log_path=tmp_path / "log")
    shown = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in (held.pid, held.guard_pid)]
    assert [b"hf_do_not_show" in line for line in shown] == [False, False]
    assert b"hf_do_not_show" in Path(f"/proc/{held.pid}/environ").read_bytes()
    assert Path(f"/proc/{held.guard_pid}/environ").read_bytes().count(b"TOKEN") == 0
    held.stop(60.0)


def test_a_command_that_does_not_exist_is_told_as_missing(tmp_path: Path) -> None:
    with pytest.raises(ServerNotStarted, match="no-such-program") as caught:
        guarded(["/no-such-program"], env={}, log_path=tmp_path / "log")
    assert caught.value.missing


def test_a_server_can_be_held_to_an_address_space(tmp_path: Path) -> None:
    script = "import resource; print(resource.getrlimit(resource.RLIMIT_AS), flush=True)"
    held = guarded([sys.executable, "-c", script], env={}, log_path=tmp_path / "log", address_space_gib=1.5)
    assert held.poll(60) == ServerExit(0)
    assert (tmp_path / "log").read_text(encoding="utf-8") == "(1610612736, 1610612736)\n"


def test_signals_that_the_holder_blocks_reach_the_server(tmp_path: Path) -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        held = start("import time; print('on', flush=True); time.sleep(600)", tmp_path)
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    assert eventually(lambda: b"on" in (tmp_path / "log").read_bytes())
    os.kill(held.pid, signal.SIGINT)
    ended = held.poll(60)
    assert ended is not None
    assert ended.code == -2


@pytest.fixture
def sleepers() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def sleeper(mark: str) -> subprocess.Popen[bytes]:
        script = "import signal, time; signal.signal(15, signal.SIG_IGN); print(flush=True); time.sleep(600)"
        command = [sys.executable, "-c", script]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, env={RUN_MARK: mark} if mark else {})
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()
        return process

    yield sleeper
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_the_sweep_ends_only_what_carries_the_mark_of_the_run(
    sleepers: Callable[[str], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    run = f"sweep-test-{os.getpid()}"
    marked, longer, unmarked = sleepers(run), sleepers(run + "1"), sleepers("")
    env = {**os.environ, RUN_MARK: run}
    held = guarded([sys.executable, "-c", "import time; time.sleep(600)"], env=env, log_path=tmp_path / "log")
    ended = end_run_processes(run, spare=[held.guard_pid], grace_s=0.2)
    assert [found.process.pid for found in ended] == [marked.pid]
    assert ended[0].command.startswith(f"{sys.executable} -c import signal")
    assert marked.wait(60) == -9
    assert [longer.poll(), unmarked.poll(), held.poll()] == [None, None, None]
    command = f"{sys.executable} -c import time; time.sleep(600)"
    (last,) = end_run_processes(run, grace_s=60.0)
    assert (last.process.pid, last.command, last.guarded) == (held.pid, command, True)
    assert held.poll(60) == ServerExit(-15)
