"""A watched run as Prometheus reads it: gauges in base units, all of them with the label `run`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from orchestrator.watching.live_view import SlotState, SlotView
from orchestrator.watching.watch_state import WatchedRun

_STATUSES = ("starting", "running", "silent", "ending", "ended")
_SLOT_STATES: tuple[SlotState, ...] = ("waiting", "starting", "ready", "measuring", "lost", "unused")
_GIB = 2**30
# Values of the labels besides `run`, and the value of the gauge; one that nobody knows is left out.
_Values = Iterable[tuple[tuple[str, ...], float | None]]


def metrics_text(run: WatchedRun) -> bytes:
    """In Prometheus's text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_RunCollector(run))
    return bytes(generate_latest(registry))


class _RunCollector(Collector):
    def __init__(self, run: WatchedRun) -> None:
        self._run = run

    def collect(self) -> Iterable[Metric]:
        yield from self._of_run()
        yield from self._of_slots()

    def _gauge(self, name: str, text: str, values: _Values, *labels: str) -> Metric:
        gauge = GaugeMetricFamily(f"specsweep_{name}", text, labels=["run", *labels])
        for of, value in values:
            if value is not None:
                gauge.add_metric([self._run.run_id, *of], value)
        return gauge

    def _of_run(self) -> Iterator[Metric]:
        run, view, counts = self._run, self._run.view, self._run.view.counts
        states = [((status,), float(run.status == status)) for status in _STATUSES]
        yield self._gauge("run_state", "1 for the state that the run is in.", states, "state")
        yield self._gauge("run_silent_seconds", "Since the driver last told something.", [((), run.silent_s)])
        yield self._gauge("run_elapsed_seconds", "Since its slots began.", [((), view.elapsed_s)])
        left = view.left
        bounds = [(("low",), left.low_s), (("high",), left.high_s)] if left else []
        yield self._gauge("run_left_seconds", "By estimate.", bounds, "bound")
        outcomes = [((name,), float(getattr(counts, name))) for name in ("measured", "infeasible", "failed")]
        yield self._gauge("trials", "Trials that have ended, by outcome.", outcomes, "outcome")
        yield self._gauge("trials_planned", "Trials, as far as known.", [((), counts.all_trials)])
        yield self._gauge("points", "Points that were measured.", [((), counts.points)])
        yield self._gauge("points_planned", "Points, as far as known.", [((), counts.all_points)])
        best = [((b.objective, b.config, b.host_class), b.value) for b in view.best]
        yield self._gauge("best_value", "Of the config that leads.", best, "objective", "config", "host_class")

    def _of_slots(self) -> Iterator[Metric]:
        slots = self._run.view.slots
        count = Counter(slot.state for slot in slots)
        states = [((state,), float(count[state])) for state in _SLOT_STATES]
        yield self._gauge("slots", "Slots by state.", states, "state")
        yield self._slot_gauge("slot_phase_seconds", "In the present phase or point.", slots, lambda s: s.for_s)
        yield self._slot_gauge("slot_output_tokens_per_second", "Output tokens.", slots, lambda s: s.tok_s)
        yield self._slot_gauge("slot_running_requests", "At the server.", slots, lambda s: s.running)
        yield self._slot_gauge("slot_queued_requests", "Waiting at the server.", slots, lambda s: s.queued)
        yield self._slot_gauge("slot_kv_usage_ratio", "Share of the KV pool in use.", slots, lambda s: s.kv_usage)
        yield self._slot_gauge(
            "slot_gpu_free_bytes", "Free memory of its fullest GPU.", slots,
            lambda s: None if s.free_gib is None else s.free_gib * _GIB,
        )  # fmt: skip

    def _slot_gauge(
        self, name: str, text: str, slots: Iterable[SlotView], value: Callable[[SlotView], float | None]
    ) -> Metric:
        return self._gauge(name, text, [((slot.name,), value(slot)) for slot in slots], "slot")
