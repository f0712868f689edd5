"""docs/lifecycle.md, made by asking the state machine itself what it does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from orchestrator.server_start import PhaseBudget
from orchestrator.starts.phase_budget import DEFAULTS, FACTORS, FLOOR_S, LEAST_SILENCE_S

HEAD = """\
# The life of a server

What a server is taken for, on what grounds, and when it is given up. The tables are made by asking the state machine
(`actors/servers/lifecycle.py`); this page is generated (`make docs`).

* **Ready** is a server that has said SGLang's ready words, whose process lives, and that has then served a request of
  ours. One of another kind is ready by its ready path and that request, one that was attached to by the request alone.
* **Health is told, never believed.** `/health` answers 200 on servers that will never give a token again, and 503 on
  servers that are only slow. Tokens, lines about work and served requests decide.
* **A stall is found from silence**: no line or bar in the log, no CPU time, no disk traffic and no GPU activity of its
  processes, for longer than the phase may be silent. Busy is not hung: a compiler or a slow disk may take its time, up
  to the hard limits. What cannot be seen (a container of another user) is never called silent.
* **An end that we were asked for is no crash**, whatever exit code it has; a cause that stands in the log is one,
  whoever ended the server.
"""

BUDGETS = """
## What a phase may take

Until earlier starts are known:

| phase | expected | silent at most | why |
|---|---|---|---|
{rows}

The start of a server of another kind is one phase, expected to take 1800 s and silent for 600 s at most.

Earlier starts of the model, with the same kind of engine and as many GPUs, are read from the run directories beside
the run's own, the newest first; those of the run itself are added as they come. Then the longest counts, times
{factors}, plus {floor:g} s. For the captures of graphs it is scaled to
the number of batch sizes, where the settings say it. A phase that was quick may be silent for as long as it may take,
{least:g} s at least, and never longer than by the table.

To override: `timeouts.silent_s` is how long a server may be silent in any phase and while serving. `timeouts.phase_s`,
where it is not the default, is taken for the phases of a start. Hard limits that no work puts off: `timeouts.start_s`
for the whole start, `timeouts.phase_s` without progress in the log.

Silence while serving ends no server by itself, since idle is no hang: it is then asked for one token, and ended if it
has not given it within {suspect:g} s. If the load of a point had no byte for `timeouts.request_s`, the server is asked
in the same way, and CPU time is no excuse: ranks that wait for each other use it as well.

## What is said, and what to do

