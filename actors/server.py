"""One server, from its launch to the proof that it is gone. Plain asyncio; no Ray in here."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from actors.container import runtime_fault
from actors.container_end import end_without_guard
from actors.diagnosis import diagnose
from actors.endpoint import Endpoint, OpenAiEndpoint
from actors.follower import Segment, follow
from actors.generic_diagnosis import diagnose_any
from actors.guard import Guarded, ServerExit, ServerNotStarted
from actors.kernel_kills import oom_kills
from actors.launch import conceal, request_key, scrub, secret_values
from actors.preflight import faked_account
from actors.prepared_launch import prepare
from actors.server_command import ServerCommand, ServerPlace, boot
from actors.server_log import ServerLog
from actors.slot_gpus import SlotGpus
from actors.startup import StartupTimeline
from actors.template_start import CoarseTimeline, TemplateStart
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec, ServerDied, ServerReady, StartEvent

_TELL_EVERY_S = 0.25
_POLL_S = 0.05
_RETRY_S = 0.5
_ATTACH_TIMEOUT_S = 60.0
# A server that names a fatal error but lives on (SGLang waits 12 minutes for a port that it never got) gets this long.
_LINGER_S = 30.0
_KILL_S = 15.0
_BOOT_S = 30.0
_START_POLL_S = 0.02
_UNEXPLAINED = frozenset({Label.UNKNOWN, Label.COMMAND_NOT_FOUND})
_MEMORY = frozenset({Label.KV_BUDGET, Label.OOM_WEIGHTS, Label.OOM_KV_ALLOC, Label.STATE_POOL})


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
        self.is_ready = False
        self._timeline: StartupTimeline | CoarseTimeline = StartupTimeline()
        self._template: TemplateStart | None = None
        self._guarded: Guarded | None = None
        self._command: ServerCommand | None = None
        self._notes: tuple[str, ...] = ()
        self._launching = asyncio.Lock()
        self._stop_asked = False
        self._stopped_at_line: int | None = None
        self._ready_at_line = 0
        self._secrets: frozenset[str] = frozenset()
        self._refusal: str | None = None
        self._version: str | None = None
        self._log = ServerLog(None)
        self._checked_at = 0.0
        self._oom_kills_before = 0

    async def start(
        self, spec: LaunchSpec, *, gpu_ids: Sequence[str], host: str, port: int, log_path: Path
    ) -> AsyncIterator[StartEvent]:
        """Launch and follow the server; the last event is ServerReady or ServerDied.

        Ready means: it printed SGLang's ready words (another server: its ready path answered 200), and then served a
        request of ours.
        """
        self._spec, self._gpu_ids, self._log = spec, tuple(gpu_ids), ServerLog(log_path)
        self._gpus = SlotGpus(spec, self._gpu_ids)
        self._began = self._last_sign = time.monotonic()
        reached = "127.0.0.1" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host
        env = {**os.environ, **dict(spec.env)}
        self._secrets = secret_values(spec.extra_args, env)
        key = request_key((*spec.command, *spec.extra_args), env)
        self._endpoint = Endpoint(spec.url or f"http://{reached}:{port}", key)
        if spec.engine == "command":
            self._endpoint = OpenAiEndpoint(self._endpoint.url, key, served_name=spec.served_name)
            self._timeline = timeline = CoarseTimeline()
            self._template = TemplateStart(self._endpoint, spec.ready_path, timeline, self._lived_s)
        if spec.engine == "attach":
            yield await self._attach()
            return
        refused = await self._launch(host, port, log_path)
        if refused is not None:
            yield self._dead(refused)
            return
        async for event in self._follow(log_path):
            yield event

    async def died(self) -> ServerDied | None:
        """Whether a server that was ready has ended since, and why."""
        if self._spec.engine == "attach":
            refusal = await self._endpoint.refusal()
            return self._dead(Diagnosis(Label.UNKNOWN, Phase.SERVING, refusal)) if refusal else None
        ended = self._ended()
        return None if ended is None else self._dead(await self._verdict(ended))

    async def stop(self, grace_s: float) -> StopReport:
        """End the server and all it started: its requests dropped, SIGTERM, after the grace SIGKILL."""
        began = time.monotonic()
        self._stop_asked = True
        async with self._launching:
            guarded = self._guarded
        if guarded is None:
            return StopReport(None, 0.0, (), None, self._notes)
        if guarded.poll() is None and self._stopped_at_line is None:
            self._stopped_at_line = await asyncio.to_thread(self._log.lines)
        if guarded.poll() is None and self.is_ready:
            await self._endpoint.abort_all()
        ended = await self._end(guarded, grace_s)
        seconds = round(time.monotonic() - began, 3)
        notes = tuple(conceal(note, self._secrets) for note in ended.notes)
        return StopReport(ended.code, seconds, ended.killed, await self._gpus.returned(), notes)

    def log_bytes(self) -> bytes:
        """The server's log, secrets replaced, zstd-compressed."""
        return self._log.packed(self._secrets)

    def _server_log(self, ended: ServerExit | None) -> Iterator[Segment]:
        """The log as far as the server wrote it."""
        began = self._guarded.log_began if self._guarded is not None else 0
        return self._log.segments(began, ended.log_ended if ended is not None else None)

    async def _attach(self) -> StartEvent:
        deadline = self._began + min(self._spec.start_timeout_s, _ATTACH_TIMEOUT_S)
        while (refusal := await self._endpoint.refusal()) is not None:
            if time.monotonic() >= deadline or self._stop_asked:
                evidence = f"{self._endpoint.url}/generate: {refusal}"
                return self._dead(Diagnosis(Label.START_TIMEOUT, Phase.LAUNCH, evidence))
            await asyncio.sleep(_RETRY_S)
        return await self._measurable()

    async def _launch(self, host: str, port: int, log_path: Path) -> Diagnosis | None:
        """Start the server under its guard; why not, if it cannot be."""
        spec = self._spec
        if occupied := await self._gpus.occupants():
            return Diagnosis(Label.GPU_OCCUPIED, Phase.LAUNCH, "; ".join(occupied))
        place = ServerPlace(socket.gethostname(), self._gpu_ids, host, port, log_path)
        prepared = await prepare(spec, place, os.environ)
        if isinstance(prepared, Diagnosis):
            return prepared
        command = self._command = prepared.command
        self._version, self._secrets = prepared.version, command.secrets
        async with self._launching:
            if self._stop_asked:
                return Diagnosis(Label.STOP_REQUESTED, Phase.LAUNCH, "stopped before it was launched")
            self._oom_kills_before = oom_kills()
            try:
                self._guarded = await asyncio.to_thread(boot, command, spec, log_path, min(spec.stop_grace_s, _KILL_S))
            except OSError as error:
                return Diagnosis(Label.UNKNOWN, Phase.LAUNCH, f"the guard could not be started: {error}")
        return await self._started(self._guarded, command)

    async def _started(self, guarded: Guarded, command: ServerCommand) -> Diagnosis | None:
        """Return when the server runs; why it never will, if a command before it failed or it cannot be run."""
        deadline = time.monotonic() + _BOOT_S + command.around.begin_s + command.around.end_s
        try:
            while not guarded.has_started():
                if time.monotonic() >= deadline:
                    guarded.request_stop(0.0)
                    return Diagnosis(Label.UNKNOWN, Phase.LAUNCH, "the guard did not answer")
                await asyncio.sleep(_START_POLL_S)
        except ServerNotStarted as error:
            self._guarded, self._notes = None, error.notes
            label = Label.COMMAND_NOT_FOUND if error.missing else Label.UNKNOWN
            if error.by_user_command:
                label = Label.STOP_REQUESTED if self._stop_asked else Label.USER_COMMAND
            return Diagnosis(label, Phase.LAUNCH, str(error))
        self._began = self._last_sign = time.monotonic()  # what came before the server is not its start
        return None

    async def _follow(self, log_path: Path) -> AsyncIterator[StartEvent]:
        """Events until the server serves or is dead; it is ended when it takes too long."""
        told_at, untold, told_phase = 0.0, False, self._timeline.phase
        answer: asyncio.Task[None] | None = None
        try:
            async for segments in follow(log_path, lambda: self._ended() is not None):
                now = time.monotonic()
                untold = self._take(segments, now) or untold
                if answer is None and (self._timeline.is_ready or self._template is not None):
                    answer = asyncio.create_task(self._template.answered() if self._template else self._first_answer())
                untold = untold or told_phase is not self._timeline.phase
                if untold and (told_phase is not self._timeline.phase or now - told_at >= _TELL_EVERY_S):
                    told_at, untold, told_phase = now, False, self._timeline.phase
                    yield self._timeline.progress(self._spec.trial_id, now - self._began)
                if answer is not None and answer.done() and self._ended() is None:
                    answer.result()
                    yield await self._measurable()
                    return
                if given_up := await self._given_up(now):
                    yield self._dead(given_up)
                    return
        finally:
            if answer is not None:
                answer.cancel()
        yield self._dead(await self._verdict(self._ended()))

    def _take(self, segments: list[Segment], now: float) -> bool:
        """Whether these lines show progress; then the phase timeout begins anew."""
        at_s = round(now - self._began, 3)
        moves = [self._timeline.advance(s.text, at_s, is_bar=s.is_bar) for s in segments]
        if any(moves):
            self._last_sign = now
        return any(moves)

    async def _first_answer(self) -> None:
        """Return when the server has served a request."""
        while (refusal := await self._endpoint.refusal()) is not None:
            self._refusal = refusal
            await asyncio.sleep(_RETRY_S)

    async def _ready(self) -> ServerReady:
        self.is_ready = True
        await asyncio.to_thread(self._forget_files)
        if self._template is not None:
            self._ready_at_line = await asyncio.to_thread(self._log.lines)
        resolved = scrub(await self._endpoint.info())
        pid, phases = self._guarded.pid if self._guarded else None, self._timeline.phases
        trial_id, url = self._spec.trial_id, self._endpoint.url
        return ServerReady(trial_id, url, pid, self._lived_s(), phases, resolved, self._version)

    async def _measurable(self) -> StartEvent:
        """Ready, unless the server itself says that it makes results up (a container has an environment of its own)."""
        ready = await self._ready()
        faked = faked_account(self._spec, ready.resolved)
        if faked is None:
            return ready
        self.is_ready = False
        ended = await self._end(self._guarded, self._spec.stop_grace_s) if self._guarded else None
        return self._dead(replace(faked, exit_code=ended.code if ended else None))

    async def _given_up(self, now: float) -> Diagnosis | None:
        """Why the start was ended by us: too long, too long without a sign, or dead but for its processes."""
        spec, quiet_s, guarded = self._spec, now - self._last_sign, self._guarded
        too_long = f"not ready after {spec.start_timeout_s:g} s" if now - self._began >= spec.start_timeout_s else ""
        if self._template is not None:
            if not too_long or guarded is None:
                return None
            told = f"{too_long}; {self._template.refusal}" if self._template.refusal else too_long
            verdict = await self._verdict(None, timed_out=told)
            return replace(verdict, exit_code=(await self._end(guarded, spec.stop_grace_s)).code)
        if not too_long and quiet_s >= spec.phase_timeout_s:
            too_long = f"no sign of progress in phase {self._timeline.phase} for {spec.phase_timeout_s:g} s"
        lingers = quiet_s >= _LINGER_S and now - self._checked_at >= _LINGER_S
        if guarded is None or not (too_long or lingers):
            return None
        self._checked_at = now
        verdict = await self._verdict(None, timed_out=too_long)
        if verdict.label is Label.START_TIMEOUT:
            if not too_long:
                return None
            if self._refusal:
                verdict = replace(verdict, evidence=f"it said it was ready, but /generate answered {self._refusal}")
        ended = await self._end(guarded, spec.stop_grace_s)
        return replace(verdict, exit_code=ended.code)

    def _ended(self) -> ServerExit | None:
        return self._guarded.poll() if self._guarded is not None else None

    def _forget_files(self) -> None:
        """Delete the files that held secrets for the server: it has read them."""
        for path in self._command.files if self._command is not None else ():
            path.unlink(missing_ok=True)

    async def _end(self, guarded: Guarded, grace_s: float) -> ServerExit:
        """Have the guard end the tree; an exit without code if something survives even SIGKILL."""
        guarded.request_stop(grace_s)
        deadline = time.monotonic() + grace_s + guarded.end_s + _KILL_S
        while (ended := guarded.poll()) is None and time.monotonic() < deadline:  # noqa: ASYNC110 - a pipe tells
            await asyncio.sleep(_POLL_S)
        if ended is None or ended.log_ended is not None or self._command is None:
            return ended or ServerExit(None, notes=("the server could not be ended",))
        failed = await asyncio.to_thread(end_without_guard, self._command.around, self._command.env)
        return replace(ended, notes=(failed,)) if failed else ended

    async def _verdict(self, ended: ServerExit | None, *, timed_out: str | None = None) -> Diagnosis:
        """The diagnosis of the log as it is now."""
        killed = oom_kills() - self._oom_kills_before
        judge = diagnose
        if self._template is not None:
            judge = partial(diagnose_any, phase=self._timeline.phase, since_line=self._ready_at_line)
        told = await asyncio.to_thread(
            judge,
            self._server_log(ended),
            exit_code=ended.code if ended is not None else None,
            stopped_at_line=self._stopped_at_line,
            timed_out=timed_out,
            oom_kills=killed,
        )
        code, in_container = told.exit_code, self._command is not None and self._command.around.container is not None
        if in_container and told.label in _UNEXPLAINED and (fault := runtime_fault(code, self._server_log(ended))):
            return replace(told, label=fault.label, evidence=fault.evidence, line_number=fault.line_number)
        # What runs in a container may be nobody's that we can see, so it is only judged by others once it is gone.
        alone = ended is not None or not in_container
        if told.label in _MEMORY and alone and (others := await self._gpus.foreign()):
            told = replace(told, label=Label.GPU_OCCUPIED, evidence=f"{'; '.join(others)}; then: {told.evidence}")
        return told

    def _dead(self, diagnosis: Diagnosis) -> ServerDied:
        """The end of the server as it is told to others: without secrets."""
        diagnosis = replace(diagnosis, evidence=conceal(diagnosis.evidence, self._secrets))
        return ServerDied(self._spec.trial_id, diagnosis, self._timeline.phases, self._lived_s())

    def _lived_s(self) -> float:
        return round(time.monotonic() - self._began, 3)
