"""The append-only account of a run: one JSON object a line, on disk before anything goes on. It is the resume key."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import orjson

from orchestrator.hosts.host_event import HostChange
from orchestrator.searches.search_state import OF_SEARCH, SearchState, probed_mark

_OF_HOSTS = frozenset(HostChange)


class Journal:
    """Appends events durably. A line that a crash tore is cut off at opening; it was never acted on.

    One that a full disk tore is cut off at once, so that the journal ends with what was the case.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        _cut_torn_line(path)
        self._file: IO[bytes] = path.open("ab", buffering=0)
        self._whole_bytes = path.stat().st_size

    def append(self, event: str, **facts: Any) -> None:
        """Write one event and wait until it is on disk, and with it all before it. OSError if it cannot be."""
        self._write(event, facts, durable=True)

    def note(self, event: str, **facts: Any) -> None:
        """Write one event that nothing is built on: a crash of ours does not lose it, one of the host may.

        Two hundred slots that start at once would else wait for the disk one after the other.
        """
        self._write(event, facts, durable=False)

    def _write(self, event: str, facts: dict[str, Any], *, durable: bool) -> None:
        line = json.dumps({"event": event, **facts}, separators=(",", ":"), default=str).encode() + b"\n"
        try:
            left = memoryview(line)
            while left:
                left = left[self._file.write(left) :]
            if durable:
                os.fsync(self._file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._whole_bytes)
            raise
        self._whole_bytes += len(line)

    def close(self) -> None:
        self._file.close()


def _cut_torn_line(path: Path) -> None:
    if not path.exists():
        return
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        with path.open("r+b") as file:
            file.truncate(whole)


def read_events(path: Path, *, without: str = "") -> Iterator[dict[str, Any]]:
    """All whole events of a journal but those of the kind `without`, oldest first; nothing if there is no journal."""
    left_out = _beginning(without) if without else b"{}"
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                return  # torn, and the last one
            if line.startswith(left_out):
                continue
            try:
                event = _event(line)
            except ValueError:
                continue  # a torn line that a later append was glued to
            if isinstance(event, dict):
                yield event


def _beginning(event: str) -> bytes:
    """How a line of this kind begins."""
    return json.dumps({"event": event}, separators=(",", ":"))[:-1].encode()


def _event(line: bytes) -> Any:
    try:
        return orjson.loads(line)  # an account of a server is 36 kB
    except ValueError:
        return json.loads(line)  # a number that is none


@dataclass
class BegunTrial:
    """A start that the journal knows; `server` from when it was ready until its outcome was told, which is `ended`.

    What servers tell of themselves is large, and of those that ended the dataset has it.
    """

    attempt: int
    place: dict[str, Any]
    server: dict[str, Any] | None = None
    ended: bool = False


@dataclass
class RunState:
    """What a journal says has been done."""

    done_points: dict[str, int] = field(default_factory=dict)  # point id -> attempt whose file counts
    outcomes: dict[str, dict[str, Any]] = field(default_factory=dict)  # trial id -> its last outcome
    attempts: dict[str, int] = field(default_factory=dict)  # trial id -> starts so far
    begun: dict[str, BegunTrial] = field(default_factory=dict)  # trial id -> its last start
    ends: list[dict[str, Any]] = field(default_factory=list)  # every end of a trial, oldest first
    of_hosts: list[dict[str, Any]] = field(default_factory=list)  # what became of hosts, oldest first
    of_search: SearchState = field(default_factory=SearchState)
    ended: bool = False

    def torn_trials(self) -> dict[str, BegunTrial]:
        """Starts whose outcome was never told: the driver ended before."""
        return {trial_id: begun for trial_id, begun in self.begun.items() if not begun.ended}


def replay(events: Iterator[dict[str, Any]]) -> RunState:
    """Fold the events of a run into its state."""
    state = RunState()
    for event in events:
        kind = event.get("event")
        if kind in OF_SEARCH:
            state.of_search.saw(event)
        elif kind in _OF_HOSTS:
            state.of_hosts.append(event)
        else:
            _fold(state, kind, event)
    return state


def _fold(state: RunState, kind: Any, event: dict[str, Any]) -> None:
    match kind:
        case "trial_started":
            state.attempts[event["trial_id"]] = event["attempt"]
            state.begun[event["trial_id"]] = BegunTrial(event["attempt"], event.get("place", {}))
            state.ended = False
        case "server_ready" if event["trial_id"] in state.begun:
            state.begun[event["trial_id"]].server = event["server"]
        case "point_done":
            state.done_points[event["point_id"]] = event["attempt"]
        case "point_lost":
            state.done_points.pop(event["point_id"], None)
        case "trial_ended":
            state.outcomes[event["trial_id"]] = event
            state.ends.append(event)
            if event["trial_id"] in state.begun:
                state.begun[event["trial_id"]].ended = True
                state.begun[event["trial_id"]].server = None
        case "run_ended":
            state.ended = bool(event.get("complete"))


def finished_work(state: RunState) -> frozenset[str]:
    """Ids that `--resume` leaves alone: points measured or spared, and trials whose config cannot run."""
    infeasible = {t for t, event in state.outcomes.items() if event.get("outcome") == "infeasible"}
    probed = {probed_mark(t) for t, event in state.outcomes.items() if event.get("outcome") == "measured"}
    return frozenset(state.done_points) | frozenset(state.of_search.spared) | infeasible | probed
