"""What a server died of: its log, its exit code, the kernel and the GPUs asked, and our own part told honestly."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from actors.diagnosis import diagnose
from actors.guards.guard import ServerExit
from actors.processes.kernel_kills import oom_kills
from actors.servers.container import runtime_fault
from actors.servers.follower import Segment
from actors.servers.generic_diagnosis import diagnose_any
from actors.servers.life_state import Cause, Verdict
from actors.servers.server_log import ServerLog
from actors.servers.slot_gpus import SlotGpus
from orchestrator.outcome import Diagnosis, Label, Phase

_UNEXPLAINED = frozenset({Label.UNKNOWN, Label.COMMAND_NOT_FOUND})
_MEMORY = frozenset({Label.KV_BUDGET, Label.OOM_WEIGHTS, Label.OOM_KV_ALLOC, Label.STATE_POOL})


@dataclass
class PostMortem:
    """The evidence about one server. Places in the log are lines, but `log_began`, which is bytes.

    `any_engine`: the log is not SGLang's. `stopped_at_line`: how long the log was when we were asked to end the server.
    """

    log: ServerLog
    gpus: SlotGpus
    any_engine: bool = False
    in_container: bool = False
    log_began: int = 0
    ready_at_line: int = 0
    stopped_at_line: int | None = None
    oom_kills_before: int = 0

    async def diagnosis(self, ended: ServerExit | None, phase: Phase, timed_out: str | None = None) -> Diagnosis:
        """The diagnosis of the log as it is now; arguments as of `diagnose`."""
        judge = partial(diagnose_any, phase=phase, since_line=self.ready_at_line) if self.any_engine else diagnose
        told = await asyncio.to_thread(
            judge,
            self._segments(ended),
            exit_code=ended.code if ended is not None else None,
            stopped_at_line=self.stopped_at_line,
            timed_out=timed_out,
            oom_kills=oom_kills() - self.oom_kills_before,
        )
        if self.in_container and told.label in _UNEXPLAINED:
            fault = runtime_fault(told.exit_code, self._segments(ended))
            if fault is not None:
                return replace(told, label=fault.label, evidence=fault.evidence, line_number=fault.line_number)
        # What runs in a container may be nobody's that we can see, so it is only judged by others once it is gone.
        alone = ended is not None or not self.in_container
        if told.label in _MEMORY and alone and (others := await self.gpus.foreign()):
            told = replace(told, label=Label.GPU_OCCUPIED, evidence=f"{'; '.join(others)}; then: {told.evidence}")
        return told

    def _segments(self, ended: ServerExit | None) -> Iterator[Segment]:
        """The log as far as the server wrote it."""
        return self.log.segments(self.log_began, ended.log_ended if ended is not None else None)


def settled(verdict: Verdict, found: Diagnosis, *, any_engine: bool = False) -> Diagnosis:
    """What is told of an end: the log's account, in the light of our own part in it. Pure.

    A cause that stands in a line of the log is one whoever ended the server; without such a line an end that we were
    asked for is that.
    """
    found = replace(found, exit_code=verdict.exit_code)
    is_unnamed = found.label is Label.START_TIMEOUT
    if verdict.cause is Cause.STOPPED and not found.line_number:
        return replace(found, label=Label.STOP_REQUESTED)
    if verdict.cause is Cause.HUNG and is_unnamed:
        return replace(found, label=Label.HUNG, phase=Phase.SERVING)
    if verdict.cause is Cause.OVERDUE and is_unnamed and verdict.refusal and not any_engine:
        return replace(found, evidence=f"it said it was ready, but /generate answered {verdict.refusal}")
    return found


def without_log(verdict: Verdict, attached_to: str | None = None) -> Diagnosis | None:
    """The diagnosis where no log of ours tells: never started, or attached to by this URL; None if one does. Pure."""
    cause = verdict.cause
    if verdict.refused is not None:
        label = Label.STOP_REQUESTED if cause is Cause.STOPPED else verdict.refused.label
        return replace(verdict.refused, label=label, exit_code=verdict.exit_code)
    if cause is Cause.REFUSED:
        return Diagnosis(Label.UNKNOWN, Phase.LAUNCH, verdict.told, exit_code=verdict.exit_code)
    if attached_to is None:
        return None
    if cause is Cause.STOPPED:
        return Diagnosis(Label.STOP_REQUESTED, Phase.LAUNCH, "stopped before it had served a request")
    if cause is Cause.OVERDUE:
        return Diagnosis(Label.START_TIMEOUT, Phase.LAUNCH, f"{attached_to}/generate: {verdict.refusal}")
    return Diagnosis(Label.HUNG if cause is Cause.HUNG else Label.UNKNOWN, Phase.SERVING, verdict.told)
