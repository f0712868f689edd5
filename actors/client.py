"""One streaming request against one endpoint of a server, stamped as its bytes arrive.

Failures become records, never exceptions, and nothing is tried twice behind the measurement's back. The one exception
is counted (`reconnects`): a kept-alive connection that the server had closed before it answered a single byte. A server
that never kept one is no exception: its requests each get a connection of their own.
"""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace, TracebackType
from typing import Any, Self

import aiohttp
import orjson

from actors.answer import error_text
from actors.flight import Flight, Request
from actors.served_api import listed_models
from actors.sse import EventSplitter
from orchestrator.records import RequestStatus
from orchestrator.trial import PointSpec

PATHS = {"generate": "/generate", "completions": "/v1/completions", "chat": "/v1/chat/completions"}
# After `[DONE]` a server has nothing to say; one that keeps the stream open loses its connection, not our time.
_AFTER_DONE_S = 1.0
# Less than the 5 s after which uvicorn, in front of SGLang, closes an idle connection.
_KEEP_ALIVE_S = 3.0
_NO_TIMEOUT = aiohttp.ClientTimeout(total=None, connect=None, sock_connect=None, sock_read=None)


class StreamClient:
    """Sends requests of one point to one server. Connections are kept and not limited in number; proxies are ignored.

    `progress_ns` is when the last bytes of any answer came. Headers of a stream do not count: SGLang sends them before
    its engine has seen the request, so that one that hangs still gives them.
    """

    def __init__(
        self, url: str, spec: PointSpec, *, api_key: str | None = None, headers: tuple[tuple[str, str], ...] = ()
    ) -> None:
        self._base = url.rstrip("/")
        self._url = self._base + PATHS[spec.api]
        self._spec = spec
        self._model = spec.model
        self._extra: dict[str, Any] = orjson.loads(spec.extra_body) if spec.extra_body else {}
        self._native = spec.api == "generate"
        self._headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._headers |= dict(headers)
        self.progress_ns = time.monotonic_ns()
        self.reconnects = 0
        self._reuses = True
        self._was_reused = False

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_connection_reuseconn.append(_mark_reused)
        self._session = self._new_session(aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S), [trace])
        self._fresh = self._new_session(aiohttp.TCPConnector(limit=0, force_close=True), [])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()
        await self._fresh.close()

    def _new_session(self, connector: aiohttp.TCPConnector, traces: list[aiohttp.TraceConfig]) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=connector,
            timeout=_NO_TIMEOUT,
            trust_env=False,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=traces,
        )

    def flight(self, request: Request, in_flight: int = 1) -> Flight:
        """A request that is sent from now on."""
        return Flight(request, native=self._native, in_flight=in_flight)

    async def send(self, flight: Flight) -> None:
        """Send the request and read its answer to the end; what happened is in the flight."""
        timeout_s = self._spec.request_timeout_s
        try:
            async with asyncio.timeout(timeout_s) as flight.scope:
                await self._exchange(flight)
        except TimeoutError:
            flight.expire(timeout_s)
        finally:
            flight.scope = None

    async def _exchange(self, flight: Flight) -> None:
        try:
            response = await self._open(flight)
        except (aiohttp.ClientError, OSError) as error:
            flight.fail(RequestStatus.CONNECTION, _named(error))
            return
        async with response:
            flight.http_status = response.status
            try:
                if response.status != 200:
                    flight.fail(RequestStatus.HTTP_ERROR, _body_text(await response.read(), response.status))
                    self.progress_ns = flight.end_ns
                elif response.content_type == "application/json":
                    text = _body_text(await response.read(), response.status)
                    flight.fail(RequestStatus.SERVER_ERROR, f"the answer is not a stream: {text}")
                else:
                    await self._read(flight, response)
                    flight.conclude()
            except (aiohttp.ClientError, OSError) as error:
                self._cut(flight, error)

    async def _open(self, flight: Flight) -> aiohttp.ClientResponse:
        """Response headers; on a new connection if the server had closed the kept-alive one that was taken.

        A server that closes every connection after its answer without saying so, as llama.cpp's does, is found out the
        first time; from then on every request has a connection of its own.
        """
        body = orjson.dumps({**request_body(self._spec, flight.request, self._model), **self._extra})
        if not self._reuses:
            return await self._fresh.post(self._url, data=body, allow_redirects=False)
        try:
            response = await self._session.post(
                self._url, data=body, allow_redirects=False, trace_request_ctx=flight, skip_auto_headers=("User-Agent",)
            )
            self._was_reused = self._was_reused or flight.reused
            return response
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
            if not flight.reused:
                raise
        if self._was_reused:
            self.reconnects += 1
        else:
            self._reuses = False
        return await self._fresh.post(self._url, data=body, allow_redirects=False)

    async def _read(self, flight: Flight, response: aiohttp.ClientResponse) -> None:
        """The hot loop: one clock reading per network read, two list appends per token-bearing event."""
        answer, events = flight.answer, EventSplitter()
        read, feed, take, clock = response.content.readany, events.feed, answer.take, time.monotonic_ns
        try:
            while data := await read():
                self.progress_ns = now = clock()
                for payload in feed(data):
                    take(payload, now)
                if answer.done:
                    await _read_to_end(response)
                    break
        finally:
            answer.close(events.finish(), clock())

    def _cut(self, flight: Flight, error: Exception) -> None:
        """The connection broke inside the answer."""
        if flight.answer.done or flight.answer.error is not None:
            flight.conclude()
        else:
            flight.fail(RequestStatus.TRUNCATED, _named(error))

    async def find_model(self) -> None:
        """A spec without a model asks for the one that the server lists first."""
        if not self._model and not self._native:
            names = listed_models(await self.get_text("/v1/models"))
            self._model = names[0] if names else "default"

    async def get_text(self, path: str, timeout_s: float = 5.0) -> str | None:
        """Body of a side endpoint, None if the server does not have it or does not answer."""
        status, text = await self._aside("GET", path, timeout_s)
        return text if status == 200 else None

    async def post(
        self, path: str, body: dict[str, Any] | None = None, timeout_s: float = 30.0
    ) -> tuple[int | None, str]:
        """Status and body of a POST to a side endpoint; status None if there is no answer."""
        return await self._aside("POST", path, timeout_s, None if body is None else orjson.dumps(body))

    async def _aside(
        self, method: str, path: str, timeout_s: float, body: bytes | None = None
    ) -> tuple[int | None, str]:
        try:
            async with (
                asyncio.timeout(timeout_s),
                self._fresh.request(method, self._base + path, data=body) as response,
            ):
                return response.status, await response.text(errors="replace")
        except (aiohttp.ClientError, OSError):
            return None, ""


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
        body["messages"] = [{"role": "user", "content": prompt.text}]
        body["max_completion_tokens"] = request.output_tokens
    else:
        body["prompt"] = prompt.text
    if spec.ignore_eos:
        body["ignore_eos"] = True
    return body


async def _mark_reused(_session: aiohttp.ClientSession, context: SimpleNamespace, _params: object) -> None:
    flight = context.trace_request_ctx
    if isinstance(flight, Flight):
        flight.reused = True


async def _read_to_end(response: aiohttp.ClientResponse) -> None:
    """After `[DONE]`, so that the connection can be used again; given up after a moment."""
    try:
        async with asyncio.timeout(_AFTER_DONE_S):
            while await response.content.readany():
                pass
    except TimeoutError:
        response.close()


def _named(error: BaseException) -> str:
    """Type and text of an error: some of aiohttp's and all timeouts have no text of their own."""
    return f"{type(error).__name__}: {error}"[:500].rstrip(": ")


def _body_text(body: bytes, status: int) -> str:
    """Short account of a body: the message of an error object, else its beginning."""
    try:
        parsed = orjson.loads(body)
    except orjson.JSONDecodeError:
        parsed = None
    message = error_text(parsed) if isinstance(parsed, dict) else None
    return message or body[:200].decode("utf-8", "replace").strip() or f"status {status} without a body"
