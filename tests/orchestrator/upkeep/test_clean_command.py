"""`specsweep clean` on a host without a cluster: what it lists, ends, leaves, asks and answers.

Everything is held to one run or to a dry run: the host may have other runs at the same time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from actors.gpus.gpu_ledger import GpuLedger
from actors.guards.guard import RUN_MARK
from actors.host.run_lease import scratch_dir
from actors.processes.process_identity import boot_id, pid_namespace
from orchestrator.cli import main
from orchestrator.errors import ClusterRefusal
from orchestrator.slots.ray_connection import Connection
from orchestrator.upkeep.eviction_command import sentence
from orchestrator.upkeep.hosts_command import restart_warning
from tests.fakes.gpu_holder import Start, holders, watched_ledger

RUN = f"clean-command-{os.getpid()}"


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> GpuLedger:
    monkeypatch.setattr("actors.host.evictions.WATCH_S", 0.0)
    return watched_ledger(tmp_path, [96.0], monkeypatch)


@pytest.fixture
def start(ledger: GpuLedger) -> Iterator[Start]:
    with holders(ledger) as start:
        yield start


def clean(*words: str) -> Result:
    return CliRunner().invoke(main, ["clean", "--address", "local", *words])


def dead_lease(run_id: str) -> None:
    """As a slot left it that was killed."""
    leases = scratch_dir(run_id) / "leases"
    leases.mkdir(parents=True)
    owner = {"pid": 4_194_305, "started_ticks": 1, "boot_id": boot_id()}
    lease: dict[str, Any] = {"owner": owner, "namespace": pid_namespace(), "seen_s": None, "runtime": []}
    (leases / "slot-0-1.json").write_text(json.dumps(lease), encoding="utf-8")


def test_a_dead_run_is_listed_first_ended_then_and_gone_afterwards(start: Start) -> None:
    dead_lease(RUN)
    left = start({0: 60.0}, env={RUN_MARK: RUN}, words=("--api-key", "sk-left"))
    dry = clean("--run", RUN, "--dry-run")
    assert dry.exit_code == 1
    assert f"run {RUN} is dead: 1 process, 0 containers, {scratch_dir(RUN)}" in dry.output
    assert f"process {left.pid}: " in dry.output
    assert "sk-left" not in dry.output
    assert left.poll() is None

    done = clean("--run", RUN)
    assert (done.exit_code, left.wait(60)) == (0, -15)
    assert f"ended a process {left.pid} that run {RUN} had left" in done.output
    assert done.output.endswith(f"Nothing is left of a run {RUN}.\n")
    assert clean("--run", RUN).exit_code == 0


def test_strangers_are_listed_with_what_they_hold_and_evicted_only_with_yes_or_a_terminal(start: Start) -> None:
    stranger = start({0: 60.0}, words=("vllm", "serve"))
    dry = clean("--dry-run", "--json")
    told = json.loads(dry.output)
    (host,) = told["hosts"].values()
    (holder,) = host["gpus"][0]["holders"]
    assert (holder["pid"], holder["gib"], holder["gpus"], holder["run_id"]) == (stranger.pid, 60.0, [0], None)
    assert holder["permitted"]
    assert [line for line in told["remaining"] if f"pid {stranger.pid} of " in line]
    assert (dry.exit_code, told["clean"]) == (1, False)

    refused = clean("--run", RUN, "--evict")
    assert refused.exit_code == 2
    assert "confirm on a terminal, or add --yes" in refused.output
    assert stranger.poll() is None

    done = clean("--run", RUN, "--evict", "--yes")
    assert (done.exit_code, stranger.wait(60)) == (0, -15)
    assert f"evicted pid {stranger.pid}: " in done.output


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--evict", "--dry-run"), "--evict ends processes and --dry-run ends none; choose one"),
        (("--evict", "--json"), "--json does not ask: --evict needs --yes with it"),
    ],
)
def test_words_that_contradict_each_other_are_refused(words: tuple[str, ...], told: str) -> None:
    refused = clean(*words)
    assert (refused.exit_code, told in refused.output) == (2, True)


def test_a_gpu_held_by_nobody_that_can_be_seen_says_where_to_look(
    ledger: GpuLedger, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    start({0: 60.0})
    GpuLedger.create(ledger.folder, [96.0], lists_pids=False)
    monkeypatch.setattr("actors.gpus.gpu_holders.device_openers", dict)
    monkeypatch.setattr("actors.gpus.gpu_holders.is_contained", lambda: True)
    found = clean("--dry-run")
    assert found.exit_code == 1
    assert (
        "60.0 GiB held by no process that can be seen: this is a container, look on the container host: nvidia-smi, "
        "fuser -v /dev/nvidia*"
    ) in found.output


HOLDER: dict[str, Any] = {
    "pid": 7, "user": "bob", "gib": 60.04, "gpus": [0, 1], "command": "python serve.py", "unit": "sglang.service",
    "stop": "systemctl stop sglang.service", "restart": "always", "permitted": True,
}  # fmt: skip


def test_a_holder_is_shown_with_all_that_a_user_needs_to_decide() -> None:
    assert sentence(HOLDER) == (
        "GPU 0, GPU 1: pid 7 of bob, 60.0 GiB: python serve.py [sglang.service, Restart=always; stop it with: "
        "systemctl stop sglang.service]"
    )
    alone = HOLDER | {"gib": 0.0, "gpus": [0], "unit": None, "permitted": False}
    assert sentence(alone) == (
        "GPU 0: pid 7 of bob, an amount that the driver does not tell: python serve.py (another user's: needs root)"
    )
    assert restart_warning(HOLDER) == (
        "sglang.service restarts it (Restart=always), also in the middle of a run: systemctl stop sglang.service, "
        "before a run on this GPU"
    )


def test_a_folder_that_is_no_run_is_refused_and_not_told_as_clean(ledger: GpuLedger, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        refused = clean("--run", str(folder), "--dry-run")

        assert refused.exit_code == 2
        assert "is not a run directory (no manifest.json)" in refused.stderr


def test_a_cluster_whose_temporary_folder_was_moved_is_cleaned_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    for name in ("RAY_ADDRESS", "RAY_TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("10.0.0.1:6379")

    def joined(connection: Connection, _: str) -> None:
        raise ClusterRefusal(f"joins {connection.address}")

    monkeypatch.setattr("orchestrator.upkeep.clean_command.connect", joined)
    said = CliRunner().invoke(main, ["clean", "--dry-run"])
    assert (said.exit_code, "joins auto" in said.output) == (3, True)
