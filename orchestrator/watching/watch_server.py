"""Serves the report of a run to browsers, as it changes. Knows nothing of files: only what the feed has is served."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from aiohttp import web

from orchestrator.documents.report_markdown import markdown
from orchestrator.documents.report_page import LivePage, page_html
from orchestrator.shown_text import harmless
from orchestrator.watching.live_metrics import metrics_text
from orchestrator.watching.watch_feed import WatchFeed

MOST_CLIENTS = 32
KEEP_ALIVE_S = 15.0
# One that takes nothing for so long is gone.
WRITE_S = 20.0
_HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Access:
    """Who is answered. `hosts`: names in the Host header, which tell a page of another site that was pointed here.

    `token`: asked for in the query, where the address is not loopback; then any name will do.
    """

    hosts: frozenset[str] = _LOCAL_NAMES
    token: str = ""

    @property
    def query(self) -> str:
        return f"token={self.token}" if self.token else ""

    def refusal(self, host: str, token: str) -> str:
        """Why a request is not answered; empty if it is."""
        if self.token:
            given = token.encode(errors="replace")
            return "" if hmac.compare_digest(given, self.token.encode()) else "the token in the address is missing"
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return "" if name.lower() in self.hosts else f"not served under the name {name[:80]!r}"


class WatchServer:
    """The pages of one run."""

    def __init__(self, feed: WatchFeed, access: Access, *, keeps_up: bool = True) -> None:
        """Not `keeps_up`: somebody else lets the feed go on."""
        self._feed, self._access, self._keeps_up = feed, access, keeps_up
        self.clients = 0

    def app(self) -> web.Application:
        """The application; its feed keeps up while it runs."""
        app = web.Application(middlewares=[self._guard], client_max_size=1024)
        routes = {
            "/": self._page, "/report.html": self._file, "/report.md": self._markdown, "/events": self._listen,
            "/live.json": self._live, "/metrics": self._metrics,
        }  # fmt: skip
        for path, handler in routes.items():
            app.router.add_get(path, handler)
        if self._keeps_up:
            app.cleanup_ctx.append(self._kept_up)
        app.on_shutdown.append(self._say_goodbye)
        return app

    async def _kept_up(self, app: web.Application) -> AsyncIterator[None]:
        del app
        task = asyncio.create_task(self._feed.keep_up())
        yield
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    async def _say_goodbye(self, app: web.Application) -> None:
        del app
        await self._feed.close()

    @web.middleware
    async def _guard(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        refusal = self._access.refusal(request.host, request.query.get("token", ""))
        if refusal:
            return web.Response(status=403, text=f"specsweep: {refusal}\n", headers=_HEADERS)
        try:
            response = await handler(request)
        except web.HTTPException as refused:  # another path, another method
            return web.Response(status=refused.status, text=f"{refused.status} {refused.reason}\n", headers=_HEADERS)
        except Exception as error:  # noqa: BLE001 - what is shown are files of strangers
            text = f"specsweep: this cannot be shown now: {type(error).__name__}: {error}\n"
            return web.Response(status=500, text=harmless(text), headers=_HEADERS)
        if not response.prepared:
            response.headers.update(_HEADERS)
        return response

    async def _page(self, request: web.Request) -> web.StreamResponse:
        del request
        # News since before the page is made: what comes meanwhile is sent again, and changes nothing.
        query = "&".join(filter(None, [f"since={self._feed.number}", self._access.query]))
        return await self._html(LivePage(f"/events?{query}"))

    async def _file(self, request: web.Request) -> web.StreamResponse:
        del request
        return await self._html(None)

    async def _html(self, live: LivePage | None) -> web.Response:
        page = await asyncio.to_thread(page_html, self._feed.document, live=live)
        return web.Response(body=page.encode(), content_type="text/html", charset="utf-8")

    async def _markdown(self, request: web.Request) -> web.StreamResponse:
        del request
        text = await asyncio.to_thread(markdown, self._feed.document)
        return web.Response(body=text.encode(), content_type="text/markdown", charset="utf-8")

    async def _live(self, request: web.Request) -> web.StreamResponse:
        del request
        return web.json_response(self._feed.run.as_json())

    async def _metrics(self, request: web.Request) -> web.StreamResponse:
        del request
        body = metrics_text(self._feed.run)
        return web.Response(body=body, headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _listen(self, request: web.Request) -> web.StreamResponse:
        """Events until the run is over, or the client is gone."""
        if self.clients >= MOST_CLIENTS:
            return web.Response(status=503, text=f"{MOST_CLIENTS} pages watch this run already\n")
        response = web.StreamResponse(headers={**_HEADERS, "Content-Type": "text/event-stream"})
        self.clients += 1
        try:
            await response.prepare(request)
            await self._tell(response, _number(request))
        except (ConnectionError, TimeoutError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.clients -= 1
        return response

    async def _tell(self, response: web.StreamResponse, number: int) -> None:
        async def write(text: str) -> None:
            await asyncio.wait_for(response.write(text.encode(errors="replace")), WRITE_S)

        while not self._feed.closed:
            events = await self._feed.newer(number, KEEP_ALIVE_S)
            number = max([number, *(event.number for event in events)])
            for i, event in enumerate(events, 1):
                # What is lost on the way is sent again: a client has a number only with all up to it.
                mark = f"id: {number}\n" if i == len(events) else ""
                await write(f"{mark}event: {event.kind}\ndata: {event.data}\n\n")
            if self._feed.is_done and not events:
                await write("event: done\ndata: {}\n\n")
                return
            if not events:
                await write(": alive\n\n")


def _number(request: web.Request) -> int:
    """What the client has: of the last event that it saw, else of its page."""
    told = request.headers.get("Last-Event-ID") or request.query.get("since", "")
    return int(told) if told.isascii() and told.isdigit() and len(told) < 20 else 0
