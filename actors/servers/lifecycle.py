"""The life of a server as a state machine: (life, event) -> (life, what is to be done). No I/O, no clock.

A server is never ready without what its rules call a proof. Once ended it is never anything else, whatever comes late.
An end that we were asked for is that and no crash. SIGTERM comes before SIGKILL. docs/lifecycle.md has it as a table.
"""

from __future__ import annotations

from dataclasses import replace

from actors.servers.life_end import Step, end, give_up, go_on_stopping, over, stop, verdict_on
from actors.servers.life_event import (
    AccountGiven,
    ActivitySeen,
    Event,
    Examined,
    HealthAnswered,
    LaunchBegan,
    LaunchRefused,
    LoadHung,
    LogMoved,
    LogSpoke,
    ProcessEnded,
    ProofGiven,
    ProofRefused,
    ServerRuns,
    StopAsked,
    Tick,
    TokensFlowed,
)
from actors.servers.life_state import (
    AskAccount,
    Cause,
    DeclareReady,
    Ended,
    Examine,
    Launching,
    Life,
    Probe,
    Prove,
    Proving,
    Serving,
    Signs,
    Starting,
    Stopping,
    Suspect,
    Warn,
)
from orchestrator.outcome import Phase


def step(life: Life, event: Event) -> Step:
    """The life after an event, and what is to be done, in this order."""
    if isinstance(life.state, Ended):
        return life, ()  # also its clock stands still
    life = replace(life, now_s=max(life.now_s, event.at_s))
    state = life.state
    if isinstance(state, Stopping):
        return go_on_stopping(life, state, event)
    if isinstance(event, ProcessEnded):
        return over(life, verdict_on(life, Cause.DIED, exit_code=event.exit_code))
    if isinstance(event, StopAsked):
        return stop(life, event.grace_s)
    match state:
        case Launching():
            return _launching(life, state, event)
        case Starting() | Proving():
            return _starting(life, event)
        case Serving():
            return _serving(life, event)
        case Suspect():
            return _suspect(life, state, event)
        case Ended():
            return life, ()


def _launching(life: Life, state: Launching, event: Event) -> Step:
    match event:
        case LaunchBegan():
            return replace(life, state=Launching(life.now_s + event.within_s)), ()
        case LaunchRefused():
            return over(life, replace(verdict_on(life, Cause.REFUSED), refused=event.diagnosis))
        case ServerRuns():
            return _run(life, event)
        case Tick() if life.now_s >= state.until_s:
            return give_up(life, Cause.REFUSED, "the guard did not answer", grace_s=0.0)
    return life, ()


def _run(life: Life, event: ServerRuns) -> Step:
    """What came before the server is not its start."""
    now = life.now_s
    signs = Signs(now, Phase.LAUNCH, now, now, now, aside_s=event.aside_s, warn_s=_allowed_s(life, Phase.LAUNCH))
    if life.rules.proof == "log":
        return replace(life, signs=signs, state=Starting()), ()
    return replace(life, signs=signs, state=Proving()), (Prove(),)


def _starting(life: Life, event: Event) -> Step:
    """Starting or proving: it becomes ready, or is given up."""
    state = life.state
    match event:
        case LogMoved():
            return _moved(life, event)
        case LogSpoke():
            return _stirred(life), ()
        case ActivitySeen():
            return _stirs(life, event)
        case ProofRefused():
            life = _noted(life, refusal=event.told)
            too_long = life.rules.proof == "attached" and _lived_s(life) >= life.rules.start_s
            return give_up(life, Cause.OVERDUE, "") if too_long and state == Proving() else (life, ())
        case ProofGiven() if state == Proving():
            return replace(_stirred(life), state=Proving(is_proven=True)), (AskAccount(),)
        case AccountGiven(fault=None) if state == Proving(is_proven=True):
            return replace(_stirred(life), state=Serving()), (DeclareReady(),)
        case AccountGiven() if state == Proving(is_proven=True):
            disqualified = replace(verdict_on(life, Cause.DISQUALIFIED), refused=event.fault)
            return end(life, disqualified, life.rules.grace_s)
        case Examined(has_cause=True) if life.rules.proof == "log":
            return give_up(life, Cause.LINGERED, "")
        case Tick():
            return _waited(life)
    return life, ()


def _moved(life: Life, event: LogMoved) -> Step:
    now, signs = life.now_s, life.signs
    if event.phase is not signs.phase:
        signs = replace(signs, phase=event.phase, phase_since_s=now, warn_s=_allowed_s(life, event.phase))
    life = replace(life, signs=replace(signs, moved_s=now, stirred_s=now))
    if event.said_ready and isinstance(life.state, Starting):
        return replace(life, state=Proving()), (Prove(),)
    return life, ()


def _stirs(life: Life, event: ActivitySeen) -> Step:
    """A start is only silent while an idle sample says so; the other signs may be in other places."""
    if event.activity is None or not event.activity.is_idle:
        return _stirred(life), ()
    budget, quiet_s = life.rules.budget(life.signs.phase), life.now_s - life.signs.stirred_s
    if budget is None or quiet_s < budget.silent_s:
        return life, ()
    told = (
        f"silent in phase {life.signs.phase} for {quiet_s:.0f} s: no line in its log, {event.activity}; "
        f"allowed are {budget.silent_s:g} s ({budget.silent_source})"
    )
    return give_up(life, Cause.STALLED, told)


