"""The ledger that stands in for GPUs: memory is held as long as its process lives, and no longer."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actors.gpus.gpu import GpuProcess, gpu_capability, gpu_states
from actors.gpus.gpu_ledger import LEDGER_VARIABLE, GpuLedger, GpuMemoryFull, LedgerGpu
from actors.processes.process_identity import ProcessIdentity, boot_id, identify
from tests.fakes.gpu_holder import end_holder, start_holder

UNSEEN = 4_194_305


@pytest.fixture
def ledger(tmp_path: Path) -> GpuLedger:
    return GpuLedger.create(tmp_path / "ledger", [96.0, 80.0], capability=(12, 0))


@pytest.fixture
def holder() -> Iterator[subprocess.Popen[bytes]]:
    process = start_holder()
    yield process
    end_holder(process)


def test_memory_is_held_until_its_process_ends_even_if_it_is_not_reaped(
    ledger: GpuLedger, holder: subprocess.Popen[bytes]
) -> None:
    ledger.hold(holder.pid, 0, 20.0)
    ledger.hold(holder.pid, 0, 61.5)
    ledger.hold(os.getpid(), 0, 4.0)
    held, other = ledger.gpus()
    assert (held.used_gib, held.free_gib, held.holders) == (65.5, 30.5, {holder.pid: 61.5, os.getpid(): 4.0})
    assert (other.used_gib, other.holders) == (0.0, {})

    holder.kill()
    os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # a zombie: the driver has its memory back

    assert ledger.gpus()[0].holders == {os.getpid(): 4.0}


def test_what_is_not_there_cannot_be_taken_and_it_is_told_who_has_it(
    ledger: GpuLedger, holder: subprocess.Popen[bytes]
) -> None:
    ledger.hold(holder.pid, 1, 70.0)
    with pytest.raises(GpuMemoryFull) as full:
        ledger.hold(os.getpid(), 1, 10.5)
    assert (full.value.gpu, full.value.wanted_gib, full.value.free_gib) == (1, 10.5, 10.0)
    assert full.value.others == ((holder.pid, 70.0),)
    ledger.hold(os.getpid(), 1, 10.0)
    ledger.hold(holder.pid, 1, 60.0)
    ledger.hold(os.getpid(), 1, 20.0)
    assert ledger.gpus()[1].free_gib == 0.0


def test_whoever_takes_memory_takes_it_alone(ledger: GpuLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    inside: list[int] = []
    most = 0
    look = GpuLedger.gpus

    def slow_look(self: GpuLedger) -> tuple[LedgerGpu, ...]:
        nonlocal most
        inside.append(1)
        most = max(most, len(inside))
        found = look(self)
        time.sleep(0.02)
        inside.pop()
        return found

    monkeypatch.setattr(GpuLedger, "gpus", slow_look)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda gib: ledger.hold(os.getpid(), 0, gib), [1.0, 2.0, 3.0, 4.0]))
    assert most == 1


def test_memory_that_never_comes_back_stays_used_by_nobody(ledger: GpuLedger) -> None:
    holder = start_holder()
    ledger.hold(holder.pid, 0, 30.0, release_lag_s=None)
    end_holder(holder)
    assert (ledger.gpus()[0].used_gib, ledger.gpus()[0].holders) == (30.0, {})


def test_memory_with_a_lag_comes_back_so_long_after_the_end_was_seen(
    ledger: GpuLedger, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("actors.gpus.gpu_ledger.time.monotonic", lambda: now[0])
    GpuLedger.create(ledger.folder, [96.0], release_lag_s=3.0)
    holder = start_holder()
    ledger.hold(holder.pid, 0, 30.0)
    end_holder(holder)
    seen = []
    for now[0] in (1000.0, 1002.9, 1003.0, 1003.1):
        seen.append(ledger.gpus()[0].used_gib)
    assert seen == [30.0, 30.0, 0.0, 0.0]


def test_a_number_that_was_given_to_another_process_or_belongs_to_an_earlier_boot_holds_nothing(
    ledger: GpuLedger,
) -> None:
    me = identify(os.getpid())
    assert me is not None
    assert me.lives
    for other in (
        ProcessIdentity(me.pid, me.started_ticks - 1, boot_id()),
        ProcessIdentity(me.pid, me.started_ticks, "an earlier boot"),
    ):
        assert not other.lives
        assert other.send(signal.SIGKILL)  # and it does not reach us
    with pytest.raises(ProcessLookupError):
        ledger.hold(UNSEEN, 0, 1.0)


def test_the_ledger_stands_in_for_nvml_where_the_environment_names_it(
    ledger: GpuLedger, holder: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(LEDGER_VARIABLE, str(ledger.folder))
    ledger.hold(holder.pid, 1, 50.0)
    first, second = gpu_states() or ()
    assert (first.index, first.uuid, first.total_gib, first.used_gib, first.processes) == (
        0, "GPU-ledger-0", 96.0, 0.0, (),
    )  # fmt: skip
    assert (second.free_gib, [(p.pid, p.gib) for p in second.processes]) == (30.0, [(holder.pid, 50.0)])
    assert gpu_capability(["0"]) == (12, 0)

    GpuLedger.create(ledger.folder, [96.0, 80.0], tells_gib=False)
    assert [type(p) for p in (gpu_states() or ())[1].processes] == [GpuProcess]
    assert (gpu_states() or ())[1].processes[0].gib == 0.0
    GpuLedger.create(ledger.folder, [96.0, 80.0], lists_pids=False)
    assert ((gpu_states() or ())[1].used_gib, (gpu_states() or ())[1].processes) == (50.0, ())

    monkeypatch.setenv(LEDGER_VARIABLE, str(ledger.folder / "nowhere"))
    assert gpu_states() is None


@pytest.fixture(scope="module")
def some_holders() -> Iterator[list[subprocess.Popen[bytes]]]:
    holders = [start_holder() for _ in range(3)]
    yield holders
    for holder in holders:
        end_holder(holder)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("hold"), st.integers(0, 2), st.integers(0, 1), st.integers(0, 60)),
        st.tuples(st.just("die"), st.integers(0, 2), st.just(0), st.just(0)),
    ),
    max_size=12,
)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps)
def test_used_memory_is_always_the_sum_over_living_holders_and_never_more_than_there_is(
    some_holders: list[subprocess.Popen[bytes]],
    monkeypatch: pytest.MonkeyPatch,
    script: list[tuple[str, int, int, int]],
) -> None:
    dead: set[int] = set()
    lives = ProcessIdentity.lives.fget  # type: ignore[attr-defined]
    monkeypatch.setattr(ProcessIdentity, "lives", property(lambda self: self.pid not in dead and lives(self)))
    with tempfile.TemporaryDirectory() as folder:
        ledger = GpuLedger.create(Path(folder), [100.0, 50.0])
        expected: dict[tuple[int, int], float] = {}
        for what, who, gpu, gib in script:
            pid = some_holders[who].pid
            if what == "die":
                dead.add(pid)
                expected = {key: value for key, value in expected.items() if key[0] != pid}
            elif pid not in dead:
                others = sum(value for (p, g), value in expected.items() if g == gpu and p != pid)
                if others + gib > (100.0, 50.0)[gpu]:
                    with pytest.raises(GpuMemoryFull):
                        ledger.hold(pid, gpu, float(gib))
                else:
                    ledger.hold(pid, gpu, float(gib))
                    expected[(pid, gpu)] = float(gib)
            for state in ledger.gpus():
                mine = {p: value for (p, g), value in expected.items() if g == state.index}
                assert (state.used_gib, state.holders) == (sum(mine.values()), mine)
    monkeypatch.undo()
