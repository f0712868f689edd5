"""Between a lifecycle and the world: tells it what happens to one server, and does what it wants done."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from actors.guards.guard import Guarded, ServerExit, ServerNotStarted
from actors.servers.container_end import end_without_guard
from actors.servers.endpoint import Endpoint
from actors.servers.launch import scrub
from actors.servers.life_event import (
    AccountGiven,
    Event,
    Examined,
    HealthAnswered,
    LaunchRefused,
    ProcessEnded,
    ProofGiven,
    ProofRefused,
    RequestsDropped,
    ServerRuns,
    Tick,
)
from actors.servers.life_state import (
    AbortAll,
    Action,
    AskAccount,
    Cause,
    Ended,
    Examine,
    Kill,
    Life,
    Probe,
    Prove,
    Stopping,
    Terminate,
    Verdict,
    Warn,
    rules_of,
)
from actors.servers.lifecycle import step
from actors.servers.post_mortem import PostMortem, settled, without_log
from actors.servers.preflight import faked_account
from actors.servers.server_command import ServerCommand
from actors.servers.startup import StartupTimeline
from actors.servers.template_start import CoarseTimeline, TemplateStart
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import NOT_ASKED, LaunchSpec, ServerReady

_RETRY_S = 0.5
# Of the time that a suspect has, this share is for its answer: the rest is for us to hear of it.
_ANSWER_SHARE = 0.8


class Lifeline:
    """One server. `guarded` is None as long as nothing was started; `warnings` are still to be told."""

    def __init__(
        self,
        spec: LaunchSpec,
        endpoint: Endpoint,
        timeline: StartupTimeline | CoarseTimeline,
        evidence: PostMortem,
        template: TemplateStart | None,
    ) -> None:
        self.life = Life.begin(rules_of(spec), time.monotonic())
        self.guarded: Guarded | None = None
        self.command: ServerCommand | None = None
        self.software = NOT_ASKED
        self.ready: ServerReady | None = None
        self.warnings: list[str] = []
        self._spec = spec
        self._endpoint = endpoint
        self._timeline = timeline
        self._evidence = evidence
        self._template = template
        self._examined: Diagnosis | None = None
        self._exit: ServerExit | None = None
        self._ran = False
        self._burial = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def is_over(self) -> bool:
        return isinstance(self.life.state, Ended)

    @property
    def lived_s(self) -> float:
        """Seconds since its process ran."""
        return round(time.monotonic() - self.life.signs.began_s, 3)

    async def feed(self, event: Event) -> None:
        """Something happened; return when what follows from it is done or under way."""
        self.life, actions = step(self.life, event)
        for action in actions:
            await self._do(action)

    async def look(self) -> None:
        """Whether its process runs, or any of its tree lives, and what time it is."""
        now, guarded = time.monotonic(), self.guarded
        try:
            runs = guarded is not None and guarded.has_started()
        except ServerNotStarted as error:
            await self.feed(LaunchRefused(now, _not_started(error)))
            return
        if runs and not self._ran and guarded is not None:
            self._ran, self._evidence.log_began = True, guarded.log_began
            await self.feed(ServerRuns(now, guarded.end_s))
        ended = self._poll() if runs else None
        await self.feed(Tick(now) if ended is None else ProcessEnded(now, ended.code))

    def reraise(self) -> None:
        """Raise what broke in our own work beside the main line."""
        for task in [task for task in self._tasks if task.done()]:
            self._tasks.discard(task)
            if not task.cancelled():
                task.result()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something beside the main line until the life is over."""
        self._tasks.add(asyncio.create_task(work))

    def rest(self) -> None:
        """Nothing more is asked of it."""
        for task in self._tasks:
            task.cancel()

    async def exit(self) -> ServerExit:
        """How its processes ended, and a container that its guard could not end any more."""
        async with self._burial:
            if self._exit is None:
                self._exit = await self._buried()
            return self._exit

    async def _buried(self) -> ServerExit:
        ended = self._poll()
        if ended is None or ended.log_ended is not None or self.command is None:
            return ended or ServerExit(None, notes=("the server could not be ended",))
        failed = await asyncio.to_thread(end_without_guard, self.command.around, self.command.env)
        return replace(ended, notes=(failed,)) if failed else ended

    async def diagnosis(self, verdict: Verdict) -> Diagnosis:
        """Why it ended, or is being ended."""
        attached_to = self._endpoint.url if self._spec.engine == "attach" else None
        if (told := without_log(verdict, attached_to)) is not None:
            return told
        if verdict.cause in {Cause.DIED, Cause.STOPPED} or self._examined is None:
            timed_out = verdict.told or None
            self._examined = await self._evidence.diagnosis(self._poll(), self._timeline.phase, timed_out)
        return settled(verdict, self._examined, any_engine=self._template is not None)

    def _poll(self) -> ServerExit | None:
        return self.guarded.poll() if self.guarded is not None else None

    async def _do(self, action: Action) -> None:
        match action:
            case Prove():
                self.start(self._prove())
            case AskAccount():
                await self._ask_account()
            case Probe():
                self.start(self._probe(action.limit_s * _ANSWER_SHARE))
            case Warn():
                self.warnings.append(action.text)
            case Examine():
                await self._examine(action.told)
            case AbortAll():
                await self._endpoint.abort_all()
                await self.feed(RequestsDropped(time.monotonic()))
            case Terminate() if self.guarded is not None:
                self.guarded.request_stop(action.grace_s)
            case Kill() if self.guarded is not None:
                self.guarded.request_stop(0.0)
            case _:
                pass  # declared: whoever waits sees it in the life

    async def _prove(self) -> None:
        """Until the server has served a request."""
        if self._template is not None:
            await self._template.answered(self._refused)
        else:
            while (refusal := await self._endpoint.refusal()) is not None:
                await self._refused(str(refusal))
                await asyncio.sleep(_RETRY_S)
        await self.look()
        await self.feed(ProofGiven(time.monotonic()))

    async def _refused(self, told: str) -> None:
        await self.feed(ProofRefused(time.monotonic(), told))

    async def _ask_account(self) -> None:
        """Its settings; the files that held secrets for it go, since it has read them."""
        for path in self.command.files if self.command is not None else ():
            path.unlink(missing_ok=True)
        if self._template is not None:
            self._evidence.ready_at_line = await asyncio.to_thread(self._evidence.log.lines)
        resolved = scrub(await self._endpoint.info())
        pid, phases = self.guarded.pid if self.guarded else None, self._timeline.phases
        url, trial_id = self._endpoint.url, self._spec.trial_id
        found = self.software
        self.ready = ServerReady(trial_id, url, pid, self.lived_s, phases, resolved, found.sglang, found)
        await self.look()
        await self.feed(AccountGiven(time.monotonic(), faked_account(self._spec, resolved)))

    async def _probe(self, limit_s: float) -> None:
        """One request, and what the health path says meanwhile."""
        path = self._spec.ready_path
        unhealthy, refusal = await asyncio.gather(
            self._endpoint.unready(path, limit_s), self._endpoint.refusal(limit_s)
        )
        await self.feed(HealthAnswered(time.monotonic(), unhealthy or f"{path} answered 200"))
        if refusal is None:
            await self.feed(ProofGiven(time.monotonic()))
        else:
            told = str(refusal) if self._template is not None else f"/generate: {refusal}"
            await self.feed(ProofRefused(time.monotonic(), told, refusal.reached))

    async def _examine(self, told: str) -> None:
        found = await self._evidence.diagnosis(None, self._timeline.phase, told)
        has_cause = found.label is not Label.START_TIMEOUT
        if has_cause or told:
            self._examined = found
        if not isinstance(self.life.state, Stopping):
            await self.feed(Examined(time.monotonic(), has_cause))


def _not_started(error: ServerNotStarted) -> Diagnosis:
    label = Label.COMMAND_NOT_FOUND if error.missing else Label.UNKNOWN
    return Diagnosis(Label.USER_COMMAND if error.by_user_command else label, Phase.LAUNCH, str(error))
