"""One server, from its launch to the proof that it is gone. Plain asyncio; no Ray in here.

What is decided about it is in actors/servers/lifecycle.py; what is done about that, in actors/servers/lifeline.py.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from actors.processes.kernel_kills import oom_kills
from actors.samples.slot_telemetry import Watched
from actors.servers.endpoint import Endpoint, FollowerEndpoint, OpenAiEndpoint
from actors.servers.follower import Segment, follow
from actors.servers.launch import conceal, key_for, secret_values
from actors.servers.life_event import (
    LaunchBegan,
    LaunchRefused,
    LoadHung,
    LogMoved,
    LogSpoke,
    ProofGiven,
    ProofRefused,
    ServerRuns,
    StopAsked,
    TokensFlowed,
)
from actors.servers.life_state import Cause, Launching, Proving, Stopping, Suspect, Verdict
from actors.servers.lifeline import Lifeline
from actors.servers.post_mortem import PostMortem
from actors.servers.prepared_launch import PreparedLaunch, prepare
from actors.servers.pulse import Pulse
from actors.servers.server_command import ServerPlace, boot
from actors.servers.server_log import ServerLog
from actors.servers.slot_gpus import SlotGpus
from actors.servers.startup import StartupTimeline
from actors.servers.template_start import CoarseTimeline, TemplateStart
from actors.servers.tree_activity import TreeActivity
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec, LoadSeen, ServerDied, StartEvent

_TELL_EVERY_S = 0.25
_POLL_S = 0.05
_RETRY_S = 0.5
# Nobody wants the answers of a server whose holder is gone, but its load may go on and keep it draining for ever.
_ORPHAN_GRACE_S = 5.0
_BOOT_S = 30.0
_START_POLL_S = 0.02
NOTHING_SEEN = LoadSeen()


@dataclass(frozen=True, slots=True)
class StopReport:
    """How a server ended. `gpu_free`: its GPUs were seen empty again; None where that cannot be seen.

    `notes` tell what else went wrong in the end: a command of the user, a container that does not go.
    """

    exit_code: int | None
    seconds: float
    killed: tuple[int, ...]
    gpu_free: bool | None
    notes: tuple[str, ...] = ()


class Server:
    """Start it once, then ask `died` while it serves, then `stop` it; `stop` may come at any time."""

    def __init__(self) -> None:
        self._lifeline: Lifeline | None = None
        self._launching = asyncio.Lock()
        self._stop_asked = False
        self._secrets: frozenset[str] = frozenset()
        self._log = ServerLog(None)

    @property
    def is_ready(self) -> bool:
        """Whether it can be measured."""
        return self._lifeline is not None and self._lifeline.life.is_ready

    def watched(self) -> Watched | None:
        """As telemetry looks at it; None before it was asked for."""
        line = self._lifeline
        if line is None:
            return None
        in_container = self._spec.trial_id if self._evidence.in_container else None
        pid = line.guarded.pid if line.guarded is not None else None
        lived_s = None if isinstance(line.life.state, Launching) else line.lived_s
        return Watched(pid, lived_s, line.life.is_ready, self._endpoint, in_container)

    async def start(
        self, spec: LaunchSpec, *, gpu_ids: Sequence[str], host: str, port: int, log_path: Path
    ) -> AsyncIterator[StartEvent]:
        """Launch and follow the server; the last event is ServerReady or ServerDied.

        Ready means: it printed SGLang's ready words (another server: its ready path answered 200), and then served a
        request of ours. A part that serves no requests is ready when it said so and its health path answered.
        """
        line = self._lifeline = self._line(spec, tuple(gpu_ids), host, port, log_path)
        try:
            if spec.engine == "attach":
                await self._attach(line)
            else:
                await self._launch(line, host, port, log_path)
                async for event in self._follow(line, log_path):
                    yield event
            while line.life.verdict is not None and not line.is_over:
                await asyncio.sleep(_POLL_S)
                await line.look()
            if (verdict := line.life.verdict) is not None:
                yield await self._dead(line, verdict)
            elif line.ready is not None:
                yield line.ready
        finally:
            if not line.life.is_ready:
                line.rest()

    async def died(self, load: LoadSeen = NOTHING_SEEN) -> ServerDied | None:
        """Whether a server that was ready has ended since, or hangs, and why. `load` saw it last."""
        line = self._lifeline
        if line is None:
            return None
        if load.tokens_came and load.hung_s is None:  # otherwise they came, but long ago
            await line.feed(TokensFlowed(time.monotonic()))
        if self._spec.engine == "attach":
            await self._ask_attached(line)
        elif load.hung_s is not None:
            await line.feed(LoadHung(time.monotonic(), load.hung_s))
        await line.look()
        while isinstance(line.life.state, Suspect) and load.hung_s is not None:
            await asyncio.sleep(_POLL_S)
            await line.look()
        verdict = line.life.verdict
        if verdict is None or (isinstance(line.life.state, Stopping) and verdict.cause is not Cause.HUNG):
            return None
        return await self._dead(line, verdict)

    async def stop(self, grace_s: float) -> StopReport:
        """End the server and all it started: its requests dropped, SIGTERM, after the grace SIGKILL."""
        began = time.monotonic()
        self._stop_asked = True
        async with self._launching:
            line = self._lifeline
        if line is None or line.guarded is None:
            if line is not None:
                await line.feed(StopAsked(began, grace_s))
                line.rest()
            return StopReport(None, 0.0, (), None)
        if line.guarded.poll() is None and self._evidence.stopped_at_line is None:
            self._evidence.stopped_at_line = await asyncio.to_thread(self._log.lines)
        await line.look()
        await line.feed(StopAsked(time.monotonic(), grace_s))
        while not line.is_over:
            await asyncio.sleep(_POLL_S)
            await line.look()
        line.rest()
        ended = await line.exit()
        seconds = round(time.monotonic() - began, 3)
        notes = tuple(conceal(note, self._secrets) for note in ended.notes)
        return StopReport(ended.code, seconds, ended.killed, await self._gpus.returned(), notes)

    def log_bytes(self) -> bytes:
        """The server's log, secrets replaced, zstd-compressed."""
        return self._log.packed(self._secrets)

    def _line(self, spec: LaunchSpec, gpu_ids: tuple[str, ...], host: str, port: int, log_path: Path) -> Lifeline:
        """All that is known before the launch."""
        self._spec, self._gpu_ids, self._log = spec, gpu_ids, ServerLog(log_path)
        self._gpus = SlotGpus(spec, gpu_ids)
        self._evidence = PostMortem(self._log, self._gpus, any_engine=spec.engine == "command")
        reached = "127.0.0.1" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host
        env = {**os.environ, **dict(spec.env)}
        self._secrets = secret_values(spec.extra_args, env)
        key = key_for(spec, os.environ)
        kind = FollowerEndpoint if spec.is_follower else Endpoint
        endpoint = kind(spec.url or f"http://{reached}:{port}", key)
        self._timeline: StartupTimeline | CoarseTimeline = StartupTimeline()
        template: TemplateStart | None = None
        if spec.engine == "command":
            endpoint = OpenAiEndpoint(endpoint.url, key, served_name=spec.served_name)
            self._timeline = timeline = CoarseTimeline()
            template = TemplateStart(endpoint, spec.ready_path, timeline, lambda: line.lived_s)
        self._endpoint = endpoint
        line = Lifeline(spec, endpoint, self._timeline, self._evidence, template)
        return line

    async def _attach(self, line: Lifeline) -> None:
        await line.feed(StopAsked(time.monotonic(), 0.0) if self._stop_asked else ServerRuns(time.monotonic()))
        while isinstance(line.life.state, Proving):
            await asyncio.sleep(_POLL_S)
            line.reraise()

    async def _ask_attached(self, line: Lifeline) -> None:
        """Until it has served a request, is gone, or has had its time."""
        while True:
            refusal = await self._endpoint.refusal(line.life.rules.suspect_s)
            now = time.monotonic()
            await line.feed(ProofRefused(now, str(refusal), refusal.reached) if refusal else ProofGiven(now))
            if not isinstance(line.life.state, Suspect):
                return
            await asyncio.sleep(_RETRY_S)

    async def _launch(self, line: Lifeline, host: str, port: int, log_path: Path) -> None:
        """Start the server under its guard, unless it cannot be."""
        place = ServerPlace(socket.gethostname(), self._gpu_ids, host, port, log_path)
        refused: Diagnosis | None = None
        if occupied := await self._gpus.occupants():
            refused = Diagnosis(Label.GPU_OCCUPIED, Phase.LAUNCH, "; ".join(occupied))
        else:
            prepared = await prepare(self._spec, place, os.environ)
            refused = prepared if isinstance(prepared, Diagnosis) else await self._boot(line, prepared, log_path)
        if refused is not None:
            await self._refuse(line, refused)
            return
        while isinstance(line.life.state, Launching):
            await asyncio.sleep(_START_POLL_S)
            await line.look()
        if self._spec.phase_budgets and line.guarded is not None:
            gpu_ids = self._gpu_ids if self._gpus.watched else ()
            trial_id = self._spec.trial_id if self._evidence.in_container else None
            activity = TreeActivity(line.guarded.pid, gpu_ids, trial_id=trial_id)
            line.start(Pulse(line, log_path, activity).feel())

    async def _refuse(self, line: Lifeline, refused: Diagnosis) -> None:
        if self._stop_asked:
            await line.feed(StopAsked(time.monotonic(), 0.0))
        await line.feed(LaunchRefused(time.monotonic(), refused))

    async def _boot(self, line: Lifeline, prepared: PreparedLaunch, log_path: Path) -> Diagnosis | None:
        """Start the guard, which starts the server; why not, if it cannot be."""
        spec, command = self._spec, prepared.command
        line.command, line.software, self._secrets = command, prepared.software, command.secrets
        self._evidence.in_container = command.around.container is not None
        async with self._launching:
            if self._stop_asked:
                return Diagnosis(Label.STOP_REQUESTED, Phase.LAUNCH, "stopped before it was launched")
            self._evidence.oom_kills_before = oom_kills()
            grace_s = min(spec.stop_grace_s, _ORPHAN_GRACE_S)
            try:
                line.guarded = await asyncio.to_thread(boot, command, spec, log_path, grace_s)
            except OSError as error:
                return Diagnosis(label_of(error), Phase.LAUNCH, f"the guard could not be started: {error}")
        around = command.around
        await line.feed(LaunchBegan(time.monotonic(), _BOOT_S + around.begin_s + around.end_s))
        return None

    async def _follow(self, line: Lifeline, log_path: Path) -> AsyncIterator[StartEvent]:
        """Progress until the server serves or has ended."""
        told_at, untold, told_phase = 0.0, False, self._timeline.phase

        def has_ended() -> bool:
            return line.guarded is None or line.guarded.poll() is not None

        async for segments in follow(log_path, has_ended):
            now = time.monotonic()
            untold = await self._take(line, segments) or untold
            if not has_ended():  # otherwise its last lines come first
                await line.look()
            line.reraise()
            moved_on = told_phase is not self._timeline.phase
            if line.warnings or moved_on or (untold and now - told_at >= _TELL_EVERY_S):
                told_at, untold, told_phase = now, False, self._timeline.phase
                notes, line.warnings = tuple(line.warnings), []
                yield replace(self._timeline.progress(self._spec.trial_id, line.lived_s), notes=notes)
            if line.life.is_ready or (line.is_over and not has_ended()):
                return
        await line.look()

    async def _take(self, line: Lifeline, segments: list[Segment]) -> bool:
        """Whether these lines show progress; then the phase timeout begins anew."""
        before = self._timeline.phase
        moves = [self._timeline.advance(s.text, line.lived_s, is_bar=s.is_bar) for s in segments]
        now, phase = time.monotonic(), self._timeline.phase
        if any(moves) or phase is not line.life.signs.phase:
            await line.feed(LogMoved(now, phase, self._timeline.is_ready))
        elif segments:
            await line.feed(LogSpoke(now))
        return any(moves) or phase is not before

    async def _dead(self, line: Lifeline, verdict: Verdict) -> ServerDied:
        """The end of the server as it is told to others: without secrets."""
        diagnosis = await line.diagnosis(verdict)
        diagnosis = replace(diagnosis, evidence=conceal(diagnosis.evidence, self._secrets))
        return ServerDied(self._spec.trial_id, diagnosis, self._timeline.phases, line.lived_s, line.software)


def label_of(error: OSError) -> Label:
    """Why something could not be begun on a host: for want of room there, or for what nobody has foreseen."""
    return Label.SHM_OR_DISK if error.errno in {errno.ENOSPC, errno.EDQUOT} else Label.UNKNOWN
