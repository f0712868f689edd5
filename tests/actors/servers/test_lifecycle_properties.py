"""The life of a server as a state machine: whatever may happen, in any order."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

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
    RequestsDropped,
    ServerRuns,
    StopAsked,
    Tick,
    TokensFlowed,
)
from actors.servers.life_state import (
    AbortAll,
    Action,
    Cause,
    DeclareDead,
    DeclareReady,
    Ended,
    Kill,
    Launching,
    Life,
    Proving,
    Rules,
    Serving,
    Starting,
    Stopping,
    Suspect,
    Terminate,
)
from actors.servers.lifecycle import step
from orchestrator.outcome import Diagnosis, Label, Phase
from tests.fakes.lives import ANSWER, ATTACHED, BUSY, IDLE, LOG, READY, lived

TIMES = st.floats(-50.0, 4000.0)
EVENTS = st.one_of(
    st.builds(Tick, TIMES),
    st.builds(LaunchBegan, TIMES, st.floats(0.0, 60.0)),
    st.builds(LaunchRefused, TIMES, st.just(Diagnosis(Label.UNKNOWN, Phase.LAUNCH, "no"))),
    st.builds(ServerRuns, TIMES, st.floats(0.0, 90.0)),
    st.builds(LogMoved, TIMES, st.sampled_from(Phase), st.booleans()),
    st.builds(LogSpoke, TIMES),
    st.builds(ActivitySeen, TIMES, st.sampled_from([None, IDLE, BUSY])),
    st.builds(TokensFlowed, TIMES),
    st.builds(LoadHung, TIMES, st.floats(0.1, 600.0)),
    st.builds(ProofGiven, TIMES),
    st.builds(ProofRefused, TIMES, st.just("503"), st.booleans()),
    st.builds(HealthAnswered, TIMES, st.just("/health answered 200")),
    st.builds(AccountGiven, TIMES, st.sampled_from([None, Diagnosis(Label.UNKNOWN, Phase.READY, "made up")])),
    st.builds(Examined, TIMES, st.booleans()),
    st.builds(StopAsked, TIMES, st.floats(0.0, 120.0)),
    st.builds(RequestsDropped, TIMES),
    st.builds(ProcessEnded, TIMES, st.sampled_from([None, 0, 1, -9, -15])),
)
RULES = st.sampled_from([LOG, ANSWER, ATTACHED])
# Prefixes that lead into every state: random events alone hardly ever make a server ready.
PREFIXES = st.sampled_from([[], READY[:2], READY[:4], READY[:5], READY, [*READY, LoadHung(6.0, 9.0)]])


@settings(max_examples=200, deadline=None)
@given(RULES, PREFIXES, st.lists(EVENTS, max_size=25))
def test_whatever_happens_a_life_is_consistent(rules: Rules, prefix: list[Event], events: list[Event]) -> None:
    seen: list[Event] = []
    done: list[Action] = []
    life = Life.begin(rules, 0.0)
    for event in [*prefix, *events]:
        was = life
        life, actions = step(life, event)
        seen.append(event)
        if isinstance(was.state, Ended):
            assert life == was, "once ended it is never anything else"
            assert actions == (), "and nothing is done about it"
        assert life.now_s >= was.now_s, "its clock never goes back"
        for action in actions:
            _allowed(action, rules, was, seen, done)
            done.append(action)
    ends = [action for action in done if isinstance(action, DeclareDead)]
    assert len(ends) == isinstance(life.state, Ended), "one verdict for a life that ended, none for one that goes on"


def _allowed(action: Action, rules: Rules, was: Life, seen: list[Event], done: list[Action]) -> None:
    kinds = {type(event) for event in seen}
    if isinstance(action, DeclareReady):
        assert {ServerRuns, ProofGiven, AccountGiven} <= kinds
        assert ProcessEnded not in kinds, "a dead server is never ready"
        assert rules.proof != "log" or any(isinstance(e, LogMoved) and e.said_ready for e in seen)
        assert StopAsked not in kinds, "nor one that is being stopped"
        assert DeclareReady() not in done
    if isinstance(action, Kill):
        assert any(isinstance(before, Terminate) for before in done), "SIGTERM precedes SIGKILL"
    if isinstance(action, Terminate | Kill | AbortAll):
        assert rules.proof != "attached", "what we did not start we do not end"
    if isinstance(action, DeclareDead) and isinstance(was.state, Stopping):
        assert action.verdict.cause is was.state.verdict.cause, "the end is called what it was meant to be"
    if isinstance(action, DeclareDead) and action.verdict.cause is Cause.DIED:
        assert not isinstance(was.state, Stopping), "an end of ours is no crash"


@settings(max_examples=100, deadline=None)
@given(RULES, PREFIXES, st.lists(EVENTS, max_size=12), st.floats(0.0, 60.0), st.lists(EVENTS, max_size=4))
def test_a_stop_ends_a_life_within_grace_and_what_comes_besides(
    rules: Rules, prefix: list[Event], events: list[Event], grace_s: float, late: list[Event]
) -> None:
    life, _ = lived(rules, *prefix, *events)
    asked_s = life.now_s
    life, _ = step(life, StopAsked(asked_s, grace_s))
    for event in late:  # whatever it is, it comes at this very moment
        life, _ = step(life, replace(event, at_s=asked_s))
    longest_s = rules.abort_s + max(grace_s, rules.grace_s) + life.signs.aside_s + rules.kill_s
    for second in range(0, int(longest_s) + 25, 5):  # each of three stages may end a tick late
        life, _ = step(life, Tick(asked_s + second))

    assert isinstance(life.state, Ended)


def test_the_prefixes_of_the_properties_reach_every_state() -> None:
    reached = {type(lived(LOG, *READY[:n])[0].state) for n in range(len(READY) + 1)}
    suspect = type(lived(LOG, *READY, LoadHung(6.0, 9.0))[0].state)

    assert reached | {suspect} == {Launching, Starting, Proving, Serving, Suspect}
