"""A run whose hosts come and go: nothing is lost, nothing is measured twice, every class measures everything."""

from __future__ import annotations

import io
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from orchestrator.hosts.host_event import HostChange, HostEvent, host_notes
from orchestrator.outcome import Label
from orchestrator.planning.planner import make_class_plan, make_plan
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.rankings.ranking_table import print_rankings
from orchestrator.rankings.run_ranking import only_objective, rank_run
from orchestrator.run_files import dataset
from orchestrator.run_files.journal import finished_work, read_events
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, StartEvent
from orchestrator.slots.slot_port import SlotFacts, SlotLost, SlotPort, SlotTaker, StopFacts, TrialBroken
from orchestrator.sweeps.sweep import Sweep, SweepResult
from orchestrator.sweeps.trial_queue import TrialQueue
from orchestrator.trial import Point
from tests.fakes.killable_sweep import Silent
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import rows_per_point

SCENARIO = small_scenario(
    sweep={"axes": {"speculative_num_steps": [0, 1, 2, 3]}}, workloads=[{"name": "chat", "concurrency": [1]}]
)


def slot_on(host: str, host_class: str = "", name: str = "") -> FakeSlot:
    slot = FakeSlot(name or f"{host}/0", batches=1)
    slot.facts = SlotFacts(slot.facts.name, host, ("0",), 1, host_class)
    return slot


class Later:
    """A SlotSource that gives slots in place of those that are lost, from a list."""

    def __init__(self, *slots: FakeSlot, patience_s: float = 5.0) -> None:
        self.patience_s = patience_s
        self.slots = list(slots)
        self.ends: list[tuple[str, str | None]] = []
        self.run: SlotTaker | None = None

    def begin(self, run: SlotTaker) -> None:
        self.run = run

    def ended(self, slot: SlotPort, refused: str | None) -> None:
        self.ends.append((slot.facts.name, refused))
        while self.slots and self.run is not None and self.run.needs_slots():
            if self.run.join(self.slots.pop(0)):
                return

    def may_give(self) -> bool:
        return bool(self.slots)

    def is_making(self) -> bool:
        return False


def sweep(
    run: RunDirectory, slots: list[FakeSlot], source: Later | None = None, classes: tuple[str, ...] = ()
) -> SweepResult:
    run.keep_classes(classes)
    plan = run.plan(SCENARIO, [slot.facts.host_class for slot in slots], finished_work(run.state))
    return Sweep(plan, list(slots), run, lambda t: launch_spec(SCENARIO, "run", t), Silent(), source=source).run()


