"""One streaming request against one endpoint of a server, stamped as its bytes arrive.

Failures become records, never exceptions, and nothing is tried twice behind the measurement's back. The one exception
is counted (`reconnects`): a kept-alive connection that the server had closed before it answered a single byte. A server
that never kept one is no exception: its requests each get a connection of their own.
"""

from __future__ import annotations

import asyncio
import json
import time
from types import TracebackType
from typing import Any, Self

import orjson

from actors.wire.client_limit import raise_file_limit
from actors.wire.connection_pool import ConnectionPool
from actors.wire.flight import Flight, Request
from actors.wire.http_connection import HttpConnection
from actors.wire.request_head import RequestHead
from actors.wire.served_api import listed_models
from actors.wire.server_address import read_address
from actors.wire.stream_exchange import StreamExchange
from actors.wire.whole_answer import WholeAnswer
from orchestrator.trial import PointSpec

PATHS = {"generate": "/generate", "completions": "/v1/completions", "chat": "/v1/chat/completions"}
_SLEPT_S = 0.5


class StreamClient:
    """Sends requests of one point to one server. Connections are kept and not limited in number; proxies are ignored.

    `headers` go into every request and may hold secrets. BadInput if they or the URL cannot be sent.
    `progress_ns` is when the last event of any answer came. Headers of a stream do not count: SGLang sends them before
    its engine has seen the request, so that one that hangs still gives them.
    """

    def __init__(
        self, url: str, spec: PointSpec, *, api_key: str | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._address = read_address(url)
        self._head = RequestHead(self._address, api_key, headers)
        self._streaming = self._head.beginning("POST", PATHS[spec.api])
        self._spec = spec
        self._model = spec.model
        self._extra: dict[str, Any] = orjson.loads(spec.extra_body) if spec.extra_body else {}
        self._native = spec.api == "generate"
        self.progress_ns = time.monotonic_ns()
        self.reconnects = 0
        self._reuses = True
        self._was_reused = False

    async def __aenter__(self) -> Self:
        raise_file_limit()
        self._pool = ConnectionPool(self._address)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._pool.close()

    def flight(self, request: Request, in_flight: int = 1, *, keep_text: bool = False) -> Flight:
        """A request that is sent from now on. With `keep_text` its answer's text can be asked for."""
        return Flight(request, native=self._native, in_flight=in_flight, keep_text=keep_text)

    async def send(self, flight: Flight) -> None:
        """Send the request and read its answer to the end; what happened is in the flight."""
        if flight.cancelled is not None:
            flight.fail(*flight.cancelled)
            return
        message = self._message(flight.request)
        exchange = StreamExchange(flight, self, self._spec.request_timeout_s, keep=self._reuses)
        try:
            await self._exchange(flight, exchange, message)
        finally:
            flight.interrupt = None
            exchange.abandon()
            if flight.error is not None:
                flight.error = self._head.without_secrets(flight.error)

    def _message(self, request: Request) -> bytes:
        body = request_body(self._spec, request, self._model)
        if self._extra:
            body |= self._extra
        return self._head.message(self._streaming, _json(body), keep=self._reuses)

    async def _exchange(self, flight: Flight, exchange: StreamExchange, message: bytes) -> None:
        """On a new connection if there is no idle one, or if the server had closed the idle one that was taken.

        A server that closes every connection after its answer without saying so, as llama.cpp's does, is found out the
        first time; from then on every request has a connection of its own.
        """
        kept = self._pool.take() if self._reuses else None
        if kept is not None:
            # Servers close what was idle for seconds. Where they are known to keep connections, a reset of one that had
            # just been used is their answer.
            slept = asyncio.get_running_loop().time() - kept.idle_since_s > _SLEPT_S
            await exchange.over(kept, message)
            if exchange.unanswered is None:
                self._was_reused = self._was_reused or exchange.now > 0
                return
            if isinstance(exchange.unanswered, ConnectionResetError) and self._was_reused and not slept:
                exchange.fail(exchange.unanswered)
                return
            if self._was_reused:
                self.reconnects += 1
            else:
                self._reuses = False
                self._pool.forget()
        connection = await self._connect(flight, exchange)
        if connection is not None:
            await exchange.over(connection, message)
            if exchange.unanswered is not None:
                exchange.fail(exchange.unanswered)

    async def _connect(self, flight: Flight, exchange: StreamExchange) -> HttpConnection | None:
        """A new connection; None if there is none, which the exchange has been told."""
        try:
            async with asyncio.timeout(None) as scope:
                flight.interrupt = lambda: None if scope.expired() else scope.reschedule(0)
                return await self._pool.connect()
        except OSError as error:
            if scope.expired():
                exchange.expire()
            else:
                exchange.fail(error)
        return None

    async def find_model(self) -> None:
        """A spec without a model asks for the one that the server lists first."""
        if not self._model and not self._native:
            names = listed_models(await self.get_text("/v1/models"))
            self._model = names[0] if names else "default"

    def sample_backlog_kib(self) -> float:
        """KiB that wait in our sockets, come but not read, estimated from some 64 of those in use."""
        return self._pool.backlog_kib()

    async def get_text(self, path: str, timeout_s: float = 5.0) -> str | None:
        """Body of a side endpoint, None if the server does not have it or does not answer."""
        status, text = await self._aside("GET", path, timeout_s)
        return text if status == 200 else None

    async def post(
        self, path: str, body: dict[str, Any] | None = None, timeout_s: float = 30.0
    ) -> tuple[int | None, str]:
        """Status and body of a POST to a side endpoint; status None if there is no answer."""
        return await self._aside("POST", path, timeout_s, b"" if body is None else _json(body))

    async def _aside(
        self, method: str, path: str, timeout_s: float, body: bytes | None = None
    ) -> tuple[int | None, str]:
        """On a connection of its own, so that side calls never meet one that the server has closed."""
        message = self._head.message(self._head.beginning(method, path), body, keep=False)
        connection: HttpConnection | None = None
        try:
            async with asyncio.timeout(timeout_s):
                connection = await self._pool.connect()
                return await WholeAnswer.over(connection, message)
        except OSError:
            return None, ""
        finally:
            if connection is not None:
                connection.close()


def request_body(spec: PointSpec, request: Request, model: str) -> dict[str, Any]:
    """JSON of a request. The OpenAI endpoints are asked for usage in every chunk: the only count per chunk."""
    prompt = request.prompt
    if spec.api == "generate":
        sampling: dict[str, Any] = {"temperature": spec.temperature, "max_new_tokens": request.output_tokens}
        if spec.ignore_eos:
            sampling["ignore_eos"] = True
        given = {"text": prompt.text} if prompt.input_ids is None else {"input_ids": list(prompt.input_ids)}
        return {**given, "sampling_params": sampling, "stream": True}
    body: dict[str, Any] = {
        "model": model,
        "max_tokens": request.output_tokens,
        "temperature": spec.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }
    if spec.api == "chat":
        said = prompt.messages or (("user", prompt.text),)
        body["messages"] = [{"role": role, "content": content} for role, content in said]
        body["max_completion_tokens"] = request.output_tokens
    else:
        body["prompt"] = prompt.text
    if spec.ignore_eos:
        body["ignore_eos"] = True
    return body


def _json(value: dict[str, Any]) -> bytes:
    """orjson refuses half a surrogate pair, as a file of prompts may hold; the standard library writes it."""
    try:
        return orjson.dumps(value)
    except orjson.JSONEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()
