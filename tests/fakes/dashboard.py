"""The part of a Ray dashboard that jobs need, answering from a script; in a thread, with a real port."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from aiohttp import web


class FakeDashboard:
    """Jobs by id, each with a log. `breaks`: after so many characters a followed log breaks off, once each.

    `pauses`: after so many characters nothing comes until somebody asks about the job, once each.
    """

    def __init__(self, token: str | None = None) -> None:
        self.token = token
        self.jobs: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, str] = {}
        self.packages: dict[str, bytes] = {}
        self.submitted: list[dict[str, Any]] = []
        self.breaks: list[int] = []
        self.pauses: list[int] = []
        self.asked = 0
        self.followed = 0
        self.new_log = ""
        self.ends: dict[str, Any] = {"status": "SUCCEEDED", "driver_exit_code": 0}
        self.stopped: list[str] = []
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def add(self, job_id: str, log: str = "", **facts: Any) -> None:
        """A job that is there already."""
        self.jobs[job_id] = {"submission_id": job_id, "status": "RUNNING", "entrypoint": "exec sleep 1", **facts}
        self.logs[job_id] = log

    @contextlib.contextmanager
    def serving(self) -> Iterator[FakeDashboard]:
        loop, up = asyncio.new_event_loop(), threading.Event()
        runner = web.AppRunner(self._app(), access_log=None, shutdown_timeout=0.1)

        async def start() -> None:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            self.port = runner.addresses[0][1]
            up.set()

        def work() -> None:
            loop.run_until_complete(start())
            loop.run_forever()
            loop.run_until_complete(runner.cleanup())
            loop.close()

        thread = threading.Thread(target=work)
        thread.start()
        up.wait()
        try:
            yield self
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    def _app(self) -> web.Application:
        app = web.Application(middlewares=[self._guarded], client_max_size=100 * 2**20)
        app.router.add_get("/api/version", self._version)
        app.router.add_get("/api/jobs/", self._list)
        app.router.add_post("/api/jobs/", self._submit)
        app.router.add_get("/api/jobs/{job}", self._job)
        app.router.add_get("/api/jobs/{job}/logs", self._log)
        app.router.add_get("/api/jobs/{job}/logs/tail", self._tail)
        app.router.add_post("/api/jobs/{job}/stop", self._stop)
        app.router.add_get("/api/packages/gcs/{name}", self._package)
        app.router.add_put("/api/packages/gcs/{name}", self._upload)
        return app

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Any) -> web.StreamResponse:
        if self.token is not None:
            told = request.headers.get("Authorization")
            if told != f"Bearer {self.token}":
                return web.Response(status=401 if told is None else 403, text="Unauthorized")
        answer: web.StreamResponse = await handler(request)
        return answer

    async def _version(self, request: web.Request) -> web.Response:
        del request
        return web.json_response({"version": "4", "ray_version": "2.60.0"})

    async def _list(self, request: web.Request) -> web.Response:
        del request
        return web.json_response(list(self.jobs.values()))

    async def _submit(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.submitted.append(asked)
        self.add(asked["submission_id"], self.new_log, entrypoint=asked["entrypoint"], metadata=asked.get("metadata"))
        return web.json_response({"submission_id": asked["submission_id"]})

    async def _job(self, request: web.Request) -> web.Response:
        self.asked += 1
        job = self.jobs.get(request.match_info["job"])
        return web.Response(status=404, text="no such job") if job is None else web.json_response(job)

    async def _log(self, request: web.Request) -> web.Response:
        return web.json_response({"logs": self.logs[request.match_info["job"]]})

    async def _tail(self, request: web.Request) -> web.StreamResponse:
        job_id = request.match_info["job"]
        self.followed += 1
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        text = self.logs[job_id]
        if self.breaks:
            await socket.send_str(text[: self.breaks.pop(0)])
            assert request.transport is not None
            request.transport.abort()
            return socket
        while self.pauses:
            before, upto = self.asked, self.pauses.pop(0)
            await socket.send_str(text[:upto])
            text = text[upto:]
            while self.asked == before:  # noqa: ASYNC110 - of a test, and asked from another task
                await asyncio.sleep(0.005)
        for start in range(0, len(text), 7):
            await socket.send_str(text[start : start + 7])
        self.jobs[job_id] |= self.ends
        await socket.close()
        return socket

    async def _stop(self, request: web.Request) -> web.Response:
        job_id = request.match_info["job"]
        self.stopped.append(job_id)
        self.jobs[job_id] |= {"status": "STOPPED"}
        return web.json_response({"stopped": True})

    async def _package(self, request: web.Request) -> web.Response:
        return web.Response(status=200 if request.match_info["name"] in self.packages else 404)

    async def _upload(self, request: web.Request) -> web.Response:
        self.packages[request.match_info["name"]] = await request.read()
        return web.Response()
