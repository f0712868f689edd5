"""When the frames of all streams are written: by a timer wheel, or as fast as the sockets take them."""

from __future__ import annotations

import asyncio
import heapq
import sys
import time
from typing import Protocol

from benchmarks.stream_frames import Frames
from benchmarks.stream_script import Script, Told

_TICK_NS = 1_000_000
_SLAB_BYTES = 32_768


class Link(Protocol):
    """The connection of a stream, as the stream sees it."""

    stream: Stream | None

    def write(self, data: bytes) -> bool:
        """Whether the socket took it all."""

    def finish(self, status: str) -> None:
        """The stream has ended."""

    def break_off(self, kind: str) -> None:
        """Fail inside the stream."""


class Wheel:
    """Steps of all streams by due time, in ticks of a millisecond, behind one timer of the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._ticks: list[int] = []
        self._due: dict[int, list[Stream]] = {}
        self._armed_for = sys.maxsize
        self.late_ns = 0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: Stream, due_ns: int) -> None:
        tick = -(-due_ns // _TICK_NS)
        waiting = self._due.get(tick)
        if waiting is not None:
            waiting.append(stream)
            return
        self._due[tick] = [stream]
        heapq.heappush(self._ticks, tick)
        if tick < self._armed_for:
            self._arm(tick)

    def _arm(self, tick: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._armed_for = tick
        left_ns = tick * _TICK_NS - time.monotonic_ns()
        # Timers of the loop have whole milliseconds.
        self._timer = self._loop.call_later(max(0, -(-left_ns // 1_000_000)) / 1000, self._fire)

    def _fire(self) -> None:
        self._timer, self._armed_for = None, sys.maxsize
        ticks, now = self._ticks, time.monotonic_ns() // _TICK_NS
        while ticks and ticks[0] <= now:
            self.late_ns = max(self.late_ns, (now - ticks[0]) * _TICK_NS)
            for stream in self._due.pop(heapq.heappop(ticks)):
                stream.step()
        if ticks and ticks[0] < self._armed_for:
            self._arm(ticks[0])


class Stream:
    """One answer on its way."""

    __slots__ = ("fails", "frames", "gap_ns", "index", "link", "next_ns", "role_alone", "told", "wheel")

    def __init__(self, link: Link, wheel: Wheel, frames: Frames, told: Told, script: Script, fails: str | None) -> None:
        self.link, self.frames, self.told, self.fails = link, frames, told, fails
        self.wheel = wheel
        self.role_alone = bool(frames.role) and script.role_ms is not None
        self.index = 0
        self.gap_ns = round(script.chunk_tokens / script.rate * 1e9)
        self.next_ns = told.arrived_ns + round(script.ttft_ms * 1e6)

    def step(self) -> None:
        """Write the frame that is due, and put the next one on the wheel."""
        link, frames, index = self.link, self.frames, self.index
        if link.stream is not self:
            return
        if index < 0:  # the role alone
            self.index = 0
            link.write(frames.role)
            self.wheel.add(self, self.next_ns)
            return
        if self.fails is not None and index == 2:
            link.break_off(self.fails)
            return
        last = index + 1 == len(frames.steps)
        data = frames.steps[index] + frames.tail if last else frames.steps[index]
        if index == 0 and not self.role_alone:
            data = frames.role + data
        told = self.told
        if index == 0:
            told.first_ns = time.monotonic_ns()
        told.tokens = frames.tokens[index]
        self.index = index + 1
        link.write(data)
        if last:
            link.finish("ok")
        else:
            self.next_ns += self.gap_ns
            self.wheel.add(self, self.next_ns)

    def pour(self) -> bool:
        """Flat out: write a slab of frames; whether more is left and the socket takes it."""
        frames, index = self.frames, self.index
        if index == 0:
            self.told.first_ns = time.monotonic_ns()
        size, parts = 0, [frames.role] if index == 0 else []
        while size < _SLAB_BYTES and index < len(frames.steps):
            parts.append(frames.steps[index])
            size += len(parts[-1])
            index += 1
        self.index, self.told.tokens = index, frames.tokens[index - 1]
        if index == len(frames.steps):
            self.link.write(b"".join(parts) + frames.tail)
            self.link.finish("ok")
            return False
        return self.link.write(b"".join(parts))
