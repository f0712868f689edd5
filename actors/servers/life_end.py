"""How a life is brought to its end, a part of the lifecycle: requests dropped, SIGTERM, SIGKILL, given up. Pure."""

from __future__ import annotations

from dataclasses import replace

from actors.servers.life_event import Event, LaunchRefused, ProcessEnded, RequestsDropped, ServerRuns, StopAsked
from actors.servers.life_state import (
    AbortAll,
    Action,
    Cause,
    DeclareDead,
    Ended,
    Examine,
    Kill,
    Life,
    Stopping,
    Terminate,
    Verdict,
)

Step = tuple[Life, tuple[Action, ...]]


def go_on_stopping(life: Life, state: Stopping, event: Event) -> Step:
    match event:
        case ProcessEnded():
            return over(life, replace(state.verdict, exit_code=event.exit_code))
        case LaunchRefused():
            return over(life, replace(state.verdict, refused=event.diagnosis))
        case ServerRuns() if state.stage == "terminating":  # the order to end it came before it ran
            more_s = max(0.0, event.aside_s - life.signs.aside_s)
            signs = replace(life.signs, began_s=life.now_s, aside_s=life.signs.aside_s + more_s)
            state = replace(state, due_s=state.due_s + more_s)
            return replace(life, signs=signs, state=state), (Terminate(state.grace_s),)
        case StopAsked() if state.stage == "dropping":
            return _terminate(life, replace(state, grace_s=min(state.grace_s, event.grace_s)))
        case StopAsked() if state.stage == "terminating" and _due_s(life, event.grace_s) < state.due_s:
            return _terminate(life, replace(state, grace_s=event.grace_s))
        case RequestsDropped() if state.stage == "dropping":
            return _terminate(life, state)
    if life.now_s < state.due_s:
        return life, ()
    if state.stage == "dropping":
        return _terminate(life, state)
    if state.stage == "terminating":
        return replace(life, state=replace(state, stage="killing", due_s=life.now_s + life.rules.kill_s)), (Kill(),)
    return over(life, replace(state.verdict, survived=True))


def stop(life: Life, grace_s: float) -> Step:
    verdict = verdict_on(life, Cause.STOPPED)
    if life.is_ready and life.rules.proof != "attached":
        due_s = life.now_s + life.rules.abort_s
        return replace(life, state=Stopping("dropping", due_s, grace_s, verdict)), (AbortAll(),)
    return end(life, verdict, grace_s)


def give_up(life: Life, cause: Cause, told: str, *, grace_s: float | None = None) -> Step:
    """Its log is read before it is ended: what it says after that is about the end."""
    verdict = verdict_on(life, cause, told=told)
    ended, actions = end(life, verdict, life.rules.grace_s if grace_s is None else grace_s)
    was_examined = cause in {Cause.LINGERED, Cause.REFUSED} or life.rules.proof == "attached"
    return ended, actions if was_examined else (Examine(_too_long(life, told)), *actions)


def _too_long(life: Life, told: str) -> str:
    """What another server answered belongs to it, since its log says nothing to us."""
    refusal = life.signs.refusal
    return f"{told}; {refusal}" if refusal and life.rules.proof == "answer" and not life.is_ready else told


def end(life: Life, verdict: Verdict, grace_s: float) -> Step:
    """Begin to end it; a server that we did not start is only left alone."""
    if life.rules.proof == "attached":
        return over(life, verdict)
    return _terminate(life, Stopping("terminating", life.now_s, grace_s, verdict))


def _terminate(life: Life, state: Stopping) -> Step:
    stopping = replace(state, stage="terminating", due_s=_due_s(life, state.grace_s))
    return replace(life, state=stopping), (Terminate(state.grace_s),)


def _due_s(life: Life, grace_s: float) -> float:
    """The guard kills after the grace; what it does besides takes a while, and then we tell it once more."""
    return life.now_s + grace_s + life.signs.aside_s


def over(life: Life, verdict: Verdict) -> Step:
    return replace(life, state=Ended(verdict)), (DeclareDead(verdict),)


def verdict_on(life: Life, cause: Cause, *, told: str = "", exit_code: int | None = None) -> Verdict:
    return Verdict(cause, life.signs.phase, told, life.signs.refusal, exit_code)
