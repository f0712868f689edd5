"""One run of one load client against the streaming server: what it cost, what it says, and what is true."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench_rig import BenchServer, ChildRun, Cores, run_child
from benchmarks.peers.peer import NOT_INSTALLED, Peer, all_peers
from benchmarks.peers.work import Kept, Reading, Work
from benchmarks.stream_script import Script

RAW, OURS = "raw reader", "specsweep"
TIME_UP = "not measured: the time of the benchmark was up"

# Tokens of a run whose gaps are told one by one; of longer ones that would be what is measured.
_MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Client:
    """A client under measurement: the floor, ours, or a peer."""

    name: str
    version: str
    peer: Peer | None = None

    @property
    def missing(self) -> str | None:
        return NOT_INSTALLED if self.peer is not None and not self.peer.installed else None

    def words(self, work: Work) -> list[str]:
        if self.peer is not None:
            return self.peer.words(work)
        module = "benchmarks.raw_reader" if self.name == RAW else "benchmarks.own_client"
        words = [sys.executable, "-m", module, work.url, "--concurrency", str(work.concurrency)]
        words += ["--requests", str(work.requests), "--output-tokens", str(work.output_tokens)]
        if self.name == RAW:
            return words
        words += ["--api", work.api, "--input-tokens", str(work.input_tokens)]
        return [*words, "--answers"] if work.requests * work.output_tokens <= _MOST_KEPT else words


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run that ended. `trouble`: why there is no reading. `digests` are beside the reading's `ttft_ms`;
    `sent` are the requests that were asked for."""

    child: ChildRun
    truth: dict[str, Any]
    reading: Reading | None
    digests: tuple[str, ...] = ()
    trouble: str | None = None
    sent: int = 0

    @property
    def told(self) -> list[dict[str, Any]]:
        """The server's account of the requests that count: warm-up and trial requests of a client come first."""
        requests: list[dict[str, Any]] = self.truth["requests"]
        return requests[max(0, len(requests) - self.sent) :]

    def ttft_errors_ms(self) -> tuple[list[float], str]:
        """TTFT by the client minus TTFT by the server, and how the two were paired.

        By prompt where the client tells which is which. Else both are sorted and paired by rank, which can only make
        the client look better.
        """
        ok = [told for told in self.told if told["status"] == "ok"]
        all_ms = [(told["first_ns"] - told["arrived_ns"]) / 1e6 for told in ok]
        true_ms = {told["digest"]: ms for told, ms in zip(ok, all_ms, strict=True)}  # fewer where prompts are the same
        said = self.reading.ttft_ms if self.reading else []
        if self.digests and len(true_ms) == len(ok):
            pairs = zip(said, self.digests, strict=True)
            return [ms - true_ms[digest] for ms, digest in pairs if digest in true_ms], "by prompt"
        if len(said) != len(ok):
            return [], f"{len(said)} TTFTs reported for {len(ok)} answers"
        return list(np.sort(said) - np.sort(all_ms)), "by rank"


class ClientRuns:
    """Runs clients on the rig. Every child gets a folder of its own, gone afterwards."""

    def __init__(self, server: BenchServer, cores: Cores, time_left_s: Callable[[], float]) -> None:
        self._server, self._cores, self._time_left_s = server, cores, time_left_s

    def run(self, client: Client, script: Script, work: Work, limit_s: float = 120.0) -> Outcome:
        """Run to the end or the limit. Whatever goes wrong is in the outcome, never an exception."""
        with tempfile.TemporaryDirectory(prefix="specsweep-bench-") as name:
            work = replace(work, url=self._server.url, folder=Path(name), workers=len(self._cores.clients))
            self._server.begin(script)
            child = run_child(
                client.words(work),
                self._cores.clients,
                limit_s=max(1.0, min(limit_s, self._time_left_s())),
                server=self._server,
                cwd=None if client.peer is None else work.folder,
                environment=client.peer.whole_environment(work) if client.peer else None,
            )
            truth = self._server.truth()
            if child.code is None and self._time_left_s() <= 1.0:
                return Outcome(child, truth, None, trouble=TIME_UP, sent=work.requests)
            return _outcome(client, work, child, truth)


def _outcome(client: Client, work: Work, child: ChildRun, truth: dict[str, Any]) -> Outcome:
    sent = work.requests
    if child.code != 0:
        how = f"stopped after {child.wall_s:.0f} s" if child.code is None else f"exit code {child.code}"
        return Outcome(child, truth, None, trouble=f"{how}: {child.last_words}", sent=sent)
    try:
        if client.peer is not None:
            return Outcome(child, truth, client.peer.read(work), sent=sent)
        told = json.loads(child.stdout)
    except (OSError, ValueError, KeyError, IndexError, TypeError) as error:
        return Outcome(child, truth, None, trouble=f"unreadable: {type(error).__name__}: {error}", sent=sent)
    answers = [Kept(first, tuple(gaps), tokens) for first, gaps, tokens in told.get("answers", [])]
    reading = Reading(
        completed=told["completed"],
        failed=told["failed"],
        ttft_ms=told["ttft_ms"],
        tpot_ms=[sum(answer.gaps_ms) / (answer.tokens - 1) for answer in answers if answer.tokens > 1],
        itl_ms=[gap for answer in answers for gap in answer.gaps_ms],
        throughput_tok_s=told.get("throughput_tok_s"),
        answers=answers,
        summary=told.get("metrics", {}),
    )
    return Outcome(child, truth, reading, tuple(told["digests"]), sent=sent)


def clients(only: Sequence[str] = (), *, peers: bool = True) -> list[Client]:
    """The floor and ours first, then the peers; `only` keeps these and the floor."""
    found = [Client(RAW, ""), Client(OURS, "")]
    if peers:
        found += [Client(peer.name, peer.version, peer) for peer in all_peers()]
    return [client for client in found if not only or client.name in {RAW, *only}]
