"""A server that streams tokens at exact times, or as fast as the socket takes them, and knows the truth about it.

A raw uvloop protocol without a framework, so that it costs less than any client: OpenAI completions and chat, SGLang's
`/generate`, and the side endpoints that load clients ask for. How it streams is a `Script`, changed while it runs by
`POST /script`, which also begins a new account; `GET /truth` tells the account: per request when it came, when its
first and last token were written (CLOCK_MONOTONIC, the same for all processes), and the most streams that were open.

    python -m benchmarks.stream_server --port 8100 --cpu 0
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import resource
import time
from collections import deque
from dataclasses import asdict
from typing import Any, cast

import orjson
import uvloop

from benchmarks.stream_frames import HEAD, LAST_CHUNK, event, frames_of, whole_answer
from benchmarks.stream_script import FAILURES, MODEL, Account, Script, Told, asked_of
from benchmarks.stream_wheel import Stream, Wheel

APIS = {"/v1/completions": "completions", "/v1/chat/completions": "chat", "/generate": "generate"}
_JSON = b"HTTP/1.1 %d %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
_REASONS = {200: b"OK", 404: b"Not Found", 500: b"Internal Server Error"}
_ERROR = {"object": "error", "message": "scripted failure", "type": "InternalServerError", "param": None, "code": 500}


class Host:
    """What all connections share: the script, the account, the wheel, and the streams that pour."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.script = Script()
        self.account = Account()
        self.wheel = Wheel(loop)
        self._loop = loop
        self._pouring: deque[Stream] = deque()
        self._pumping = False

    def begin(self, script: Script) -> None:
        """A new script and a new account; streams of the old one run on and are counted nowhere."""
        self.script, self.account, self.wheel.late_ns = script, Account(), 0

    def start(self, stream: Stream) -> None:
        if self.script.flat:
            self.pour(stream)
        elif stream.role_alone:
            stream.index = -1
            self.wheel.add(stream, stream.told.arrived_ns + round((self.script.role_ms or 0.0) * 1e6))
        else:
            self.wheel.add(stream, stream.next_ns)

    def pour(self, stream: Stream) -> None:
        self._pouring.append(stream)
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        for _ in range(min(16, len(self._pouring))):
            stream = self._pouring.popleft()
            if stream.link.stream is stream and stream.pour():
                self._pouring.append(stream)
        self._pumping = bool(self._pouring)
        if self._pumping:
            self._loop.call_soon(self._pump)


