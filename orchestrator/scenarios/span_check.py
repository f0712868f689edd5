"""What contradicts itself where a server runs on several hosts (`slots.nnodes`). Pure."""

from __future__ import annotations

from collections.abc import Sequence

from actors.servers.container import Needs, containerised
from orchestrator.scenarios.scenario import Scenario

Fault = tuple[tuple[str | int, ...], str]

SPANNING_ENGINES = frozenset({"sglang", "emulator"})
# Whether or not a server runs on several hosts: a rank that is started by hand waits for the others for ever.
_OURS = ("--nnodes", "--node-rank", "--dist-init-addr", "--nccl-init-addr")


def span_fault(scenario: Scenario) -> Fault | None:
    """The first fault, as (path of keys, message), or None."""
    for key, words in (("command", scenario.engine.command), ("extra_args", scenario.engine.extra_args)):
        fault = _our_flag(words) if scenario.engine.kind in SPANNING_ENGINES else None
        if fault is not None:
            place, flag = fault
            return ("engine", key, place), f"is {flag}, which Specsweep gives each host itself: set slots.nnodes"
    if scenario.slots.nnodes == 1:
        return None
    if scenario.engine.kind not in SPANNING_ENGINES:
        what = "loads a server that runs" if scenario.engine.kind == "attach" else "starts a server by one command line"
        return ("slots", "nnodes"), f"is for kinds `sglang` and `emulator`; `{scenario.engine.kind}` {what}"
    if scenario.slots.emulated_gpus:
        return ("slots", "emulated_gpus"), "are on one host; a server of several hosts needs a cluster that has them"
    if scenario.slots.per_host is not None:
        return ("slots", "per_host"), "is for servers on one host; with slots.nnodes a host holds one rank of a slot"
    return _container_fault(scenario)


def _our_flag(words: Sequence[str]) -> tuple[int, str] | None:
    for place, word in enumerate(words):
        flag = word.partition("=")[0].replace("_", "-")
        if flag in _OURS:
            return place, flag
    return None


def _container_fault(scenario: Scenario) -> Fault | None:
    """The ranks meet on ports that they choose themselves, which no `-p` can publish."""
    container = containerised(scenario.engine.command, Needs("run", "name", 1))
    if container is not None and not container.on_host_network:
        return (
            ("engine", "command"),
            "has a network of its own; the ranks of a server on several hosts meet on the hosts' network: "
            "leave --network and -p out (`--network host` is added)",
        )
    return None
