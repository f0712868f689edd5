"""The life of a server as a state machine: its rules one by one."""

from __future__ import annotations

from dataclasses import replace

import pytest

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
    AskAccount,
    Cause,
    DeclareDead,
    DeclareReady,
    Examine,
    Kill,
    Probe,
    Prove,
    Serving,
    Starting,
    Stopping,
    Suspect,
    Terminate,
    Warn,
)
from actors.servers.lifecycle import step
from orchestrator.outcome import Diagnosis, Label, Phase
from tests.fakes.lives import ANSWER, ATTACHED, BUSY, IDLE, LOG, READY, lived, verdict


def test_a_server_is_ready_by_its_words_then_a_served_request_then_its_account() -> None:
    life, done = lived(LOG, *READY)

    assert life.is_ready
    assert done == [Prove(), AskAccount(), DeclareReady()]


def test_a_served_request_without_the_ready_words_does_not_make_it_ready() -> None:
    life, done = lived(LOG, *READY[:3], ProofGiven(4.0), AccountGiven(5.0))

    assert life.state == Starting()
    assert done == []


def test_a_server_of_another_kind_is_asked_from_the_beginning_and_needs_no_words() -> None:
    life, done = lived(ANSWER, LaunchBegan(0.0, 30.0), ServerRuns(1.0), ProofGiven(4.0), AccountGiven(5.0))

    assert life.state == Serving()
    assert done == [Prove(), AskAccount(), DeclareReady()]


def test_results_that_are_worth_nothing_end_a_server_before_it_is_ready() -> None:
    fault = Diagnosis(Label.CONFIG_CONFLICT, Phase.READY, "results are made up")
    life, done = lived(LOG, *READY[:5], AccountGiven(5.0, fault), ProcessEnded(6.0, -15))

    assert verdict(life).refused == fault
    assert DeclareReady() not in done
    assert done[-2:] == [Terminate(20.0), DeclareDead(verdict(life))]


def test_a_stop_that_we_asked_for_is_never_a_crash() -> None:
    for before in ([], READY[:1], READY[:2], READY[:4], READY):
        life, _ = lived(LOG, *before, StopAsked(9.0, 10.0), ProcessEnded(10.0, -9))
        assert verdict(life).cause is Cause.STOPPED


def test_a_crash_before_the_stop_stays_a_crash() -> None:
    life, done = lived(LOG, *READY, ProcessEnded(8.0, -9), StopAsked(9.0, 10.0))

    assert (verdict(life).cause, verdict(life).exit_code) == (Cause.DIED, -9)
    assert not any(isinstance(action, Terminate) for action in done)


def test_a_serving_server_drops_its_requests_before_sigterm_and_is_killed_after_grace_and_what_comes_besides() -> None:
    life, done = lived(LOG, *READY, StopAsked(10.0, 20.0))
    assert done[-1] == AbortAll()
    life, actions = step(life, RequestsDropped(11.0))
    assert actions == (Terminate(20.0),)
    assert step(life, Tick(35.9))[1] == ()
    life, actions = step(life, Tick(36.0))
    assert actions == (Kill(),)
    life, actions = step(life, Tick(51.0))
    assert verdict(life).survived


def test_requests_that_are_not_dropped_in_time_do_not_hold_up_the_stop() -> None:
    life, _ = lived(LOG, *READY, StopAsked(10.0, 20.0))

    assert step(life, Tick(14.9))[1] == ()
    assert step(life, Tick(15.0))[1] == (Terminate(20.0),)


def test_a_later_stop_can_only_shorten_the_grace() -> None:
    life, _ = lived(LOG, *READY[:3], StopAsked(10.0, 20.0))

    assert step(life, StopAsked(11.0, 60.0))[1] == ()
    assert step(life, StopAsked(11.0, 1.0))[1] == (Terminate(1.0),)


def test_a_server_that_was_attached_to_is_left_alone_by_every_end() -> None:
    for rest in ([StopAsked(9.0, 1.0)], [ProofGiven(2.0), AccountGiven(3.0), StopAsked(9.0, 1.0)]):
        life, done = lived(ATTACHED, ServerRuns(1.0), *rest)
        assert verdict(life).cause is Cause.STOPPED
        assert not {type(action) for action in done} & {Terminate, Kill, AbortAll, Examine}


