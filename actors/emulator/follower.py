"""A node of a server that serves no requests: its schedulers do what node 0 says, until that ends them or dies."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import FrameType
from typing import TYPE_CHECKING, Any

from actors.emulator.deathbed import Deathbed
from actors.emulator.last_words import words_of
from actors.emulator.log import LogWriter
from actors.emulator.processes import ProcessTree
from actors.emulator.serving_fault import Die
from actors.emulator.span import Span
from actors.emulator.tracebacks import scheduler_traceback

if TYPE_CHECKING:
    from actors.emulator.faults import Faults

_POLL_S = 0.1
_HEALTHY = frozenset({"/health", "/health_generate", "/ping", "/metrics"})


class Follower:
    """One such node, once its schedulers are up."""

    def __init__(self, args: Mapping[str, Any], log: LogWriter, tree: ProcessTree, span: Span) -> None:
        self._args = args
        self._log = log
        self._tree = tree
        self._span = span
        self._ends: list[Die] = []

    def run(self, faults: Faults | None) -> int:
        """Until node 0 says that it is over (0), or a scheduler is gone. The exit code."""
        signal.signal(signal.SIGTERM, self._wait_for_node_0)
        self._answer_health()
        if faults:
            faults.strike_follower(self._ends.append)
        while not self._is_over():
            time.sleep(_POLL_S)
            if self._ends:
                self._die(self._ends.pop())
            if (crash := self._tree.crashed()) is not None:
                return self._lose(crash[1], crash[2])
        pid = self._tree.scheduler_pids[0]
        self._tree.kill()
        return self._lose(pid, 0)

    def _wait_for_node_0(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        self._log.say(
            f"SIGTERM received on node_rank {self._span.ranks.node}; waiting for the rank-0 ShutdownReq broadcast to "
            "stop the schedulers."
        )

    def _answer_health(self) -> None:
        host, port = self._args["host"], self._args["port"]
        server = ThreadingHTTPServer((host, port), _Health)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self._log.say(f"Dummy health check server started in background thread at {host}:{port}")

    def _is_over(self) -> bool:
        broken = self._span.broken()
        if broken is not None and not self._span.is_ended:
            self._log.every_rank(f"Scheduler hit an exception: {scheduler_traceback(broken)}")
            self._bed().end_tree("Received sigquit from a child process. It usually means the child failed.")
        return self._span.is_ended

    def _lose(self, pid: int, code: int) -> int:
        """Its main process outlives a scheduler by a line, and calls it an orderly end."""
        self._span.leave()
        self._log.say(f"Scheduler or DataParallelController {pid} terminated with {code}")
        self._log.say(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=False, pid={os.getpid()}")
        self._tree.kill()
        sys.stderr.flush()
        return 0

    def _die(self, fault: Die) -> None:
        """By script. What ends a scheduler silently is seen by the watch over them."""
        if fault.label == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        words, bed = words_of(fault.label, serving=True), self._bed()
        bed.speak(words, fault.rank)
        if words.ending == "child":
            self._tree.end_rank(fault.rank, -words.code)
            return
        self._span.leave()
        bed.end_tree("Received sigquit from a child process. It usually means the child failed.")

    def _bed(self) -> Deathbed:
        return Deathbed(self._log, dict(self._args), 1.0, self._tree)


class _Health(BaseHTTPRequestHandler):
    """All that such a node says over HTTP."""

    def do_GET(self) -> None:
        """200 as long as the process lives; there is nothing else."""
        self.send_response(200 if self.path in _HEALTHY else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name in the standard library
        """SGLang writes no access log here."""
