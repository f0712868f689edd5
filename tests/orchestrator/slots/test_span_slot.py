"""A server over several hosts as one slot, without a server: ranks that say what a test tells them to."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard

from orchestrator.diagnosing.log_diagnosis import diagnose_log
from orchestrator.outcome import Diagnosis, Label, Phase, PhaseFact
from orchestrator.server_start import (
    LaunchSpec,
    LoadSeen,
    PhaseBudget,
    ServerDied,
    ServerReady,
    StartEvent,
    StartProgress,
)
from orchestrator.slots.slot_port import SlotFacts, SlotLost, StopFacts, TrialBroken
from orchestrator.slots.span_slot import SpanSlot
from orchestrator.telemetry import Sample
from orchestrator.trial import ClientReport
from tests.orchestrator.literal_records import CLIENT

SPEC = LaunchSpec("run", "t", "emulator", (), "m", (), (), network_key="key")


def died(label: Label, evidence: str = "a line", phase: Phase = Phase.WEIGHTS) -> ServerDied:
    return ServerDied("t", Diagnosis(label, phase, evidence, 3, -9), (PhaseFact(phase, 0.0, 1.0, 4.0),), 1.0)


def ready(rank: int, free_gib: float = 20.0) -> ServerReady:
    phases = (PhaseFact(Phase.KV_POOL, 1.0, 2.0 + rank, free_gib), PhaseFact(Phase.READY, 3.0))
    return ServerReady("t", f"http://10.0.0.{rank}:1", 1, 3.0 + rank, phases, {"version": "0.5.23"} if not rank else {})


def at(phase: Phase, done: int | None = None, free_gib: float | None = None) -> StartProgress:
    return StartProgress("t", phase, 0.5, done, None if done is None else 10, free_gib)


class Rank:
    """Plays events; after the last one that is no end it waits until it is interrupted, and was stopped then."""

    def __init__(self, rank: int, *events: StartEvent | Exception, after: threading.Event | None = None) -> None:
        self.facts = SlotFacts(f"gpu-{rank}/0", f"gpu-{rank}", ("0", "1"))
        self._events = events
        self._after = after
        self._interrupted = threading.Event()
        self.ended = threading.Event()
        self.spec: LaunchSpec | None = None
        self.deaths: list[ServerDied | Exception] = []
        self.stops = 0
        self.stop_raises: Exception | None = None
        self.seen: list[LoadSeen] = []
        self.faults: list[SlotLost | TrialBroken] = []
        self.watched = 0
        self.report: ClientReport | None = None
        self.powers: dict[tuple[float, float], float] = {}
        self.held_back: dict[tuple[float, float], tuple[str, ...]] = {}
        self.log = zstandard.compress(f"log of {rank}\n".encode())

    def gpu_power_w(self, began_unix_s: float, ended_unix_s: float) -> float | None:
        return self.powers.get((began_unix_s, ended_unix_s))

    def rendezvous(self) -> str:
        return "10.0.0.1:20312"

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        self.spec = spec
        if self._after is not None:
            assert self._after.wait(60)
        for event in self._events:
            if isinstance(event, Exception):
                self.ended.set()
                raise event
            if not isinstance(event, StartProgress):
                self.ended.set()
            yield event
        if not self.ended.is_set():
            assert self._interrupted.wait(60)
            yield died(Label.STOP_REQUESTED)

    def run_point(self, url: str, point: Any, attempt: int, processes: int = 1) -> Iterator[Any]:
        yield "batch"
        if self.report is None:
            assert self._interrupted.wait(60)
        yield self.report or "report"

    def died(self, load: LoadSeen) -> ServerDied | None:
        self.seen.append(load)
        death = self.deaths.pop(0) if self.deaths else None
        if isinstance(death, Exception):
            raise death
        return death

    def watch(self) -> None:
        self.watched += 1

    def fault(self) -> SlotLost | TrialBroken | None:
        assert self.watched
        return self.faults.pop(0) if self.faults else None

    def interrupt(self) -> None:
        self._interrupted.set()

    def stop(self) -> StopFacts:
        self.stops += 1
        if self.stop_raises is not None:
            raise self.stop_raises
        return StopFacts(0, 1.0 + self.stops, True, ("slow",), ((0, 9.0, 0.5),), None)

    def throttled(self, began_unix_s: float, ended_unix_s: float) -> tuple[str, ...]:
        return self.held_back.get((began_unix_s, ended_unix_s), ())

    def telemetry(self) -> tuple[Sample, ...]:
        return ()

    def server_log(self) -> bytes:
        return self.log


def span(*ranks: Rank, peers_s: float = 0.05) -> SpanSlot:
    return SpanSlot(SlotFacts("gpu-0+gpu-1/0", "gpu-0+gpu-1", ("0", "1", "0", "1")), ranks, peers_s)


def test_every_host_is_told_which_rank_it_has_and_where_they_meet_and_only_rank_0_gets_the_key() -> None:
    ranks = [Rank(0, ready(0)), Rank(1, ready(1))]
    events = list(span(*ranks).launch(SPEC))

    specs = [rank.spec for rank in ranks if rank.spec is not None]
    assert [(s.nnodes, s.node_rank, s.dist_init_addr, s.network_key) for s in specs] == [
        (2, 0, "10.0.0.1:20312", "key"),
        (2, 1, "10.0.0.1:20312", None),
    ]
    assert len(events) == 1


def test_the_server_is_ready_when_all_ranks_are_with_rank_0s_account_and_the_fullest_gpu() -> None:
    (event,) = span(Rank(0, ready(0, 20.0)), Rank(1, ready(1, 18.5))).launch(SPEC)

    assert isinstance(event, ServerReady)
    assert (event.url, event.start_s, event.resolved) == ("http://10.0.0.0:1", 4.0, {"version": "0.5.23"})
    assert event.phases[0] == PhaseFact(Phase.KV_POOL, 1.0, 3.0, 18.5)


def test_progress_is_that_of_the_slowest_rank() -> None:
    first = Rank(0, at(Phase.WEIGHTS, 2), at(Phase.GRAPH_TARGET, 4, 7.0))
    second = Rank(1, at(Phase.WEIGHTS, 1), at(Phase.WEIGHTS, 9, 30.0), died(Label.OOM_WEIGHTS))
    events = list(span(first, second).launch(SPEC))

    told = [(e.phase, e.done) for e in events if isinstance(e, StartProgress)]
    assert told[-1] == (Phase.WEIGHTS, 9)
    assert {phase for phase, _ in told} == {Phase.WEIGHTS}


@pytest.mark.parametrize("echo", [Label.PEER_RANK_FAILED, Label.NCCL_INIT])
def test_a_start_dies_of_the_first_cause_whichever_rank_told_its_own_first(echo: Label) -> None:
    echoing = Rank(0, died(echo, "Connection reset by peer"))
    cause = Rank(1, at(Phase.WEIGHTS), died(Label.OOM_WEIGHTS, "CUDA out of memory"), after=echoing.ended)
    *_, end = span(echoing, cause, peers_s=5.0).launch(SPEC)

    assert isinstance(end, ServerDied)
    assert (end.diagnosis.label, end.diagnosis.evidence) == (Label.OOM_WEIGHTS, "rank 1 on gpu-1: CUDA out of memory")
    assert end.diagnosis.line_number == 3


def test_a_rank_that_waits_for_a_dead_one_is_ended_and_is_not_the_cause() -> None:
    waiting = Rank(0, at(Phase.DIST_INIT))
    *_, end = span(waiting, Rank(1, died(Label.MODEL_MISSING))).launch(SPEC)

    assert isinstance(end, ServerDied)
    assert end.diagnosis.label is Label.MODEL_MISSING
    assert waiting._interrupted.is_set()


def test_a_start_that_we_interrupt_is_one_that_was_stopped() -> None:
    ranks = [Rank(0, at(Phase.WEIGHTS)), Rank(1, at(Phase.WEIGHTS))]
    slot = span(*ranks)
    events = slot.launch(SPEC)
    assert isinstance(next(events), StartProgress)
    slot.interrupt()
    *_, end = events

    assert isinstance(end, ServerDied)
    assert end.diagnosis.label is Label.STOP_REQUESTED


def test_a_host_that_is_lost_during_the_start_loses_the_slot_after_the_others_were_ended() -> None:
    waiting = Rank(0, at(Phase.WEIGHTS))
    with pytest.raises(SlotLost, match="gpu-1: gone"):
        list(span(waiting, Rank(1, SlotLost("gpu-1: gone"))).launch(SPEC))
    assert waiting._interrupted.is_set()


def test_a_server_that_serves_dies_with_any_of_its_ranks_and_of_the_first_cause() -> None:
    ranks = [Rank(0, ready(0)), Rank(1, ready(1))]
    slot = span(*ranks, peers_s=5.0)
    list(slot.launch(SPEC))
    load = LoadSeen(tokens_came=True)
    assert slot.died(load) is None

    ranks[1].deaths = [died(Label.PEER_RANK_FAILED, phase=Phase.SERVING)]
    ranks[0].deaths = [None, died(Label.CUDA_IMA, phase=Phase.SERVING)]  # type: ignore[list-item]
    end = slot.died(load)
    assert end is not None
    assert (end.diagnosis.label, end.diagnosis.evidence) == (Label.CUDA_IMA, "rank 0 on gpu-0: a line")
    assert ranks[0].seen[:2] == [load, load]
    assert ranks[1].seen == [LoadSeen(), LoadSeen()]


def test_the_load_ends_when_a_rank_without_load_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orchestrator.slots.span_slot.WATCH_S", 0.01)
    ranks = [Rank(0), Rank(1)]
    ranks[1].deaths = [died(Label.HOST_OOM)]
    assert list(span(*ranks).run_point("http://x", None, 1)) == ["batch", "report"]


@pytest.mark.parametrize("fault", [TrialBroken("gpu-1/0 was cut off for a while"), SlotLost("gpu-1/0: gone")])
def test_a_point_during_which_the_host_of_any_rank_is_cut_off_or_lost_ends_and_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, fault: SlotLost | TrialBroken
) -> None:
    monkeypatch.setattr("orchestrator.slots.span_slot.WATCH_S", 0.01)
    ranks = [Rank(0), Rank(1)]
    ranks[1].faults = [fault]
    items = span(*ranks).run_point("http://x", None, 1)
    assert [next(items), next(items)] == ["batch", "report"]
    with pytest.raises(type(fault), match=str(fault)):
        next(items)


def test_a_cut_that_comes_with_the_last_answer_is_seen_as_well() -> None:
    ranks = [Rank(0), Rank(1)]
    slot = span(*ranks)
    items = slot.run_point("http://x", None, 1)
    assert next(items) == "batch"
    ranks[1].faults = [TrialBroken("gpu-1/0 was cut off for a while")]
    ranks[0].interrupt()
    assert next(items) == "report"
    with pytest.raises(TrialBroken, match="gpu-1/0 was cut off"):
        next(items)


def test_all_ranks_are_stopped_also_if_one_is_lost() -> None:
    ranks = [Rank(0), Rank(1), Rank(2)]
    slot = span(*ranks)
    stopped = slot.stop()
    assert (stopped.exit_code, stopped.seconds, stopped.gpu_free, stopped.refused) == (0, 2.0, True, None)
    assert stopped.notes[1] == "rank 1 on gpu-1: slow"

    ranks[0].stop_raises = SlotLost("gpu-0: gone")
    with pytest.raises(SlotLost, match="gpu-0: gone"):
        slot.stop()
    assert [rank.stops for rank in ranks] == [2, 2, 2]


def test_the_log_holds_all_ranks_and_is_diagnosed_as_such(tmp_path: Path) -> None:
    ranks = [Rank(0), Rank(1)]
    begun = "[2026-11-29 17:36:0{0} TP{0}] Load weight begin. avail mem=90 GB\n{1}"
    reset = "RuntimeError: [pair.cc:537] Read error [10.0.0.2]:5: Connection reset by peer."
    memory = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    for rank, last in zip(ranks, (reset, memory), strict=True):
        rank.log = zstandard.compress(begun.format(ranks.index(rank), last).encode())
    file = tmp_path / "server.log.zst"
    file.write_bytes(span(*ranks).server_log())

    text = zstandard.ZstdDecompressor().stream_reader(file.read_bytes()).read().decode()
    assert [line for line in text.splitlines() if line.startswith("====")] == [
        "==== rank 0 of 2 on gpu-0 ====",
        "==== rank 1 of 2 on gpu-1 ====",
    ]
    verdict = diagnose_log(file, exit_code=-9)
    assert (verdict.file, verdict.diagnosis.label) == (f"{file} (rank 1 of 2 on gpu-1)", Label.OOM_WEIGHTS)
    assert verdict.diagnosis.line_number == 6


def test_a_rank_that_dies_after_it_was_up_and_before_the_others_are_ends_the_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("orchestrator.slots.span_slot.WATCH_S", 0.01)
    waiting, up = Rank(0, at(Phase.WARMUP)), Rank(1, ready(1))
    up.deaths = [died(Label.CUDA_IMA, phase=Phase.READY)]
    *_, end = span(waiting, up).launch(SPEC)

    assert isinstance(end, ServerDied)
    assert (end.diagnosis.label, waiting._interrupted.is_set()) == (Label.CUDA_IMA, True)


def test_what_a_rank_that_was_up_died_of_counts_also_if_the_others_died_first() -> None:
    echoing, up = Rank(0, died(Label.PEER_RANK_FAILED)), Rank(1, ready(1))
    echoing._after = up.ended
    up.deaths = [died(Label.RUNTIME_OOM, phase=Phase.READY)]
    *_, end = span(echoing, up).launch(SPEC)

    assert isinstance(end, ServerDied)
    assert end.diagnosis.label is Label.RUNTIME_OOM


def test_a_rank_that_waits_for_a_slower_one_may_be_silent_for_as_long_as_torch_lets_it() -> None:
    budgets = tuple(
        PhaseBudget(phase, 100.0, 60.0, "seen", "seen") for phase in (Phase.LAUNCH, Phase.KV_POOL, Phase.SERVING)
    )
    ranks = [Rank(0, ready(0)), Rank(1, ready(1))]
    list(span(*ranks).launch(replace(SPEC, phase_budgets=budgets, phase_timeout_s=90.0)))
    for rank in ranks:
        assert rank.spec is not None
        assert [b.silent_s for b in rank.spec.phase_budgets] == [60.0, 660.0, 60.0]
        assert rank.spec.phase_timeout_s == 660.0

    list(span(*ranks).launch(replace(SPEC, settings=(("dist_timeout", 1200),), phase_budgets=budgets)))
    assert ranks[0].spec is not None
    assert ranks[0].spec.phase_budgets[1].silent_s == 1260.0


@pytest.mark.parametrize(("second", "told"), [(900.0, 2000.0), (None, None)])
def test_the_power_of_a_server_is_that_of_the_gpus_on_all_its_hosts(second: float | None, told: float | None) -> None:
    ranks = [Rank(0, ready(0)), Rank(1, ready(1))]
    ranks[0].report = replace(CLIENT, began_unix_s=50.0, duration_s=10.0, gpu_power_w=1100.0)
    ranks[1].powers = {} if second is None else {(50.0, 60.0): second}
    slot = span(*ranks)
    list(slot.launch(SPEC))

    *_, report = slot.run_point("http://10.0.0.0:1", None, 1)

    assert report.gpu_power_w == told


def test_a_gpu_that_was_held_back_on_another_host_is_a_note_with_its_rank() -> None:
    ranks = [Rank(0, ready(0)), Rank(1, ready(1))]
    ranks[0].report = replace(CLIENT, began_unix_s=50.0, duration_s=10.0, gpu_power_w=1100.0, notes=("own",))
    ranks[1].powers, ranks[1].held_back = {(50.0, 60.0): 900.0}, {(50.0, 60.0): ("gpu_throttled: GPU 3",)}
    slot = span(*ranks)
    list(slot.launch(SPEC))

    *_, report = slot.run_point("http://10.0.0.0:1", None, 1)

    assert report.notes == ("own", "rank 1: gpu_throttled: GPU 3")