| message | meaning | what to do |
|---|---|---|
{messages}
"""

MESSAGES = (
    (
        "`weights: 412 s by now, at most 220 s were expected (5 earlier starts took at most 95 s); it goes on`",
        "slower than it ever was, but at work; nothing is ended",
        "look at the disk or the network, if it comes again",
    ),
    (
        "`start_timeout`: `silent in phase P for N s: no line in its log, ...; allowed are M s (...)`",
        "it did nothing at all for too long; the brackets say where the limit is from",
        "`py-spy dump` on a start by hand: ranks that wait for a peer, a lock file of a compiler, a dead network disk. "
        "If it was right to wait: `timeouts.silent_s`",
    ),
    (
        "`start_timeout`: `no sign of progress in phase P for N s`",
        "its log stood still, whatever its processes did",
        "`timeouts.phase_s`, if the phase needs longer",
    ),
    ("`start_timeout`: `not ready after N s`", "the hard limit of a start", "`timeouts.start_s`"),
    (
        "`start_timeout`: `it said it was ready, but /generate answered ...`",
        "ready words, but no request was served",
        "the answer says why",
    ),
    (
        "`hung`: `silent while serving for N s: ...`",
        "no work, and our own request was not served",
        "its log is stored; the trial is tried once more",
    ),
    (
        "`hung`: `no request of the load got a byte for N s; ...`",
        "the load waited in vain, and so did our own request",
        "as above",
    ),
    (
        "`hung`: `no request made progress ...; the server still runs`",
        "the load waited in vain, our own request was served",
        "`timeouts.request_s`, or the network between load and server",
    ),
    ("`stop_requested`", "we, or somebody with SIGTERM, ended it", "nothing"),
    (
        "note `the server could not be ended`",
        "a process survives SIGKILL",
        "a driver or disk that hangs in the kernel: look at the host",
    ),
)

# What is called how, the event, and the signs that were seen before it.
_Sample = tuple[str, Any, dict[str, Any]]
_KINDS = (
    ("log", "A server of SGLang"),
    ("answer", "A server of another kind: what is different (of its log only silence counts)"),
    ("attached", "A server that was attached to"),
)


def lifecycle_page() -> str:
    """docs/lifecycle.md."""
    from actors.servers.life_state import Rules

    factors = ", ".join(f"{factor:g} (from {starts} on)" for starts, factor in reversed(FACTORS))
    budgets = BUDGETS.format(
        rows="\n".join(f"| `{p}` | {_seconds(d.total_s)} | {d.silent_s:g} s | {d.why} |" for p, d in DEFAULTS.items()),
        messages="\n".join(f"| {' | '.join(row)} |" for row in MESSAGES),
        factors=factors,
        floor=FLOOR_S,
        least=LEAST_SILENCE_S,
        suspect=Rules("log", 0.0, 0.0, 0.0).suspect_s,
    )
    tables = {kind: transitions(kind) for kind, _ in _KINDS}
    parts = [HEAD, "## States\n\n" + _diagram(tables["log"])]
    for kind, title in _KINDS:
        rows = [row for row in tables[kind] if kind != "answer" or row not in tables["log"]]
        parts.append(
            f"### {title}\n\n| state | event | next state | what is done |\n|---|---|---|---|\n" + _table(rows)
        )
    return "\n".join(parts) + budgets


def _seconds(seconds: float) -> str:
    return "-" if seconds == float("inf") else f"{seconds:g} s"


def _table(rows: list[tuple[str, str, str, str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in rows) + "\n"


def _diagram(rows: list[tuple[str, str, str, str]]) -> str:
    edges: dict[tuple[str, str], list[str]] = {}
    for state, event, after, _ in rows:
        edges.setdefault((_kind(state), _kind(after)), []).append(event)
    lines = [
        f"    {state} --> {after}: {'<br/>'.join(dict.fromkeys(events)).replace('`', '')}"
        for (state, after), events in edges.items()
        if state != after
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> Launching", *lines, "    Ended --> [*]", "```", ""])


def _kind(state: str) -> str:
    return state.split(" ", maxsplit=1)[0]


def transitions(proof: Any) -> list[tuple[str, str, str, str]]:
    """(state, event, next state, actions) for all that changes the state or wants something done."""
    from actors.servers.life_event import LaunchRefused, ProcessEnded
    from actors.servers.lifecycle import step

    found = []
    for life in _lives(proof):
        for words, event, seen in _events(life.now_s, _name(life.state)):
            if proof == "attached" and isinstance(event, LaunchRefused | ProcessEnded):
                continue  # it has neither a launch nor processes of ours
            before = replace(life, signs=replace(life.signs, **seen))
            after, actions = step(before, event)
            if _name(after.state) != _name(life.state) or actions:
                row = (_name(life.state), words, _name(after.state), ", ".join(_action(a) for a in actions) or "-")
                found.append(row)
    return found


def _lives(proof: Any) -> list[Any]:
    """A life in every state that such a server can be in."""
    from actors.servers import life_event as happened
    from actors.servers.life_state import Life, Rules
    from actors.servers.lifecycle import step
    from orchestrator.outcome import Phase

    budgets = tuple(PhaseBudget(phase, 200.0, 60.0, "", "") for phase in Phase if proof != "attached")
    begins: dict[str, list[Any]] = {
        "log": [
            happened.LaunchBegan(1.0, 30.0),
            happened.ServerRuns(2.0),
            happened.LogMoved(3.0, Phase.READY, said_ready=True),
        ],
        "answer": [happened.LaunchBegan(1.0, 30.0), happened.ServerRuns(2.0)],
        "attached": [happened.ServerRuns(2.0)],
    }
    suspicion = happened.ProofRefused(99.0, "503") if proof == "attached" else happened.ActivitySeen(99.0, _idle())
    events = [*begins[proof], happened.ProofGiven(4.0), happened.AccountGiven(5.0), suspicion]
    if proof != "attached":
        drop = [happened.StopAsked(100.0, 20.0), happened.RequestsDropped(100.0), happened.Tick(200.0)]
        events += [happened.TokensFlowed(100.0), *drop]
    lives = [Life.begin(Rules(proof, 1800.0, 900.0, 20.0, budgets), 0.0)]
    for event in events:
        life = step(lives[-1], event)[0]
        lives.append(life)
    return list({_name(life.state): life for life in lives}.values())


def _idle() -> Any:
    from actors.servers.life_event import Activity

    return Activity(1.0, 1, 0.0)


def _events(now_s: float, state: str) -> list[_Sample]:
    """(words, event, signs before it) of what may happen in a state, in every way that makes a difference."""
    from actors.servers import life_event as happened
    from actors.servers.life_event import Activity
    from orchestrator.outcome import Diagnosis, Label, Phase

    fault = Diagnosis(Label.UNKNOWN, Phase.READY, "")
    fresh = {"moved_s": now_s, "stirred_s": now_s, "examined_s": now_s, "warn_s": float("inf")}
    any_time: list[_Sample] = [
        ("a stop is asked for", happened.StopAsked(now_s, 0.0), {}),
        ("all its processes are gone", happened.ProcessEnded(now_s, 0), {}),
    ]
    refused = happened.ProofRefused(now_s, "503")
    launch: list[_Sample] = [
        ("not started", happened.LaunchRefused(now_s, fault), {}),
        ("its process runs, or it can be asked", happened.ServerRuns(now_s), {}),
    ]
    start: list[_Sample] = [
        ("ready words in the log", happened.LogMoved(now_s, Phase.READY, said_ready=True), {}),
        ("our request is served", happened.ProofGiven(now_s), {}),
        ("its account is given", happened.AccountGiven(now_s), {}),
        ("its results are worth nothing", happened.AccountGiven(now_s, fault), {}),
        ("processes idle, silent for too long", happened.ActivitySeen(now_s + 60.0, _idle()), fresh),
        ("no log progress for 30 s", happened.Tick(now_s + 30.0), {**fresh, "examined_s": now_s - 30.0}),
        ("log read: it names a cause", happened.Examined(now_s, has_cause=True), {}),
        ("phase longer than expected", happened.Tick(now_s + 1.0), {**fresh, "warn_s": 0.0}),
        ("no log progress for `timeouts.phase_s`", happened.Tick(now_s + 900.0), {**fresh, "began_s": now_s}),
        ("start longer than `timeouts.start_s`", happened.Tick(now_s + 1800.0), fresh),
        ("our request is refused, start longer than a minute", happened.ProofRefused(now_s + 1800.0, "503"), fresh),
    ]
    serving: list[_Sample] = [
        ("our request is served", happened.ProofGiven(now_s), {}),
        ("our request is refused", refused, {}),
        ("our request is refused while tokens flow", refused, {"tokens_s": now_s}),
        ("nobody listens there", happened.ProofRefused(now_s, "gone", reached=False), {}),
        ("lines about work in the log", happened.LogSpoke(now_s), {}),
        ("tokens flow", happened.TokensFlowed(now_s), {}),
        ("processes busy, or not to be seen", happened.ActivitySeen(now_s, Activity(1.0, 1, 1.0)), {}),
        ("processes idle, silent for too long", happened.ActivitySeen(now_s, _idle()), {"stirred_s": now_s - 60.0}),
        ("health says 200 or 503", happened.HealthAnswered(now_s, ""), {}),
        ("load without a byte for too long", happened.LoadHung(now_s, 600.0), {}),
    ]
    time_is_up: _Sample = ("its time is up", happened.Tick(now_s + 100.0), {})
    by_state: dict[str, list[_Sample]] = {
        "Launching": [*launch, time_is_up],
        "Serving": serving,
        "Suspect": [*serving, time_is_up],
        "Stopping": [("requests are dropped", happened.RequestsDropped(now_s), {}), time_is_up],
    }
    return [*by_state.get(_kind(state), start), *any_time]


def _name(state: Any) -> str:
    name = type(state).__name__
    if name == "Stopping":
        return f"Stopping ({state.stage})"
    if name == "Ended":
        return f"Ended ({state.verdict.cause})"
    return f"{name} (served)" if getattr(state, "is_proven", False) else name


def _action(action: Any) -> str:
    words = {
        "Prove": "ask for a token until one comes",
        "AskAccount": "ask for its settings",
        "Probe": "ask for one token, and its health",
        "Warn": "tell the user",
        "Examine": "read the log for a cause",
        "AbortAll": "drop its requests",
        "Terminate": "SIGTERM",
        "Kill": "SIGKILL",
        "DeclareReady": "ready",
        "DeclareDead": "dead",
    }
    return words[type(action).__name__]
