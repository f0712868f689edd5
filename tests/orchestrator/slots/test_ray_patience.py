"""A raylet that comes up late is waited for as long as it lives; Ray's own waits are put back afterwards."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from orchestrator.slots.ray_patience import START_S, end_start, interruptible, patient, patient_start, raylet_lives


class Machine:
    """A clock that pauses move, and a raylet that registers, or ends, at its time."""

    def __init__(self, registers_s: float = float("inf"), ends_s: float = float("inf")) -> None:
        self.now_s, self._registers_s, self._ends_s = 0.0, registers_s, ends_s

    def ask(self, gcs_address: str, node_id: str) -> str:
        if self.now_s < self._registers_s:
            raise RuntimeError(f"No node {node_id} at {gcs_address}")
        return node_id

    def asked(self) -> Callable[..., str]:
        return patient(self.ask, lambda: self.now_s < self._ends_s, lambda: self.now_s, self.pause)

    def pause(self, seconds: float) -> None:
        self.now_s += seconds


def test_a_raylet_that_registers_late_is_found_and_a_fast_one_at_once() -> None:
    fast, late = Machine(registers_s=0.0), Machine(registers_s=100.0)

    assert (fast.asked()("head", "n1"), fast.now_s) == ("n1", 0.0)
    assert late.asked()("head", "n1") == "n1"
    assert late.now_s == pytest.approx(100.0, abs=0.3)


@pytest.mark.parametrize(("ends_s", "until_s"), [(15.0, 15.0), (float("inf"), START_S)])
def test_a_raylet_that_ended_is_not_waited_for_and_one_that_never_registers_not_for_ever(
    ends_s: float, until_s: float
) -> None:
    machine = Machine(ends_s=ends_s)

    with pytest.raises(RuntimeError, match="No node n1 at head"):
        machine.asked()("head", "n1")
    assert machine.now_s == pytest.approx(until_s, abs=0.3)


class Port:
    """A port whose file comes after so many pieces of waiting, or at a wait for it that is broken."""

    def __init__(self, clock: Machine, comes_s: float) -> None:
        self.pieces: list[int] = []
        self._clock, self._comes_s = clock, comes_s

    def wait(self, folder: str, *, timeout_ms: int) -> int:
        if folder == "nowhere":
            raise ValueError("no such folder")
        self.pieces.append(timeout_ms)
        self._clock.pause(timeout_ms / 1000)
        if self._clock.now_s < self._comes_s:
            raise RuntimeError(f"Timed out waiting for file {folder}/port")
        return 6379


def test_a_wait_for_a_port_is_made_of_pieces_in_between_which_a_signal_is_heard() -> None:
    clock = Machine()
    port = Port(clock, comes_s=1.2)
    waited = interruptible(port.wait, lambda: clock.now_s)

    assert waited("s", timeout_ms=2000) == 6379
    assert port.pieces == [500, 500, 500]
    with pytest.raises(ValueError, match="no such folder"):
        waited("nowhere", timeout_ms=2000)


def test_a_wait_for_a_port_that_does_not_come_ends_in_its_time() -> None:
    clock = Machine()
    port = Port(clock, comes_s=float("inf"))

    with pytest.raises(RuntimeError, match="Timed out waiting for file s/port"):
        interruptible(port.wait, lambda: clock.now_s)("s", timeout_ms=1200)
    assert port.pieces == [500, 500, 200]
    with pytest.raises(RuntimeError, match="Timed out"):
        interruptible(port.wait, lambda: clock.now_s)("s", timeout_ms=0)
    assert port.pieces[3:] == [0]


def test_ray_waits_longer_around_a_start_only_and_as_long_as_the_user_says(monkeypatch: pytest.MonkeyPatch) -> None:
    from ray._private import node, services

    monkeypatch.setenv("RAY_DASHBOARD_STARTUP_TIMEOUT_S", "7")
    monkeypatch.delenv("RAY_gcs_server_port_wait_time_s", raising=False)
    ask, wait = services.get_node, node.wait_for_persisted_port
    with patient_start():
        assert services.get_node is not ask
        assert node.wait_for_persisted_port is not wait
        assert os.environ["RAY_gcs_server_port_wait_time_s"] == "120"  # noqa: SIM112 - Ray's own spelling
        assert os.environ["RAY_DASHBOARD_STARTUP_TIMEOUT_S"] == "7"
    assert services.get_node is ask
    assert node.wait_for_persisted_port is wait
    assert "RAY_gcs_server_port_wait_time_s" not in os.environ
    assert os.environ["RAY_DASHBOARD_STARTUP_TIMEOUT_S"] == "7"


def test_what_a_failed_start_left_is_ended_and_nothing_else(tmp_path: Path) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    waiting = "read line; exit 7"
    with (
        subprocess.Popen(["sh", "-c", waiting, f"--session-dir={ours}/session_1"], stdin=subprocess.PIPE) as left,
        subprocess.Popen(["sh", "-c", waiting, f"--session-dir={other}/session_1"], stdin=subprocess.PIPE) as stranger,
    ):
        end_start(str(ours))
        assert left.wait(60) == -9
        stranger.communicate(b"\n")
    assert stranger.returncode == 7


def test_a_raylet_is_known_by_its_program_among_what_this_process_started(tmp_path: Path) -> None:
    assert not raylet_lives()
    program = tmp_path / "raylet/raylet"
    program.parent.mkdir()
    program.symlink_to("/bin/cat")
    with subprocess.Popen([str(program)], stdin=subprocess.PIPE) as started:
        assert raylet_lives()
        started.communicate()
    assert not raylet_lives()