def test_an_attached_server_that_says_503_while_tokens_flow_is_alive_and_one_that_is_not_there_is_gone() -> None:
    ready = [ServerRuns(1.0), ProofGiven(2.0), AccountGiven(3.0)]
    life, _ = lived(ATTACHED, *ready, TokensFlowed(90.0), ProofRefused(91.0, "503: queue is full"))
    assert life.state == Serving()

    life, _ = lived(ATTACHED, *ready, ProofRefused(91.0, "503: queue is full"))
    assert isinstance(life.state, Suspect)
    assert step(life, ProofGiven(95.0))[0].state == Serving()
    assert verdict(step(life, ProofRefused(121.0, "503: queue is full"))[0]).cause is Cause.HUNG

    life, _ = lived(ATTACHED, *ready, ProofRefused(91.0, "no answer: refused", reached=False))
    assert verdict(life).cause is Cause.GONE


def test_a_silent_start_is_ended_with_what_was_silent_for_how_long_and_where_the_budget_comes_from() -> None:
    life, done = lived(LOG, *READY[:3], ActivitySeen(61.9, IDLE))
    assert done == []
    life, actions = step(life, ActivitySeen(62.0, IDLE))
    told = (
        "silent in phase weights for 60 s: no line in its log, no CPU time or disk traffic of its 5 process(es); "
        "allowed are 60 s (3 earlier starts took at most 68 s)"
    )
    assert actions == (Examine(told), Terminate(20.0))
    assert verdict(step(life, ProcessEnded(63.0, -15))[0]).cause is Cause.STALLED


@pytest.mark.parametrize(
    "sign",
    [
        LogSpoke(60.0),
        LogMoved(60.0, Phase.WEIGHTS),
        ActivitySeen(60.0, BUSY),
        ActivitySeen(60.0, None),
        ActivitySeen(60.0, replace(IDLE, moved_bytes=5 << 20)),
        ActivitySeen(60.0, replace(IDLE, gpu_percent=3)),
    ],
    ids=["a line", "a bar", "cpu", "cannot be seen", "disk", "gpu"],
)
def test_any_sign_of_life_begins_the_silence_anew(sign: Event) -> None:
    life, done = lived(LOG, *READY[:3], sign, ActivitySeen(119.0, IDLE))

    assert (life.state, done) == (Starting(), [])
    assert isinstance(step(life, ActivitySeen(120.0, IDLE))[0].state, Stopping)


def test_time_alone_is_no_silence_since_only_a_look_at_the_processes_shows_it() -> None:
    life, _ = lived(LOG, *READY[:3], *(Tick(float(second)) for second in range(3, 800)))

    assert life.state == Starting()


def test_a_phase_without_a_budget_may_be_silent_up_to_the_hard_limits() -> None:
    life, _ = lived(LOG, *READY[:2], LogMoved(2.0, Phase.KV_POOL), ActivitySeen(800.0, IDLE))
    assert life.state == Starting()

    _, actions = step(life, Tick(902.0))
    assert actions == (Examine("no sign of progress in phase kv_pool for 900 s"), Terminate(20.0))


def test_a_busy_phase_over_its_budget_is_told_once_and_again_when_the_time_has_doubled_but_not_ended() -> None:
    events = [event for second in range(10, 880, 5) for event in (ActivitySeen(second, BUSY), Tick(second))]
    life, done = lived(LOG, *READY[:3], *events)

    assert life.state == Starting()
    assert [action for action in done if action != Examine()] == [
        Warn("weights: 203 s by now, at most 200 s were expected (3 earlier starts took at most 68 s); it goes on"),
        Warn("weights: 408 s by now, at most 200 s were expected (3 earlier starts took at most 68 s); it goes on"),
        Warn("weights: 818 s by now, at most 200 s were expected (3 earlier starts took at most 68 s); it goes on"),
    ]


