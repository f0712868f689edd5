"""The faults of one emulated server: which of a script apply to it, and the few places where they are joined to it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from actors.emulator.deathbed import Deathbed
from actors.emulator.fault import Fault, applies
from actors.emulator.fault_script import FaultScript, load_fault_script
from actors.emulator.log import LogWriter
from actors.emulator.phase_stream import PhaseStream
from actors.emulator.processes import ProcessTree
from actors.emulator.resolution import Settings
from actors.emulator.serving_fault import Die
from actors.emulator.start_strike import StartStrike
from orchestrator.errors import BadInput

if TYPE_CHECKING:
    from actors.emulator.server import Server
    from actors.emulator.serving_strike import ServingStrike

_REFUSED = 2
_MARKS = ("SPECSWEEP_RUN_ID", "SPECSWEEP_TRIAL_ID")


class Faults:
    """Made before the first line of the log; the server is joined later."""

    def __init__(self, path: Path, settings: Settings, speedup: float) -> None:
        self._script = _load(path)
        self._path = path
        stream = PhaseStream(sys.stderr, settings.ranks.count, self._reached)
        self.log = LogWriter(cast(TextIO, stream), settings.ranks, access_stream=sys.stdout)
        # Nodes of one server may read the same script.
        self._node = f"-node{settings.ranks.node}" if settings.ranks.nodes > 1 else ""
        self._stream = stream
        self._bed = Deathbed(self.log, settings.args, speedup)
        start = self._of_this_server("start", self._script, settings.args)
        self._serving_faults = self._of_this_server("serving", self._script, settings.args)
        self._start = StartStrike(start, path.parent, stream, self._bed)
        self._serving: ServingStrike | None = None
        self._warms_up = not settings.args["skip_server_warmup"]
        self._start.reached("launch")

    def own(self, tree: ProcessTree) -> None:
        """These are the processes of the server."""
        self._bed.tree = tree

    def strike_follower(self, end: Callable[[Die], None]) -> None:
        """This node serves no requests: of the serving faults only its death can strike, by itself."""
        for fault in self._serving_faults:
            if isinstance(fault, Die) and fault.request is None and fault.probability is None:
                timer = threading.Timer(fault.after_s, end, [fault])
                timer.daemon = True
                timer.start()

    def join(self, server: Server) -> None:
        """The server is built and about to open its port."""
        from actors.emulator.serving_strike import ServingStrike

        self._serving = ServingStrike(
            self._serving_faults, self._script.seed, self._path.parent, self._stream, self._bed
        )
        server.state.middlewares.append(self._serving.middleware)
        server.state.engine.gate = self._serving.gate

    def _reached(self, phase: str) -> None:
        self._start.reached(phase)
        if self._serving is not None:
            for fault in self._start.slow_warm_ups if phase == "warmup" and self._warms_up else ():
                self._serving.hold(fault)
            self._serving.gate.closed |= self._start.child_died
            if phase == "ready":
                self._serving.begin()

    def _of_this_server(self, part: str, script: FaultScript, args: dict[str, Any]) -> list[Fault]:
        faults: list[Fault] = list(getattr(script, part))
        return [f for i, f in enumerate(faults) if applies(f, args) and self._in_time(f, f"{part}-{i}")]

    def _in_time(self, fault: Fault, name: str) -> bool:
        """Whether a fault of the first starts is still due; counts this start."""
        if fault.starts is None:
            return True
        mark = " ".join([name + self._node, *(os.environ.get(variable, "-") for variable in _MARKS)])
        counted = self._path.with_name(self._path.name + ".starts")
        with counted.open("a+", encoding="utf-8") as file:
            file.seek(0)
            before = file.read().splitlines().count(mark)
            file.write(mark + "\n")
        return before < fault.starts


def _load(path: Path) -> FaultScript:
    try:
        return load_fault_script(path)
    except BadInput as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(_REFUSED) from None
