"""Which runs live on a host, and that nothing of a living one is touched."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actors.guards.guard import GUARD_MARK, RUN_MARK
from actors.host.host_cleanup import clean_host, end_leftovers, prepare_host
from actors.host.leftovers import host_marks, orphans
from actors.host.run_lease import LeaseHolder, RunLease, RunLife, dead_ray_folders, leases_of, run_life, scratch_dir
from actors.processes.process_identity import ProcessIdentity, boot_id, identify, pid_namespace
from tests.fakes.gpu_holder import end_holder, start_holder
from tests.fakes.guarded import guarded

ALIVE, DEAD, UNKNOWN = RunLife.ALIVE, RunLife.DEAD, RunLife.UNKNOWN
PATH = {"PATH": os.environ["PATH"]}
HERE, ELSEWHERE = pid_namespace(), "pid:[1]"
ME = ProcessIdentity(7, 100, boot_id())
EARLIER_BOOT = ProcessIdentity(7, 100, "another")


def lease(owner: ProcessIdentity = ME, namespace: str = HERE, seen_s: float | None = None) -> RunLease:
    return RunLease(owner, namespace, seen_s)


@pytest.mark.parametrize(
    ("leases", "guards", "lives", "life"),
    [
        ([], 0, True, UNKNOWN),
        ([], 1, True, ALIVE),  # a guard is still ending a server
        ([lease()], 0, True, ALIVE),
        ([lease()], 0, False, DEAD),
        ([lease()], 1, False, ALIVE),
        ([lease(EARLIER_BOOT)], 0, True, DEAD),  # the host was booted anew; another process has the number
        ([lease(seen_s=999.0)], 0, True, ALIVE),
        ([lease(seen_s=99.0)], 0, True, DEAD),  # silent for 901 s: it stopped its server long ago
        ([lease(EARLIER_BOOT), lease(seen_s=999.0)], 0, True, ALIVE),
        ([lease(namespace=ELSEWHERE, seen_s=999.0)], 0, False, ALIVE),  # its pid says nothing here
        ([lease(namespace=ELSEWHERE, seen_s=99.0)], 0, True, DEAD),
        ([lease(namespace=ELSEWHERE)], 0, True, UNKNOWN),
        ([lease(EARLIER_BOOT), lease(namespace=ELSEWHERE)], 0, True, UNKNOWN),
    ],
)
def test_a_run_lives_as_long_as_an_actor_that_is_not_silent_or_a_guard(
    leases: list[RunLease], guards: int, lives: bool, life: RunLife
) -> None:
    assert run_life(leases, guards, 1000.0, lambda process: lives) is life


@pytest.fixture(autouse=True)
def _temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def server_of() -> Iterator[Callable[[str], subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def starting(run_id: str) -> subprocess.Popen[bytes]:
        started.append(start_holder(env={RUN_MARK: run_id}))
        return started[-1]

    yield starting
    for process in started:
        end_holder(process)


def run_named(name: str) -> str:
    return f"{name}-{os.getpid()}"


def claim(run_id: str, owner: int) -> None:
    """As an actor with this pid would."""
    held = LeaseHolder(run_id, "slot-0")
    process = identify(owner)
    assert process is not None
    held._lease = RunLease(process, HERE, None, ())
    held.hold()


def test_a_new_run_ends_what_dead_runs_left_and_leaves_living_and_unknown_ones_alone(
    server_of: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    dead, living, unknown, mine = map(run_named, ("dead", "living", "unknown", "mine"))
    left, used, nobodys, earlier = map(server_of, (dead, living, unknown, mine))
    owner = start_holder()
    claim(dead, owner.pid)
    end_holder(owner)
    claim(living, os.getpid())
    (scratch_dir(dead) / "slot-0").mkdir()
    (scratch_dir(dead) / "slot-0" / "flags.yaml").write_text("api-key: sk-secret", encoding="utf-8")

    told = prepare_host(mine)

    assert [p.wait(60) for p in (left, earlier)] == [-15, -15]
    assert [p.poll() for p in (used, nobodys)] == [None, None]
    assert (scratch_dir(dead).exists(), scratch_dir(living).exists()) == (False, True)
    lines = [line for line in told if dead in line or mine in line]
    assert [line.rpartition(": ")[0] for line in lines] == [
        f"ended a process {earlier.pid} that run {mine} had left",
        f"ended a process {left.pid} that run {dead} had left",
    ]


def test_a_server_below_a_living_guard_is_no_orphan_even_if_its_run_is_dead(tmp_path: Path) -> None:
    run_id = run_named("guarded")
    owner = start_holder()
    claim(run_id, owner.pid)
    end_holder(owner)
    env = {RUN_MARK: run_id, **PATH}
    held = guarded(["sleep", "600"], env=env, log_path=tmp_path / "log")
    marks = host_marks()
    assert marks.guards[run_id] == (held.guard_pid,)
    assert marks.life_of(run_id) is ALIVE
    assert [p.guarded for p in marks.processes if p.run_id == run_id] == [True]
    assert not [p for p in orphans(marks, unclaimed=True) if p.run_id == run_id]
    assert GUARD_MARK.encode() in Path(f"/proc/{held.guard_pid}/environ").read_bytes()
    held.stop(60.0)


def test_a_server_below_a_guard_of_an_earlier_release_is_no_orphan(tmp_path: Path) -> None:
    """Such a guard has no mark of its own and its run no lease; its command is known."""
    run_id = run_named("before")
    command = ["env", f"{RUN_MARK}={run_id}", "sleep", "600"]
    held = guarded(command, env=PATH, log_path=tmp_path / "log")
    while not (found := [p for p in host_marks().processes if p.run_id == run_id]):
        assert held.poll(0.02) is None
    marks = host_marks()
    assert run_id not in marks.guards
    assert found[0].guarded
    assert marks.life_of(run_id) is UNKNOWN
    assert not [p for p in orphans(marks, unclaimed=True) if p.run_id == run_id]
    held.stop(60.0)


def test_a_lease_is_told_as_it_was_written_and_goes_with_its_holder() -> None:
    held = LeaseHolder("run-7", "slot-1")
    held.hold(seen=True, runtime=("sudo", "docker"))
    held.hold(seen=True)
    (found,) = leases_of("run-7")
    assert (found.owner, found.namespace, found.runtime) == (identify(os.getpid()), HERE, ("sudo", "docker"))
    assert found.seen_s is not None
    broken = scratch_dir("run-7") / "leases" / "slot-2.json"
    broken.write_text('{"owner": 1}', encoding="utf-8")
    assert len(list(leases_of("run-7"))) == 1
    held.release()
    assert list(leases_of("run-7")) == []


def test_cleaning_a_host_ends_a_dead_run_only_when_it_is_meant(
    server_of: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    run_id = run_named("cleaned")
    left, owner = server_of(run_id), start_holder()
    claim(run_id, owner.pid)
    seen = clean_host(only_run=run_id)
    assert ([r["life"] for r in seen["runs"]], seen["ended"], seen["remaining"]) == (["alive"], [], [])
    end_holder(owner)

    seen = clean_host(only_run=run_id, dry_run=True)
    assert seen["ended"] == []
    assert [line.split(":")[0] for line in seen["remaining"]] == [f"run {run_id} (dead)"] * 2
    assert left.poll() is None

    seen = clean_host(only_run=run_id)
    assert left.wait(60) == -15
    assert seen["ended"][-1] == f"removed {scratch_dir(run_id)}"
    assert seen["remaining"] == []
    assert clean_host(only_run=run_id)["runs"] == []


def test_what_no_run_claims_is_ended_by_a_clean_but_its_young_folder_is_kept(
    server_of: Callable[[str], subprocess.Popen[bytes]],
) -> None:
    run_id = run_named("unclaimed")
    left = server_of(run_id)
    scratch_dir(run_id).mkdir(parents=True)
    seen = clean_host(only_run=run_id)
    assert left.wait(60) == -15
    assert seen["remaining"] == [f"run {run_id} (unknown): {scratch_dir(run_id)}; kept for a day"]
    os.utime(scratch_dir(run_id), (1.0, 1.0))
    assert clean_host(only_run=run_id)["remaining"] == []
    assert not scratch_dir(run_id).exists()


def test_folders_of_embedded_clusters_are_dead_with_their_driver(tmp_path: Path) -> None:
    names = [f"specsweep-ray-{os.getpid()}-a", "specsweep-ray-4194305-b", "specsweep-ray-x-c"]
    for name in names:
        (tmp_path / name).mkdir()
    assert dead_ray_folders() == [tmp_path / names[1]]


def test_a_leftover_is_told_without_its_secrets(server_of: Callable[[str], subprocess.Popen[bytes]]) -> None:
    run_id = run_named("secret")
    left = start_holder(env={RUN_MARK: run_id}, words=("--api-key", "sk-left"))
    ((pid, command),) = end_leftovers(run_id)
    assert pid == left.pid
    assert command.endswith("--api-key ***")
    end_holder(left)