def test_the_hard_limit_of_a_start_holds_however_busy_it_is() -> None:
    moving = [LogMoved(float(second), Phase.WEIGHTS) for second in range(3, 1800, 7)]
    life, _ = lived(LOG, *READY[:3], *moving)

    assert step(life, Tick(1801.0))[1] == (Examine("not ready after 1800 s"), Terminate(20.0))


def test_a_quiet_start_has_its_log_read_and_is_ended_only_if_that_names_a_cause() -> None:
    life, done = lived(LOG, *READY[:3], Tick(31.9), Tick(32.0), Tick(33.0), Tick(62.0))
    assert done == [Examine(), Examine()]
    assert step(life, Examined(62.1, has_cause=False))[0].state == Starting()

    life, actions = step(life, Examined(62.1, has_cause=True))
    assert actions == (Terminate(20.0),)
    assert verdict(step(life, ProcessEnded(63.0, -15))[0]).cause is Cause.LINGERED


def test_what_health_says_neither_ends_a_server_nor_saves_it() -> None:
    life, _ = lived(LOG, *READY, HealthAnswered(6.0, "/health answered 503"), TokensFlowed(7.0))
    assert life.state == Serving()

    life, done = lived(LOG, *READY, ActivitySeen(125.0, IDLE))
    assert done[-1] == Probe(30.0)
    told = [
        HealthAnswered(126.0, "/health answered 200"),
        ProofRefused(149.0, "/generate: no answer: nothing within 24 s"),
    ]
    for event in told:
        life, actions = step(life, event)
        assert actions == ()
    life, actions = step(life, ActivitySeen(155.0, IDLE))
    why = (
        "silent while serving for 120 s: no line about work in its log, no CPU time or disk traffic of its 5 "
        "process(es); allowed are 120 s (default); /health answered 200, but /generate: no answer: nothing within 24 s"
    )
    assert actions == (Examine(why), Terminate(20.0))
    assert verdict(step(life, ProcessEnded(156.0, -15))[0]).cause is Cause.HUNG


@pytest.mark.parametrize(
    "sign",
    [
        TokensFlowed(150.0),
        LogSpoke(150.0),
        ProofGiven(150.0),
        ActivitySeen(150.0, BUSY),
        ActivitySeen(150.0, None),
    ],
    ids=["tokens", "a line", "an answer", "cpu", "cannot be seen"],
)
def test_a_suspect_that_shows_life_serves_on_whatever_health_says(sign: Event) -> None:
    health = HealthAnswered(140.0, "/health answered 503")
    life, _ = lived(LOG, *READY, ActivitySeen(125.0, IDLE), health, sign, Tick(200.0))

    assert life.state == Serving()


def test_a_load_that_hung_has_the_server_asked_and_cpu_time_is_no_excuse() -> None:
    life, done = lived(LOG, *READY, TokensFlowed(100.0), LoadHung(700.0, 600.0), ActivitySeen(720.0, BUSY))
    assert done[-1] == Probe(30.0)
    assert isinstance(life.state, Suspect)
    assert step(life, ProofGiven(721.0))[0].state == Serving()

    life, _ = step(life, Tick(730.0))
    assert isinstance(life.state, Stopping)
    assert life.state.verdict.told == ("no request of the load got a byte for 600 s; our own request was not answered")


def test_a_guard_that_does_not_answer_is_given_up() -> None:
    life, done = lived(LOG, LaunchBegan(0.0, 30.0), Tick(30.0), Tick(30.0), Tick(45.0))

    assert (verdict(life).cause, verdict(life).told, verdict(life).survived) == (
        Cause.REFUSED,
        "the guard did not answer",
        True,
    )
    assert [type(action) for action in done] == [Terminate, Kill, DeclareDead]


def test_a_stop_while_the_launch_is_refused_is_a_stop() -> None:
    missing = Diagnosis(Label.COMMAND_NOT_FOUND, Phase.LAUNCH, "no such file")
    life, _ = lived(LOG, StopAsked(1.0, 5.0), LaunchRefused(2.0, missing))

    assert (verdict(life).cause, verdict(life).refused) == (Cause.STOPPED, missing)
