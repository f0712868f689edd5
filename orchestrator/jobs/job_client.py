"""The jobs of a Ray cluster, over HTTP: nothing but the dashboard's port of the head is needed, and no Ray here."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

import aiohttp

from orchestrator.errors import BadInput, ClusterRefusal

DASHBOARD_PORT = 8265
ANSWER_S = 30.0
UPLOAD_S = 600.0
# The dashboard answers no pings while it follows a log. After the first time without a line the job is asked whether it
# is over; after the second the log is read anew, since a connection may die without a word.
SILENT_S, ANEW_S = 60.0, 900.0
ENDED = ("SUCCEEDED", "FAILED", "STOPPED")
_LOST = (aiohttp.ClientError, OSError, asyncio.TimeoutError)


class ConnectionLost(Exception):
    """The head did not answer; it may again."""


@dataclass(frozen=True, slots=True)
class JobFacts:
    """A job as Ray knows it. `grace_s` is what a stop waits before it kills."""

    job_id: str
    status: str
    entrypoint: str
    message: str
    metadata: Mapping[str, str]
    started_unix_s: float | None
    ended_unix_s: float | None
    exit_code: int | None
    grace_s: float

    @property
    def is_over(self) -> bool:
        return self.status in ENDED

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Self:
        """From an answer of Ray's."""
        variables = (told.get("runtime_env") or {}).get("env_vars") or {}
        grace = variables.get("RAY_JOB_STOP_WAIT_TIME_S", "")
        started, ended = told.get("start_time"), told.get("end_time")
        return cls(
            job_id=told.get("submission_id") or "",
            status=str(told.get("status", "")),
            entrypoint=told.get("entrypoint") or "",
            message=told.get("message") or "",
            metadata=told.get("metadata") or {},
            started_unix_s=started / 1000 if started else None,
            ended_unix_s=ended / 1000 if ended else None,
            exit_code=told.get("driver_exit_code"),
            grace_s=float(grace) if grace.isdigit() else 3.0,  # Ray's default
        )


def dashboard_address(given: str | None, environ: Mapping[str, str] = os.environ) -> str:
    """`--address`, else what Ray's own variables name, else this machine: `http://HOST:PORT` of the dashboard.

    BadInput for what cannot be one. RAY_ADDRESS may name the cluster: its dashboard is at the usual port then.
    """
    address = given or environ.get("RAY_API_SERVER_ADDRESS")
    if address is None:
        named = environ.get("RAY_ADDRESS", "")
        host = urlsplit(named if "://" in named else f"//{named}").hostname
        if named.startswith(("http://", "https://")):
            address = named
        else:
            address = f"http://{host if host and named != 'auto' else '127.0.0.1'}:{DASHBOARD_PORT}"
    url = urlsplit(address if "://" in address else f"http://{address}")
    try:
        usable = url.scheme in {"http", "https"} and url.hostname and url.port is not None
    except ValueError:
        usable = False
    if not usable:
        raise BadInput(f"--address {address}: give the dashboard of the head, e.g. http://HEAD:{DASHBOARD_PORT}")
    return f"{url.scheme}://{url.netloc}{url.path.rstrip('/')}"


