"""Slots without hosts, for simulations: a start and a point take as long as they are said to, on a virtual clock."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import zstandard

from benchmarks.virtual_clock import VirtualClock
from orchestrator.outcome import Phase, PhaseFact
from orchestrator.planning.trial_estimate import start_estimate_s
from orchestrator.scenarios.scenario import Scenario
from orchestrator.schemas import request_schema
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, ServerReady, StartEvent, StartProgress
from orchestrator.slots.slot_port import SlotFacts, SlotLost, StopFacts
from orchestrator.telemetry import Sample
from orchestrator.trial import ClientReport, Point, Trial

ACCOUNT = Path(__file__).parents[1] / "tests/data/captures/0.5.23-spec-standalone3/server_info.txt"
STOP_S = 4.0
LOG = zstandard.compress(b"".join(b"[2026-01-01 00:00:00] a line of a server's log %d\n" % i for i in range(2000)))
# Starts differ from what the planner guesses, by config and a little by start: log-normal, these sigmas.
CONFIG_SPREAD, START_SPREAD, POINT_SPREAD = 0.35, 0.05, 0.03


@dataclass(frozen=True, slots=True)
class TrialTimes:
    """What a trial really takes. Seconds; `points_s` by point id."""

    start_s: float
    points_s: Mapping[str, float]

    @property
    def total_s(self) -> float:
        """From the launch until the slot is free again."""
        return self.start_s + sum(self.points_s.values()) + STOP_S


def true_times(scenario: Scenario, trials: Sequence[Trial], seed: int) -> dict[str, TrialTimes]:
    """By trial id: about what the planner estimates, but never the same."""
    times = {}
    for trial in trials:
        of_config = random.Random(f"{seed}-{trial.config.config_id}")
        of_trial = random.Random(f"{seed}-{trial.trial_id}")
        start_s = start_estimate_s(scenario, trial.config) * math.exp(of_config.gauss(0, CONFIG_SPREAD))
        start_s *= math.exp(of_trial.gauss(0, START_SPREAD))
        window_s = scenario.measure.warmup_s + (scenario.measure.duration_s or 30.0)
        points_s = {p.point_id: window_s * math.exp(abs(of_trial.gauss(0, POINT_SPREAD))) for p in trial.points}
        times[trial.trial_id] = TrialTimes(start_s, points_s)
    return times


@dataclass(frozen=True, slots=True)
class Traffic:
    """What a point's load brings: so many batches of so many rows."""

    batches: int = 2
    rows: int = 50


class SimulatedSlot:
    """A SlotPort. From `lost_at_s` on its host is gone, which whoever waits for it learns `detect_s` later."""

    def __init__(
        self,
        facts: SlotFacts,
        clock: VirtualClock,
        times: Mapping[str, TrialTimes],
        traffic: Traffic,
        lost_at_s: float = math.inf,
        detect_s: float = 7.0,
    ) -> None:
        self.facts = facts
        self._clock = clock
        self._times = times
        self._traffic = traffic
        self._lost_at_s = lost_at_s
        self._detect_s = detect_s
        self.busy_s = 0.0
        self.launched: list[str] = []

    def _take(self, seconds: float) -> None:
        """Let virtual time pass; SlotLost if the host goes meanwhile, or is gone."""
        ends_s = self._clock.now_s + seconds
        if ends_s <= self._lost_at_s:
            self._clock.sleep_until(ends_s)
            self.busy_s += seconds
            return
        self._clock.sleep_until(max(self._lost_at_s + self._detect_s, self._clock.now_s))
        raise SlotLost(f"{self.facts.name}: the host is gone")

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        self.launched.append(spec.trial_id)
        self._settings = dict(spec.settings)
        start_s = self._times[spec.trial_id].start_s
        yield StartProgress(spec.trial_id, Phase.WEIGHTS, 0.0, free_gib=90.0)
        self._take(start_s * 0.6)
        yield StartProgress(spec.trial_id, Phase.GRAPH_TARGET, start_s * 0.6, 1, 8, free_gib=20.0)
        self._take(start_s * 0.4)
        marks = ((Phase.LAUNCH, 0.0), (Phase.WEIGHTS, 0.1), (Phase.KV_POOL, 0.5), (Phase.GRAPH_TARGET, 0.6))
        phases = tuple(PhaseFact(phase, start_s * share, None, 50.0) for phase, share in marks)
        phases = (*phases, PhaseFact(Phase.READY, start_s * 0.99, start_s, 19.0))
        yield ServerReady(spec.trial_id, "http://127.0.0.1:1", 1, start_s, phases, account_of(self._settings))

    def run_point(self, url: str, point: Point, attempt: int, processes: int = 1) -> Iterator[Any]:
        del url, processes
        seconds = self._times[point.trial_id].points_s[point.point_id]
        speculates = self._settings.get("speculative_num_steps", 0) != 0
        for i in range(self._traffic.batches):
            self._take(seconds / self._traffic.batches)
            yield point_batch(point, attempt, i * self._traffic.rows, self._traffic.rows, speculates=speculates)
        yield ClientReport(
            point.point_id, seconds, 1.0, 0.5, 0.1, 4, self._traffic.batches * self._traffic.rows, "duration"
        )

    def died(self, load: LoadSeen) -> ServerDied | None:
        del load
        return None

    def interrupt(self) -> None:
        """Nothing runs for long in real time."""

    def stop(self) -> StopFacts:
        self._take(STOP_S)
        return StopFacts(0, STOP_S, True)

    def telemetry(self) -> tuple[Sample, ...]:
        return ()

    def server_log(self) -> bytes:
        return LOG


