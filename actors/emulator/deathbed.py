"""How a server with a fault ends: its last words, and the exit code or signal that its parent sees."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from typing import Any, NoReturn

from actors.emulator.last_words import CHILD_DIED, CHILD_FRAMES, LastWords
from actors.emulator.log import LogWriter
from actors.emulator.processes import ProcessTree, kill_self

SETTLE_S = 5.0


def end_with(code: int) -> NoReturn:
    """End this process at once: below 0 by that signal, whatever handlers there are."""
    sys.stderr.flush()
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
        time.sleep(10.0)  # a signal that does not end a process
    os._exit(max(code, 0))


def hang_for_ever(*, ignore_sigterm: bool = False, busy: bool = False) -> NoReturn:
    """Silence, until SIGTERM or SIGKILL."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN if ignore_sigterm else signal.SIG_DFL)
    while True:
        (spin if busy else time.sleep)(3600)


def spin(seconds: float) -> None:
    """Use a CPU."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


@dataclass
class Deathbed:
    """Ends one server. `tree` is None before it has processes; `speedup` shortens SGLang's own waits."""

    log: LogWriter
    settings: dict[str, Any]
    speedup: float
    tree: ProcessTree | None = None

    def speak(self, words: LastWords, rank: int) -> None:
        """The cause, as the rank tells it."""
        number = self.log.ranks.first + rank
        for line in words.before:
            text = line.format(rank=number)
            if words.raw:
                self.log.raw(text + "\n")
            else:
                self.log.rank(text, rank)
        if words.error and words.ending == "exception":
            trace = _filled(words, number, rank)
            self.log.rank(f"Scheduler hit an exception: {trace}", rank)
        elif words.error:
            self.log.raw((_filled(words, number, rank) if words.frames else words.error.format()) + "\n")

    def die_starting(self, words: LastWords, rank: int) -> NoReturn:
        """The end of a start, after the cause was told."""
        if words.ending == "main":
            self._exit(1)
        if words.ending == "usage":
            self._exit(2)
        if words.ending == "child":
            error = LastWords("", "main", CHILD_DIED.format(rank=rank, code=words.code), CHILD_FRAMES)
            self.log.raw(error.traceback())
            self._exit(1)
        if words.ending == "stopped":
            self.log.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
            self.log.say("Gracefully exiting... Remaining number of requests 0. Remaining requests remaining_rids=[].")
            self._exit(0)
        if words.ending == "silence":
            hang_for_ever()
        time.sleep(0 if words.error else SETTLE_S / self.speedup)  # the watchdog waits before it signals
        self.end_tree("Received sigquit from a child process. It usually means the child failed.")

    def end_tree(self, sigquit: str) -> NoReturn:
        """The main process is told by a child, and kills all and itself."""
        pid = os.getpid()
        self.log.say(sigquit)
        self.log.say(f"kill_process_tree called: parent_pid={pid}, include_parent=True, pid={pid}")
        self._kill_children()
        sys.stderr.flush()
        kill_self()

    def take_port(self) -> socket.socket:
        """Somebody else listens on the server's port."""
        host = str(self.settings["host"])
        holder = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        holder.bind((host, int(self.settings["port"])))
        holder.listen()
        return holder

    def _exit(self, code: int) -> NoReturn:
        self._kill_children()
        end_with(code)

    def _kill_children(self) -> None:
        if self.tree is not None:
            self.tree.kill()


def _filled(words: LastWords, rank: int, gpu: int) -> str:
    return words.traceback().replace("{rank}", str(rank)).replace("{gpu}", str(gpu))