def _waited(life: Life) -> Step:
    """Time has passed in a start: a hard limit, a log that has to be read again, or a phase that takes long."""
    rules, signs, now = life.rules, life.signs, life.now_s
    if rules.proof == "attached":
        return life, ()
    if _lived_s(life) >= rules.start_s:
        return give_up(life, Cause.OVERDUE, f"not ready after {rules.start_s:g} s")
    if rules.proof == "log":
        quiet_s = now - signs.moved_s
        if quiet_s >= rules.stuck_s:
            told = f"no sign of progress in phase {signs.phase} for {rules.stuck_s:g} s"
            return give_up(life, Cause.OVERDUE, told)
        if quiet_s >= rules.linger_s and now - signs.examined_s >= rules.linger_s:
            return _noted(life, examined_s=now), (Examine(),)
    in_phase_s, budget = now - signs.phase_since_s, rules.budget(signs.phase)
    if budget is not None and in_phase_s >= signs.warn_s:
        expected = f"at most {budget.total_s:.0f} s were expected ({budget.source})"
        told = f"{signs.phase}: {in_phase_s:.0f} s by now, {expected}; it goes on"
        return _noted(life, warn_s=2 * in_phase_s), (Warn(told),)
    return life, ()


def _serving(life: Life, event: Event) -> Step:
    match event:
        case LogMoved() | LogSpoke() | ProofGiven():
            return _stirred(life), ()
        case TokensFlowed():
            return _noted(_stirred(life), tokens_s=life.now_s), ()
        case ActivitySeen():
            return _maybe_hung(life, event)
        case LoadHung():
            why = f"no request of the load got a byte for {event.quiet_s:g} s"
            limit_s = min(life.rules.suspect_s, event.quiet_s)
            return replace(life, state=Suspect(life.now_s, limit_s, why, busy_counts=False)), (Probe(limit_s),)
        case ProofRefused() if life.rules.proof == "attached":
            return _attached_refused(life, event)
        case ProofRefused():
            return _noted(life, refusal=event.told), ()
        case HealthAnswered():
            return _noted(life, health=event.told), ()
    return life, ()


def _attached_refused(life: Life, event: ProofRefused) -> Step:
    """Nobody there is an end; an answer, be it 503, is none while requests of the load get their tokens."""
    life = _noted(life, refusal=event.told)
    if not event.reached:
        return give_up(life, Cause.GONE, event.told)
    if life.now_s - life.signs.tokens_s < life.rules.suspect_s:
        return life, ()
    return replace(life, state=Suspect(life.now_s, life.rules.suspect_s, "it served no request", busy_counts=False)), ()


def _maybe_hung(life: Life, event: ActivitySeen) -> Step:
    if event.activity is None or not event.activity.is_idle:
        return _stirred(life), ()
    budget, quiet_s = life.rules.budget(Phase.SERVING), life.now_s - life.signs.stirred_s
    if budget is None or quiet_s < budget.silent_s:
        return life, ()
    why = (
        f"silent while serving for {quiet_s:.0f} s: no line about work in its log, {event.activity}; "
        f"allowed are {budget.silent_s:g} s ({budget.silent_source})"
    )
    limit_s = life.rules.suspect_s
    life = _noted(life, refusal="", health="")
    return replace(life, state=Suspect(life.now_s, limit_s, why)), (Probe(limit_s),)


def _suspect(life: Life, state: Suspect, event: Event) -> Step:
    """Any work clears it; what health says does not, be it 200 or 503."""
    match event:
        case ProofGiven() | TokensFlowed() | LogMoved() | LogSpoke():
            return _serving(replace(life, state=Serving()), event)
        case ActivitySeen() if event.activity is None or not event.activity.is_idle:
            if state.busy_counts:
                return replace(_stirred(life), state=Serving()), ()
        case HealthAnswered():
            return _noted(life, health=event.told), ()
        case ProofRefused() if not event.reached and life.rules.proof == "attached":
            return give_up(life, Cause.GONE, event.told)
        case ProofRefused():
            life = _noted(life, refusal=event.told)
    if life.now_s - state.since_s < state.limit_s:
        return life, ()
    answers = [life.signs.health, life.signs.refusal or "our own request was not answered"]
    return give_up(life, Cause.HUNG, "; ".join([state.why, ", but ".join(filter(None, answers))]))


def _stirred(life: Life) -> Life:
    return replace(life, signs=replace(life.signs, stirred_s=life.now_s))


def _noted(life: Life, **seen: object) -> Life:
    return replace(life, signs=replace(life.signs, **seen))  # type: ignore[arg-type]


def _lived_s(life: Life) -> float:
    return life.now_s - life.signs.began_s


def _allowed_s(life: Life, phase: Phase) -> float:
    budget = life.rules.budget(phase)
    return float("inf") if budget is None else budget.total_s