@cache
def _account() -> dict[str, Any]:
    text = ACCOUNT.read_text(encoding="utf-8")
    told: dict[str, Any] = json.loads(text[text.index("{") :])
    return told


def account_of(settings: Mapping[str, Any]) -> dict[str, Any]:
    """What a server of these settings tells of itself: the account of a real one (about 36 kB), with these in it."""
    told: dict[str, Any] = json.loads(json.dumps(_account()))  # as it comes off the wire: nothing is shared
    return told | {name: value for name, value in settings.items() if name in told}


def obeying_account(settings: Mapping[str, Any]) -> dict[str, Any]:
    """As `account_of`, with the limit that was asked for, or servers of different limits would count as the same."""
    account = account_of(settings)
    for state in account["internal_states"]:
        state["effective_max_running_requests_per_dp"] = settings["max_running_requests"]
    return account


def point_batch(point: Point, attempt: int, first: int, rows: int, *, speculates: bool = True, chunks: int = 8) -> Any:
    """A batch of plausible requests, numbered from `first`; only what says whose they are is made anew."""
    columns = dict(_columns(first, rows, speculates, chunks))
    identity = {
        "run_id": "run", "trial_id": point.trial_id, "point_id": point.point_id, "config_id": point.config_id,
        "engine": "emulator", "attempt": attempt,
    }  # fmt: skip
    schema = request_schema()
    for name, value in identity.items():
        columns[name] = pa.array([value] * rows, schema.field(name).type)
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)


@cache
def _columns(first: int, rows: int, speculates: bool, chunks: int) -> dict[str, Any]:
    """Requests of `chunks` chunks of four tokens, 100 ms apart, 20 ms to the first token."""
    index = np.arange(first, first + rows)
    start = index * 100_000_000
    gaps = np.arange(1, chunks + 1) * 20_000_000
    offsets = pa.array(np.arange(0, rows * chunks + 1, chunks), pa.int32())
    filled: dict[str, Any] = {
        "request_index": index, "scheduled_ns": start, "sent_ns": start, "first_token_ns": start + gaps[0],
        "end_ns": start + gaps[-1], "in_flight": np.ones(rows), "requested_output_tokens": np.full(rows, chunks * 4),
        "prompt_tokens": np.full(rows, 256), "cached_tokens": np.zeros(rows), "http_status": np.full(rows, 200),
        "output_tokens": np.full(rows, chunks * 4), "warmup": np.zeros(rows, dtype=bool),
    }  # fmt: skip
    if speculates:
        filled |= {"verify_ct": np.full(rows, chunks), "correct_drafts": np.full(rows, chunks * 3)}
        filled |= {"proposed_drafts": np.full(rows, chunks * 4)}
    texts = {"status": ["ok"] * rows, "finish_reason": ["length"] * rows, "prompt_hash": [f"{i:016x}" for i in index]}
    columns = {}
    for field in request_schema():
        if field.name == "chunk_ns":
            values = pa.array((start[:, None] + gaps[None, :]).ravel(), pa.int64())
            columns[field.name] = pa.ListArray.from_arrays(offsets, values)
        elif field.name == "chunk_tokens":
            columns[field.name] = pa.ListArray.from_arrays(offsets, pa.array(np.full(rows * chunks, 4), pa.int32()))
        elif field.name in texts:
            columns[field.name] = pa.array(texts[field.name])
        elif field.name in filled:
            columns[field.name] = pa.array(filled[field.name]).cast(field.type)
        else:
            columns[field.name] = pa.nulls(rows, field.type)
    return columns