class Connection(asyncio.Protocol):
    """One HTTP/1.1 connection; one request at a time."""

    def __init__(self, host: Host) -> None:
        self.host = host
        self.stream: Stream | None = None
        self._account = host.account
        self._read = b""
        self._blocked = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop derives its own from nothing of asyncio
        self._transport.set_write_buffer_limits(high=0)
        self._fd = transport.get_extra_info("socket").fileno()

    def connection_lost(self, _error: Exception | None) -> None:
        self._fd = -1
        self.finish("gone")

    def pause_writing(self) -> None:
        self._blocked = True

    def resume_writing(self) -> None:
        self._blocked = False
        if self.stream is not None and self.host.script.flat:
            self.host.pour(self.stream)

    def write(self, data: bytes) -> bool:
        """Straight into the socket, so that the stamp before it is true; whether the socket took it all."""
        if self._fd < 0:
            return False
        if not self._blocked and not self._transport.is_closing():
            try:
                sent = os.write(self._fd, data)
            except BlockingIOError:
                sent = 0
            except OSError:
                self._transport.abort()
                return False
            if sent == len(data):
                return True
            data = data[sent:]
        self._transport.write(data)
        return False

    def finish(self, status: str) -> None:
        """The stream has ended, in this way."""
        stream, account = self.stream, self._account
        self.stream = None
        if stream is None:
            return
        stream.told.status, stream.told.last_ns = status, time.monotonic_ns()
        account.open -= 1
        account.ended += 1
        account.tokens += stream.told.tokens

    def break_off(self, kind: str) -> None:
        """A scripted failure inside a stream."""
        if kind == "error":
            self.write(event(orjson.dumps({"error": _ERROR})) + event(b"[DONE]") + LAST_CHUNK)
        self.finish(kind)
        if kind == "cut":
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        self._read = data = self._read + data if self._read else data
        end = data.find(b"\r\n\r\n")
        if end < 0:
            return
        head = data[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(data) < end + 4 + length:
            return
        self._read = data[end + 4 + length :]
        path = data[: data.find(b"\r\n")].split(b" ")[1].decode()
        self._answer(path, data[end + 4 : end + 4 + length])

    def _answer(self, path: str, body: bytes) -> None:
        api = APIS.get(path)
        if api is not None:
            self._begin(api, orjson.loads(body))
            return
        path = path.partition("?")[0]
        host = self.host
        known: dict[str, Any] = {
            "/v1/models": {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 32768}]},
            "/health": {},
            "/health_generate": {},
            "/flush_cache": {},
            "/get_model_info": {"model_path": MODEL, "is_generation": True},
            "/model_info": {"model_path": MODEL, "is_generation": True},
            "/server_info": {"internal_states": [{"avg_spec_accept_length": host.script.accept_length}]},
            "/get_server_info": {"internal_states": [{"avg_spec_accept_length": host.script.accept_length}]},
        }
        if path == "/script":
            host.begin(Script(**orjson.loads(body)))
            self._say(200, {})
        elif path == "/truth":
            told = {"cpu_s": time.process_time(), "script": asdict(host.script), "late_ns": host.wheel.late_ns}
            self._say(200, told | asdict(host.account))
        else:
            self._say(200 if path in known else 404, known.get(path, {"detail": "Not Found"}))

    def _say(self, status: int, content: Any) -> None:
        self._say_bytes(status, orjson.dumps(content))

    def _say_bytes(self, status: int, data: bytes) -> None:
        self._transport.write(_JSON % (status, _REASONS[status], len(data)) + data)

    def _begin(self, api: str, body: dict[str, Any]) -> None:
        """A request for an answer has come."""
        host = self.host
        script, self._account = host.script, host.account
        account = self._account
        prompt, asked = asked_of(api, body, script)
        told = Told(hashlib.sha256(prompt.encode("utf-8", "replace")).hexdigest()[:16], time.monotonic_ns())
        fails = FAILURES.get(account.issued % 10) if script.failing else None
        account.issued += 1
        if script.detailed:
            account.requests.append(told)
        if fails == "refused":
            told.status, told.last_ns = fails, time.monotonic_ns()
            account.ended += 1
            self._say(500, _ERROR)
            return
        if not body.get("stream"):
            told.status, told.tokens = "whole", asked.tokens
            account.ended += 1
            self._say_bytes(200, whole_answer(asked))
            return
        account.open += 1
        account.peak_open = max(account.peak_open, account.open)
        self.stream = Stream(self, host.wheel, frames_of(asked), told, script, fails)
        self.write(HEAD)
        host.start(self.stream)


async def serve(port: int) -> None:
    """Serve until the process is ended; the port is the first line of stdout."""
    loop = asyncio.get_running_loop()
    host = Host(loop)
    server = await loop.create_server(lambda: Connection(host), "127.0.0.1", port, backlog=16_384)
    print(server.sockets[0].getsockname()[1], flush=True)  # noqa: T201
    await server.serve_forever()


def raise_file_limit() -> int:
    """Open files as many as the system lets us; how many that are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def main() -> None:
    """Parse, pin, serve."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--port", type=int, default=0)
    arguments.add_argument("--cpu", type=int, help="run on this core only")
    asked = arguments.parse_args()
    if asked.cpu is not None:
        os.sched_setaffinity(0, {asked.cpu})
    raise_file_limit()
    uvloop.run(serve(asked.port))


if __name__ == "__main__":
    main()