def test_a_slot_that_joins_takes_what_a_lost_one_leaves(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    first, second = slot_on("a"), slot_on("a")
    first.lose_at = run.plan(SCENARIO, [""]).slots[0][1].trial_id
    source = Later(second)
    result = sweep(run, [first], source)
    run.close(complete=result.complete)

    assert result.complete
    assert source.ends == [("a/0", None)]
    assert (len(first.launched), len(second.launched)) == (2, 3)
    assert list(rows_per_point(run.paths).values()) == [5] * 4


def test_a_slot_that_comes_while_none_is_left_goes_on_with_the_run(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    first, second = slot_on("a"), slot_on("b")
    first.lose_at = run.plan(SCENARIO, [""]).slots[0][1].trial_id
    second._pause_s = 0.05  # so that the main thread has nothing to store in between
    source = Later()
    asked: list[bool] = []

    def may_give() -> bool:
        """Asked only while no slot is left; the second one comes when it is asked for the second time."""
        asked.append(True)
        if len(asked) == 2:
            assert source.run is not None
            assert source.run.join(second)
        return True

    source.may_give = may_give  # type: ignore[method-assign]
    result = sweep(run, [first], source)
    run.close(complete=result.complete)

    assert result.complete
    assert (len(first.launched), len(second.launched)) == (2, 3)


def test_without_a_slot_the_run_waits_says_so_and_ends_incomplete_when_none_comes(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    slot = slot_on("a")
    slot.lose_at = run.plan(SCENARIO, [""]).slots[0][0].trial_id
    source = Later(patience_s=0.0)
    source.may_give = lambda: True  # type: ignore[method-assign]
    result = sweep(run, [slot], source)
    run.close(complete=result.complete)

    assert not result.complete
    (waited,) = [e for e in read_events(run.paths.journal) if e["event"] == "hosts_awaited"]
    assert waited["reason"] == "at most 0 s, with 4 trials to do"


def test_what_becomes_of_hosts_is_kept_in_the_journal(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    event = HostEvent(HostChange.LOST, "gpu-7", "2026-01-01T00:00:00Z", "power loss")
    source = Later()
    source.begin = lambda run: run.tell(event)  # type: ignore[method-assign]
    sweep(run, [slot_on("a")], source)
    run.close(complete=True)

    (told,) = [e for e in read_events(run.paths.journal) if e["event"] == "host_lost"]
    assert told == {
        "event": "host_lost", "host": "gpu-7", "at": "2026-01-01T00:00:00Z", "reason": "power loss", "slots": [],
    }  # fmt: skip


def test_every_class_measures_every_point_for_itself(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    big, small = slot_on("a", "8x B200"), slot_on("b", "4x L4")
    result = sweep(run, [big, small], classes=("4x L4", "8x B200"))
    run.close(complete=result.complete)

    assert result.complete
    assert (len(big.launched), len(small.launched)) == (4, 4)
    assert not set(big.launched) & set(small.launched)
    assert not set(big.measured) & set(small.measured)
    loads = dataset.read_rows(run.paths, "loads")
    assert Counter(load["host_class"] for load in loads) == {"8x B200": 4, "4x L4": 4}


def test_a_class_without_a_slot_leaves_the_run_incomplete_and_a_resumption_does_only_that_class(tmp_path: Path) -> None:
    classes = ("4x L4", "8x B200")
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    result = sweep(run, [slot_on("a", "8x B200")], classes=classes)
    run.close(complete=result.complete)
    assert not result.complete

    again = RunDirectory.reopen(tmp_path / "run", SCENARIO)
    assert again.host_classes == classes
    both = [slot_on("a", "8x B200"), slot_on("b", "4x L4")]
    result = sweep(again, both, classes=again.host_classes)
    again.close(complete=result.complete)

    assert result.complete
    assert [len(slot.launched) for slot in both] == [0, 4]


def test_classes_are_ranked_apart_and_never_averaged(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    big, small = slot_on("a", "8x B200"), slot_on("b", "4x L4")
    small._script = lambda name, spec: Label.KV_BUDGET if ("speculative_num_steps", 3) in spec.settings else None
    result = sweep(run, [big, small], classes=("4x L4", "8x B200"))
    run.close(complete=result.complete)
    ranked = rank_run(run.paths.root)

    assert [(r.objective, r.host_class, len(r.rows)) for r in ranked.rankings] == [
        ("fast", "4x L4", 3), ("fast", "8x B200", 4),
    ]  # fmt: skip
    assert {row.trials for ranking in ranked.rankings for row in ranking.rows} == {1}
    assert [(c.host_class, c.label) for c in ranked.infeasible] == [("4x L4", "kv_budget")]
    told = ranked.as_json()
    assert {name: t["host_class"] for name, t in told["objectives"].items()} == {
        "fast on 4x L4": "4x L4", "fast on 8x B200": "8x B200",
    }  # fmt: skip
    assert [entry["host_class"] for entry in told["infeasible"]] == ["4x L4"]
    said = Console(width=200, record=True, file=io.StringIO())
    print_rankings(only_objective(ranked, "fast"), said)
    text = said.export_text()
    assert "fast: highest output_throughput_tok_s at C=1 (chat) on 4x L4" in text
    assert "fast: highest output_throughput_tok_s at C=1 (chat) on 8x B200" in text
    assert text.count("engine=emulator") == 1


def test_what_a_ranking_says_of_lost_hosts() -> None:
    def event(change: HostChange, reason: str = "") -> dict[str, Any]:
        return {"event": change.value, "host": "gpu-7", "reason": reason}

    once, thrown_out = event(HostChange.LOST), event(HostChange.QUARANTINED, "lost 2 times")
    assert host_notes([once]) == ["host gpu-7 was lost once during the run"]
    assert host_notes([once, once, thrown_out]) == [
        "host gpu-7 was lost 2 times during the run", "host gpu-7 was quarantined: lost 2 times",
    ]  # fmt: skip
    assert host_notes([event(HostChange.JOINED)]) == []


def test_a_run_on_one_class_has_the_ids_that_plan_shows(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", SCENARIO)
    planned = run.plan(SCENARIO, [""])
    run.keep_classes(("8x B200",))

    assert run.plan(SCENARIO, ["8x B200"]) == planned


class FatedSlot(FakeSlot):
    """Something happens to it at its `nth` trial, counted from 0."""

    def __init__(self, name: str, fate: str, nth: int) -> None:
        super().__init__(name, batches=1)
        self.facts = SlotFacts(name, name.partition("/")[0], ("0",))
        self.fate, self._nth = fate, nth

    def _strikes(self, fate: str) -> bool:
        return self.fate == fate and len(self.launched) == self._nth + 1

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        events = super().launch(spec)
        yield next(events)
        if self._strikes("lost at start"):
            raise SlotLost("power loss")
        yield from events

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        items = super().run_point(url, point, attempt, processes)
        yield next(items)
        if self._strikes("load lost"):
            self.fate = "fine"
            raise TrialBroken("the load actor was lost")
        yield from items

    def died(self, load: LoadSeen) -> ServerDied | None:
        if self._strikes("lost after its load"):
            raise SlotLost("power loss")
        return super().died(load)

    def stop(self) -> StopFacts:
        self.refuses = "GPU memory did not come back" if self._strikes("refuses") else None
        return super().stop()


FATES = st.sampled_from(["fine", "lost at start", "lost after its load", "refuses", "load lost"])


@given(fates=st.lists(st.tuples(FATES, st.integers(0, 2)), min_size=1, max_size=5), at_once=st.integers(1, 3))
@settings(max_examples=12, deadline=None)
def test_whatever_slots_do_no_trial_is_lost_and_none_is_measured_twice(
    fates: list[tuple[str, int]], at_once: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = RunDirectory.create(Path(folder) / "run", SCENARIO)
        slots: list[FakeSlot] = [FatedSlot(f"host{i % 2}/{i}", *fate) for i, fate in enumerate(fates)]
        result = sweep(run, slots[:at_once], Later(*slots[at_once:]))
        run.close(complete=result.complete)

        done = Counter(e["point_id"] for e in read_events(run.paths.journal) if e["event"] == "point_done")
        assert set(done.values()) <= {1}
        assert rows_per_point(run.paths) == dict.fromkeys(done, 5)
        left = run.plan(SCENARIO, [""], frozenset(done)).trials
        failed = {trial_id for trial_id, outcome in result.outcomes.items() if outcome.kind == "failed"}
        if result.complete:
            assert {trial.trial_id for trial in left} <= failed
        else:
            assert left
        for trial_id in failed:  # tried again, unless no slot was left for that
            starts = [e for e in read_events(run.paths.journal) if e.get("trial_id") == trial_id]
            assert not result.complete or len([e for e in starts if e["event"] == "trial_started"]) >= 2


@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_queue_gives_every_trial_once_and_only_to_slots_of_its_class(data: st.DataObject) -> None:
    """Slots join, take and leave in any order; nobody blocks, since only those are asked that there is work for."""
    classes = ("4x L4", "8x B200")
    owners = data.draw(st.lists(st.sampled_from(classes), max_size=3))
    plan = make_class_plan(SCENARIO, owners, classes, frozenset(), lambda _: {})
    queue = TrialQueue(plan, [f"host{i}" for i in range(len(owners))], owners)
    of, taken = list(owners), Counter[str]()
    for _ in range(60):
        if not of or data.draw(st.integers(0, 4)) == 0:
            of.append(data.draw(st.sampled_from(classes)))
            assert queue.join(f"host{len(of)}", of[-1]) == len(of) - 1
        slot = data.draw(st.integers(0, len(of) - 1))
        if not queue.needs(of[slot]):
            assert queue.take(slot) is None
            continue
        trial = queue.take(slot)
        assert trial is not None
        assert trial.host_class == of[slot]
        taken[trial.trial_id] += 1
        queue.done(slot)

    assert set(taken.values()) <= {1}
    assert sum(taken.values()) + queue.left == len(plan.trials) == 8


def test_a_slot_without_trials_of_its_own_takes_from_the_one_with_most_left() -> None:
    axes = {"speculative_num_steps": list(range(9)), "max_running_requests": [8, 16, 24, 32, 40]}
    plan = make_plan(small_scenario(sweep={"axes": axes}), 3)
    queue = TrialQueue(plan, ["a", "b", "c"])
    fourth = queue.join("d")
    left = {i: list(trials) for i, trials in enumerate(plan.slots)}
    for _ in range(13):  # so that eight for each slot are left, and it is not yet the end
        most = max(left, key=lambda i: (sum(t.estimated_s for t in left[i]), -i))
        trial = queue.take(fourth)
        assert trial is left[most].pop()
        queue.done(fourth)
