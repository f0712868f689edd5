"""One server, from its launch to the proof that it is gone. Plain asyncio; no Ray in here."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from actors.diagnoser import diagnose
from actors.endpoint import Endpoint
from actors.follower import Segment, follow, segments_of
from actors.gpu import foreign_occupants, wait_until_free
from actors.guard import Guarded, ServerExit, ServerNotStarted
from actors.launch import conceal, request_key, scrub, secret_values, server_argv, server_env
from actors.startup import StartupTimeline
from orchestrator.server_start import LaunchSpec, ServerDied, ServerReady, StartEvent
from orchestrator.trial import Diagnosis, Label, Phase

_TELL_EVERY_S = 0.25
_POLL_S = 0.05
_RETRY_S = 0.5
_ATTACH_TIMEOUT_S = 60.0
# A server that names a fatal error but lives on (SGLang waits 12 minutes for a port that it never got) gets this long.
_LINGER_S = 30.0
# Memory of the server before comes back a little after its last process went.
_GPU_SETTLE_S = 20.0
_GPU_RETURN_S = 60.0
_KILL_S = 15.0
# Counts, among other things, the processes that the kernel killed for lack of memory since it booted.
_VMSTAT = Path("/proc/vmstat")
_MEMORY = frozenset({Label.KV_BUDGET, Label.OOM_WEIGHTS, Label.OOM_KV_ALLOC, Label.STATE_POOL})


@dataclass(frozen=True, slots=True)
class StopReport:
    """How a server ended. `gpu_free`: its GPUs were seen empty again; None where that cannot be seen."""

    exit_code: int | None
    seconds: float
    killed: tuple[int, ...]
    gpu_free: bool | None


class Server:
    """Start it once, then ask `died` while it serves, then `stop` it; `stop` may come at any time."""

    def __init__(self) -> None:
        self.is_ready = False
        self._timeline = StartupTimeline()
        self._guarded: Guarded | None = None
        self._launching = asyncio.Lock()
        self._stop_asked = False
        self._stopped_at_line: int | None = None
        self._secrets: frozenset[str] = frozenset()
        self._refusal: str | None = None
        self._log_path: Path | None = None
        self._checked_at = 0.0
        self._oom_kills_before = 0

    async def start(
        self, spec: LaunchSpec, *, gpu_ids: Sequence[str], host: str, port: int, log_path: Path
    ) -> AsyncIterator[StartEvent]:
        """Launch and follow the server; the last event is ServerReady or ServerDied.

        Ready means: it printed SGLang's ready words, and then served a request of ours.
        """
        self._spec, self._gpu_ids, self._log_path = spec, tuple(gpu_ids), log_path
        self._began = self._last_sign = time.monotonic()
        reached = "127.0.0.1" if host in {"0.0.0.0", "::"} else f"[{host}]" if ":" in host else host
        env = {**os.environ, **dict(spec.env)}
        self._secrets = secret_values(spec.extra_args, env)
        self._endpoint = Endpoint(
            spec.url or f"http://{reached}:{port}", request_key((*spec.command, *spec.extra_args), env)
        )
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
            return StopReport(None, 0.0, (), None)
        if guarded.poll() is None and self._stopped_at_line is None:
            self._stopped_at_line = await asyncio.to_thread(self._lines)
        if guarded.poll() is None and self.is_ready:
            await self._endpoint.abort_all()
        ended = await self._end(guarded, grace_s)
        seconds = round(time.monotonic() - began, 3)
        return StopReport(ended.code, seconds, ended.killed, await self._gpus_returned())

    def log_bytes(self) -> bytes:
        """The server's log, secrets replaced, zstd-compressed."""
        import zstandard

        packing = zstandard.ZstdCompressor(level=9).compressobj()
        packed = bytearray()
        for line in self._log_lines():
            text = conceal(line.decode("utf-8", errors="replace"), self._secrets)
            packed += packing.compress(text.encode())
        return bytes(packed + packing.flush())

    def _log_lines(self) -> Iterator[bytes]:
        """Line by line, since a log may be larger than memory."""
        if self._log_path is not None and self._log_path.exists():
            with self._log_path.open("rb") as file:
                yield from file

    def _lines(self) -> int:
        return sum(line.endswith(b"\n") for line in self._log_lines())

    async def _attach(self) -> StartEvent:
        deadline = self._began + min(self._spec.start_timeout_s, _ATTACH_TIMEOUT_S)
        while (refusal := await self._endpoint.refusal()) is not None:
            if time.monotonic() >= deadline or self._stop_asked:
                evidence = f"{self._endpoint.url}/generate: {refusal}"
                return self._dead(Diagnosis(Label.START_TIMEOUT, Phase.LAUNCH, evidence))
            await asyncio.sleep(_RETRY_S)
        return await self._ready()

    async def _launch(self, host: str, port: int, log_path: Path) -> Diagnosis | None:
        """Start the server under its guard; why not, if it cannot be."""
        spec = self._spec
        if occupied := await self._occupants():
            return Diagnosis(Label.GPU_OCCUPIED, Phase.LAUNCH, "; ".join(occupied))
        argv = server_argv(spec, host, port)
        env = server_env(spec, self._gpu_ids, os.environ)
        self._secrets = secret_values(argv, env)
        async with self._launching:
            if self._stop_asked:
                return Diagnosis(Label.STOP_REQUESTED, Phase.LAUNCH, "stopped before it was launched")
            self._oom_kills_before = _oom_kills()
            try:
                self._guarded = await asyncio.to_thread(
                    Guarded.start,
                    argv,
                    env=env,
                    log_path=log_path,
                    cwd=spec.work_dir,
                    grace_s=min(spec.stop_grace_s, _KILL_S),
                    address_space_gib=spec.address_space_limit_gib,
                )
            except ServerNotStarted as error:
                label = Label.COMMAND_NOT_FOUND if error.missing else Label.UNKNOWN
                return Diagnosis(label, Phase.LAUNCH, str(error))
            except OSError as error:
                return Diagnosis(Label.UNKNOWN, Phase.LAUNCH, f"the guard could not be started: {error}")
        return None

    async def _follow(self, log_path: Path) -> AsyncIterator[StartEvent]:
        """Events until the server serves or is dead; it is ended when it takes too long."""
        told_at, untold, told_phase = 0.0, False, self._timeline.phase
        answer: asyncio.Task[None] | None = None
        try:
            async for segments in follow(log_path, lambda: self._ended() is not None):
                now = time.monotonic()
                untold = self._take(segments, now) or untold
                if self._timeline.is_ready and answer is None:
                    answer = asyncio.create_task(self._first_answer())
                if untold and (told_phase is not self._timeline.phase or now - told_at >= _TELL_EVERY_S):
                    told_at, untold, told_phase = now, False, self._timeline.phase
                    yield self._timeline.progress(self._spec.trial_id, now - self._began)
                if answer is not None and answer.done():
                    answer.result()
                    yield await self._ready()
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
        resolved = scrub(await self._endpoint.info())
        pid = self._guarded.pid if self._guarded else None
        seconds = round(time.monotonic() - self._began, 3)
        return ServerReady(self._spec.trial_id, self._endpoint.url, pid, seconds, self._timeline.phases, resolved)

    async def _given_up(self, now: float) -> Diagnosis | None:
        """Why the start was ended by us: too long, too long without a sign, or dead but for its processes."""
        spec, quiet_s, guarded = self._spec, now - self._last_sign, self._guarded
        too_long = f"not ready after {spec.start_timeout_s:g} s" if now - self._began >= spec.start_timeout_s else ""
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

    async def _end(self, guarded: Guarded, grace_s: float) -> ServerExit:
        """Have the guard end the tree; an exit without code if something survives even SIGKILL."""
        guarded.request_stop(grace_s)
        deadline = time.monotonic() + grace_s + _KILL_S
        while (ended := guarded.poll()) is None and time.monotonic() < deadline:  # noqa: ASYNC110 - a pipe tells
            await asyncio.sleep(_POLL_S)
        return ended or ServerExit(None)

    async def _verdict(self, ended: ServerExit | None, *, timed_out: str | None = None) -> Diagnosis:
        """The diagnosis of the log as it is now."""
        oom_kills = _oom_kills() - self._oom_kills_before
        log = segments_of(self._log_path) if self._log_path is not None else iter(())
        told = await asyncio.to_thread(
            diagnose,
            log,
            exit_code=ended.code if ended is not None else None,
            stopped_at_line=self._stopped_at_line,
            timed_out=timed_out,
            oom_kills=oom_kills,
        )
        if told.label in _MEMORY and self._watches_gpus and (others := await self._foreign()):
            told = replace(told, label=Label.GPU_OCCUPIED, evidence=f"{'; '.join(others)}; then: {told.evidence}")
        return told

    def _dead(self, diagnosis: Diagnosis) -> ServerDied:
        """The end of the server as it is told to others: without secrets."""
        diagnosis = replace(diagnosis, evidence=conceal(diagnosis.evidence, self._secrets))
        lived_s = round(time.monotonic() - self._began, 3)
        return ServerDied(self._spec.trial_id, diagnosis, self._timeline.phases, lived_s)

    @property
    def _watches_gpus(self) -> bool:
        return bool(self._gpu_ids) and self._spec.engine == "sglang"

    async def _foreign(self) -> tuple[str, ...]:
        return await asyncio.to_thread(foreign_occupants, self._gpu_ids, self._spec.run_id)

    async def _occupants(self) -> tuple[str, ...]:
        """What holds our GPUs before we launch, if it does not go away soon."""
        if not self._watches_gpus or await wait_until_free(self._gpu_ids, timeout_s=_GPU_SETTLE_S) is not False:
            return ()
        return await self._foreign() or ("an earlier server of this run still holds GPU memory",)

    async def _gpus_returned(self) -> bool | None:
        return await wait_until_free(self._gpu_ids, timeout_s=_GPU_RETURN_S) if self._watches_gpus else None


def _oom_kills() -> int:
    """How many processes the kernel of this host has killed for lack of memory; 0 where it does not say."""
    try:
        counters = dict(line.split() for line in _VMSTAT.read_text(encoding="ascii").splitlines())
    except OSError:
        return 0
    return int(counters.get("oom_kill", 0))