class JobClient:
    """One cluster's jobs. Methods raise ConnectionLost if the head does not answer, ClusterRefusal if it refuses."""

    def __init__(self, address: str, token: str | None) -> None:
        self.address = address
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}
        self._has_token = token is not None

    async def check(self) -> str:
        """The Ray version of the cluster. ClusterRefusal with what to do if there is none, or it wants a token."""
        try:
            told = await self._asked("GET", "/api/version")
            return str(told["ray_version"])
        except ConnectionLost as error:
            raise ClusterRefusal(
                f"no Ray dashboard answers at --address {self.address}: {error}\n"
                f"Give the dashboard of the head (usually http://HEAD:{DASHBOARD_PORT}), or open a tunnel to it: "
                f"ssh -L {DASHBOARD_PORT}:127.0.0.1:{DASHBOARD_PORT} HEAD"
            ) from None
        except (KeyError, TypeError, ValueError):
            raise ClusterRefusal(
                f"what answers at --address {self.address} is no Ray dashboard; that of the head is usually at "
                f"http://HEAD:{DASHBOARD_PORT}"
            ) from None

    async def jobs(self) -> list[JobFacts]:
        """All jobs that were submitted, whoever did."""
        return [JobFacts.of(told) for told in await self._asked("GET", "/api/jobs/") if told.get("submission_id")]

    async def job(self, job_id: str) -> JobFacts:
        """BadInput if the cluster does not know it."""
        return JobFacts.of(await self._asked("GET", f"/api/jobs/{job_id}", unknown=job_id))

    async def log(self, job_id: str) -> str:
        """All that the job has written so far."""
        return str((await self._asked("GET", f"/api/jobs/{job_id}/logs", unknown=job_id)).get("logs") or "")

    async def submit(self, request: Mapping[str, Any]) -> str:
        """Start a job; its id."""
        return str((await self._asked("POST", "/api/jobs/", json=request))["submission_id"])

    async def stop(self, job_id: str) -> bool:
        """Ask it to end; False if it had ended."""
        return bool((await self._asked("POST", f"/api/jobs/{job_id}/stop", unknown=job_id))["stopped"])

    async def forget(self, job_id: str) -> None:
        """Take a job that is over out of the list."""
        await self._request("DELETE", f"/api/jobs/{job_id}")

    async def upload(self, name: str, data: bytes) -> str:
        """Keep a package on the head while it is used, or for ten minutes; its address for a runtime environment."""
        place = f"/api/packages/gcs/{name}"
        # Asking for it is what makes Ray let go of it in time, if no job comes to use it.
        status, _ = await self._request("GET", place)
        if status == 404:
            await self._asked("PUT", place, data=data, timeout_s=UPLOAD_S)
        return f"gcs://{name}"

    async def follow(self, job_id: str) -> AsyncIterator[str]:
        """The log from its beginning, piece by piece, mostly until the job is over. ConnectionLost if it breaks off."""
        wait = aiohttp.ClientTimeout(total=None, connect=ANSWER_S)
        try:
            async with (
                aiohttp.ClientSession(headers=self._headers, timeout=wait) as session,
                session.ws_connect(f"{self.address}/api/jobs/{job_id}/logs/tail", max_msg_size=0) as socket,
            ):
                heard = time.monotonic()
                while True:
                    try:
                        message = await socket.receive(timeout=SILENT_S)
                    except TimeoutError:
                        if (await self.job(job_id)).is_over or time.monotonic() - heard > ANEW_S:
                            return
                        continue
                    if message.type is not aiohttp.WSMsgType.TEXT:
                        break
                    heard = time.monotonic()
                    yield message.data
                if socket.close_code not in {None, aiohttp.WSCloseCode.OK}:
                    raise ConnectionLost(f"closed with code {socket.close_code}")
        except _LOST as error:
            raise ConnectionLost(_said(error)) from None

    async def _asked(
        self, method: str, path: str, *, unknown: str | None = None, timeout_s: float = ANSWER_S, **body: Any
    ) -> Any:
        status, text = await self._request(method, path, timeout_s=timeout_s, **body)
        if status == 404 and unknown is not None:
            raise BadInput(f"{self.address} knows no job {unknown}; `specsweep status` lists what there is")
        if status >= 400:
            last = text.strip().splitlines()[-1] if text.strip() else f"status {status}"
            raise ClusterRefusal(f"{self.address} refused {method} {path}: {last}")
        import orjson

        return orjson.loads(text) if text else None

    async def _request(self, method: str, path: str, *, timeout_s: float = ANSWER_S, **body: Any) -> tuple[int, str]:
        try:
            async with (
                aiohttp.ClientSession(
                    headers=self._headers, timeout=aiohttp.ClientTimeout(total=timeout_s, connect=10.0)
                ) as session,
                session.request(method, self.address + path, **body) as answer,
            ):
                status, text = answer.status, await answer.text(errors="replace")
        except _LOST as error:
            raise ConnectionLost(_said(error)) from None
        if status in {401, 403}:
            raise ClusterRefusal(self._unwelcome())
        return status, text

    def _unwelcome(self) -> str:
        if self._has_token:
            return (
                f"{self.address} does not accept our token. It must be the one that the cluster was started with: "
                "RAY_AUTH_TOKEN, else the file RAY_AUTH_TOKEN_PATH, else ~/.ray/auth_token"
            )
        return (
            f"{self.address} wants the cluster's token and we have none. Copy it from the head "
            "(`ray get-auth-token` there) to ~/.ray/auth_token, or name its file in RAY_AUTH_TOKEN_PATH"
        )


def _said(error: BaseException) -> str:
    if isinstance(error, aiohttp.ClientResponseError) and error.status == 400:  # bytes that are no answer
        return "what answers there speaks no HTTP"
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
