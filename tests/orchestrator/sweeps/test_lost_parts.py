"""What is lost besides servers: the network under a point, the head of the cluster, the room for a run on its disk."""

from __future__ import annotations

import errno
import threading
from pathlib import Path

import pytest
from rich.console import Console

from actors.load.record_batch import batch_of
from orchestrator.errors import SpecsweepError
from orchestrator.records import RequestStatus
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.slots.cut_network import CutNetwork
from orchestrator.slots.head_watch import patience_s, reachable, watching_head
from orchestrator.slots.slot_port import TrialBroken
from orchestrator.sweeps import run_command
from orchestrator.sweeps.run_command import RunRequest
from orchestrator.sweeps.sweep import SweepResult
from tests.orchestrator.literal_records import request
from tests.orchestrator.scenario_samples import MINIMAL

SILENT = "TimeoutError: [Errno 110] Connection timed out, while waiting for the next token"
NO_ROUTE = "OSError: [Errno 113] Connect call failed: No route to host, while waiting for a connection"
RESET = "ConnectionResetError: [Errno 104] Connection reset by peer, while waiting for the next token"


@pytest.mark.parametrize(
    ("status", "error", "is_cut"),
    [
        (RequestStatus.TRUNCATED, SILENT, True),
        (RequestStatus.CONNECTION, SILENT, True),
        (RequestStatus.CONNECTION, NO_ROUTE, True),
        (RequestStatus.CONNECTION, RESET, False),  # a server that died
        (RequestStatus.TIMEOUT, "hung: no event of any answer for 600 s", False),
        (RequestStatus.OK, None, False),
    ],
)
def test_a_point_under_which_the_network_was_cut_is_not_measured(
    status: RequestStatus, error: str | None, is_cut: bool
) -> None:
    cut = CutNetwork("h2/0")
    cut.count(batch_of([request(0, [1]), request(0, [1], status=status, error=error)], IDENTITY))
    cut.count("a report")

    if is_cut:
        with pytest.raises(TrialBroken, match="h2/0: the network between load and server was cut under 1 request"):
            cut.check()
    else:
        cut.check()


IDENTITY = dict.fromkeys(("run_id", "engine", "trial_id", "point_id", "config_id"), "x") | {"attempt": 1}


class Head:
    """Answers as it is told, once a second by its own clock."""

    def __init__(self, answers: str) -> None:
        self._answers = iter(answers)
        self.now_s = 0.0
        self.through = threading.Event()

    def ask(self, address: str) -> bool:
        self.now_s += 1.0
        answer = next(self._answers, None)
        if answer is None:
            self.through.set()
        return answer != "-"


@pytest.mark.parametrize(
    ("answers", "told"), [("++++++++", []), ("+---+---+", []), ("++-----+", [5.0]), ("-----", [5.0])]
)
def test_a_head_that_is_silent_for_long_enough_is_told_once(answers: str, told: list[float]) -> None:
    head, seen = Head(answers), []

    def lost(silent_s: float) -> None:
        seen.append(silent_s)
        head.through.set()

    with watching_head("h0:1", lost, silent_s=5.0, ask=head.ask, clock=lambda: head.now_s, every_s=0.0):
        assert head.through.wait(60)
    assert seen == told


def test_the_head_is_given_up_before_ray_ends_the_driver() -> None:
    assert patience_s({}) == 50.0
    assert patience_s({"RAY_gcs_rpc_server_reconnect_timeout_s": "15"}) == 7.5
    assert patience_s({"RAY_gcs_rpc_server_reconnect_timeout_s": "soon"}) == 50.0
    assert not reachable("127.0.0.1:1")


@pytest.fixture
def scenario_file(tmp_path: Path) -> Path:
    file = tmp_path / "s.yaml"
    file.write_text(MINIMAL)
    return file


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_a_disk_that_takes_no_more_ends_the_run_with_what_to_do_and_what_was_measured(
    tmp_path: Path, scenario_file: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def sweep(scenario: object, directory: RunDirectory, *_: object) -> SweepResult:
        raise OSError(number, "torn")

    monkeypatch.setattr(run_command, "sweep_on_cluster", sweep)
    root = tmp_path / "full"
    with pytest.raises(SpecsweepError, match="full: cannot be written any more") as told:
        run_command.run(RunRequest(scenario_file, None, run_dir=root), Console(quiet=True))

    assert f"specsweep run --resume {root}" in str(told.value)
    assert told.value.exit_code == 1


def test_a_fault_that_is_no_full_disk_is_no_full_disk(
    tmp_path: Path, scenario_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sweep(*_: object) -> SweepResult:
        raise ConnectionResetError(errno.ECONNRESET, "reset")

    monkeypatch.setattr(run_command, "sweep_on_cluster", sweep)
    with pytest.raises(ConnectionResetError):
        run_command.run(RunRequest(scenario_file, None, run_dir=tmp_path / "r"), Console(quiet=True))
