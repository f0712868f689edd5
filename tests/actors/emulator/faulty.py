"""Emulators with a fault script, and raw looks at their answers."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.actors.emulator.running import READY, Emulator, emulator

_MOMENT_S = 0.5
PATHS = {"generate": "/generate", "completions": "/v1/completions", "chat": "/v1/chat/completions"}


@contextlib.contextmanager
def faulty(folder: Path, script: str, flags: str = "", speedup: float = 1000.0) -> Iterator[Emulator]:
    """A server of one rank with these faults that is ready."""
    file = folder / "faults.yaml"
    file.write_text(script, encoding="utf-8")
    with emulator(folder, f"--model-path m --emulator-faults {file} {flags}", speedup) as running:
        running.wait_for(READY)
        yield running


@dataclass
class Stream:
    """What a client read: status, whole events, and whether the HTTP body came to its end."""

    status: int
    data: bytes
    complete: bool
    times: list[float] = field(default_factory=list)

    @property
    def events(self) -> list[Any]:
        texts = [block.removeprefix("data: ") for block in self.data.decode().split("\n\n")[:-1]]
        return [text if text == "[DONE]" else json.loads(text) for text in texts]

    @property
    def tokens(self) -> int:
        """By the last count of /generate."""
        counts = [e["meta_info"]["completion_tokens"] for e in self.events if "meta_info" in e]
        return int(counts[-1]) if counts else 0


def body_of(api: str, tokens: int) -> dict[str, Any]:
    if api == "generate":
        return {"text": "hello", "sampling_params": {"max_new_tokens": tokens, "ignore_eos": True}, "stream": True}
    options = {"include_usage": True, "continuous_usage_stats": True}
    prompt: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]} if api == "chat" else {"prompt": "hi"}
    return {"model": "m", "max_tokens": tokens, "stream": True, "stream_options": options, **prompt}


def ask(
    running: Emulator,
    tokens: int = 20,
    api: str = "generate",
    timeout_s: float = 60.0,
    on: http.client.HTTPConnection | None = None,
    sure_until: int | None = None,
) -> Stream:
    """One streamed answer as far as it goes (status 0: nowhere); silence for `timeout_s` ends it, or a moment of it
    behind the tokens `sure_until`.
    """
    connection = on or http.client.HTTPConnection("127.0.0.1", running.port, timeout=timeout_s)
    headers = {"Content-Type": "application/json"}
    connection.request("POST", PATHS[api], json.dumps(body_of(api, tokens)), headers)
    try:
        response = connection.getresponse()
    except TimeoutError:
        connection.close()
        return Stream(0, b"", False)
    stream = Stream(response.status, b"", False)
    with contextlib.suppress(http.client.IncompleteRead, ConnectionResetError, TimeoutError):
        while piece := response.read1(1 << 16):
            stream.data += piece
            stream.times.append(time.monotonic())
            if sure_until is not None and stream.tokens >= sure_until and connection.sock is not None:
                connection.sock.settimeout(_MOMENT_S)
        stream.complete = True
    if on is None:
        connection.close()
    return stream


def raw_request(tokens: int) -> bytes:
    """A streamed /generate on a connection of its own."""
    body = json.dumps(body_of("generate", tokens)).encode()
    head = f"POST /generate HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def raw_chunks(running: Emulator, tokens: int) -> list[bytes]:
    """The HTTP chunks of an answer, one for each write of the server."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as connection:
        connection.sendall(raw_request(tokens))
        data = b""
        while piece := connection.recv(1 << 16):
            data += piece
    rest = data.partition(b"\r\n\r\n")[2]
    chunks = []
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        chunks.append(rest[: int(size, 16)])
        rest = rest[int(size, 16) + 2 :]
    return chunks[:-1]
