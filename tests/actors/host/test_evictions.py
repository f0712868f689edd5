"""Strangers on GPUs are ended exactly as shown, never anything else, and what comes back is named, not fought."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from actors.gpus.gpu_holders import device_openers, gpu_uses
from actors.gpus.gpu_ledger import GpuLedger
from actors.guards.guard import RUN_MARK
from actors.host.evictions import evict, evictable, evicted_here
from actors.processes.process_identity import identify
from tests.fakes.gpu_holder import Start, holders, watched_ledger
from tests.fakes.supervisor import SERVER_WORDS


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuLedger:
    return watched_ledger(tmp_path, [96.0, 96.0], monkeypatch)


@pytest.fixture
def start(ledger: GpuLedger) -> Iterator[Start]:
    with holders(ledger) as start:
        yield start


def test_only_strangers_on_the_named_gpus_that_were_shown_are_ended(start: Start) -> None:
    shown, later, elsewhere = start({0: 40.0}), start({0: 10.0}), start({1: 40.0})
    ours, small = start({0: 5.0}, env={RUN_MARK: "run-7"}), start({0: 0.3})
    wanted = [h.process for h in evictable("run-7", ["0"]) if h.pid == shown.pid]
    assert sorted(h.pid for h in evictable("run-7", ["0"])) == sorted([shown.pid, later.pid])
    on_the_other = identify(elsewhere.pid)
    assert on_the_other is not None
    done = evict([*(w for w in wanted if w), on_the_other], run_id="run-7", gpu_ids=["0"], watch_s=0.0)
    assert [s.process.pid for s in done.evicted] == [shown.pid]
    assert (done.remaining, done.refused, done.returns) == ((), (), ())
    assert shown.wait(60) == -signal.SIGTERM
    assert [p.poll() for p in (later, elsewhere, ours, small)] == [None] * 4
    assert [s.process.pid for s, _ in evicted_here("run-7")] == [shown.pid]
    assert evicted_here("run-8") == []


def test_a_process_that_ignores_sigterm_goes_by_sigkill_and_a_number_of_another_process_is_nobody(start: Start) -> None:
    deaf = start({0: 40.0}, deaf=True)
    process = identify(deaf.pid)
    assert process is not None
    earlier = replace(process, started_ticks=process.started_ticks - 1)
    assert evict([earlier], grace_s=0.1, watch_s=0.0).evicted == ()
    assert deaf.poll() is None
    assert [s.process for s in evict([process], grace_s=0.1, watch_s=0.0).evicted] == [process]
    assert deaf.wait(60) == -signal.SIGKILL


def test_a_holder_is_told_with_user_gib_command_and_all_its_gpus(start: Start) -> None:
    holder = start({0: 40.0, 1: 41.5}, words=("serve", "--port", "1"))
    (first, second) = gpu_uses() or ()
    (found,) = first.strangers("run-7")
    assert (found.pid, found.gib, found.gpus, found.permitted) == (holder.pid, 40.0, (0, 1), True)
    assert str(found).startswith(f"pid {holder.pid} of ")
    assert str(second.strangers("run-7")[0]).endswith("sys.stdin.read() serve --port 1")
    assert "41.5 GiB" in str(second.strangers("run-7")[0])


def test_a_server_that_a_supervisor_starts_again_is_named_after_its_first_return_and_left_alone(
    ledger: GpuLedger,
) -> None:
    command = [sys.executable, "-m", "tests.fakes.supervisor", str(ledger.folder), "60"]
    root = Path(__file__).resolve().parents[3]
    with subprocess.Popen(command, cwd=root, stdout=subprocess.PIPE, text=True) as supervisor:
        try:
            assert supervisor.stdout is not None
            first = int(supervisor.stdout.readline())
            wanted = [h.process for h in evictable("run-7") if h.process]
            done = evict(wanted, run_id="run-7", watch_s=20.0)
            second = int(supervisor.stdout.readline())
            assert [s.process.pid for s in done.evicted] == [first]
            (back,) = done.returns
            assert (back.gone.process.pid, back.now.process.pid, back.evicted) == (first, second, True)
            assert f"pid {second} runs the command of pid {first} again, which was evicted" in str(back)
            assert " ".join(SERVER_WORDS) in str(back)
            assert identify(second) == back.now.process  # it is not fought
        finally:
            supervisor.kill()


def test_openers_of_a_device_are_found_by_their_descriptors(tmp_path: Path) -> None:
    for pid, targets in {
        "41": ["/dev/nvidia0", "/dev/nvidiactl"],
        "42": ["/dev/nvidia1", "/dev/null"],
        "self": [],
    }.items():
        fds = tmp_path / pid / "fd"
        fds.mkdir(parents=True)
        for number, target in enumerate(targets):
            os.symlink(target, fds / str(number))  # noqa: PTH211
    (tmp_path / "43").mkdir()
    assert device_openers(tmp_path) == {0: (41,), 1: (42,)}


def test_where_the_driver_tells_no_processes_the_openers_of_the_device_are_the_second_evidence(
    ledger: GpuLedger, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder, watcher = start({0: 60.0}), start({}, words=("nvidia-smi", "-l"))
    GpuLedger.create(ledger.folder, [96.0, 96.0], lists_pids=False)
    monkeypatch.setattr("actors.gpus.gpu_holders.device_openers", lambda: {0: (holder.pid, watcher.pid)})
    use = (gpu_uses(["0"]) or ())[0]
    assert (use.hidden_gib, [h.by_device for h in use.holders]) == (60.0, [True, True])
    assert [h.pid for h in use.strangers("run-7")] == [holder.pid]
    assert f"pid {holder.pid} of " in str(use.holders[0])
    assert ", the device open: " in str(use.holders[0])
