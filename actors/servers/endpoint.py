"""The few requests that a slot makes to its server: does it serve, what is it set to, drop what it is doing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from actors.wire.served_api import listed_models

_SERVED_TIMEOUT_S = 120.0
_INFO_TIMEOUT_S = 30.0
_ABORT_TIMEOUT_S = 3.0
# Reading a page keeps the slot's loop busy; SGLang's largest, `/metrics`, has some 100 KB.
LARGEST_PAGE_BYTES = 4 << 20
# Instead of a status: nobody listens there, or no answer came in time.
NOBODY, LATE = 0, -1
# What servers answer for a path that they do not have.
_NO_SUCH_API = frozenset({404, 405, 501})
_PROMPTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("/v1/completions", {"prompt": "Hello"}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a server answered instead of serving, in words; `status` is of HTTP, NOBODY, or LATE."""

    status: int
    told: str

    @property
    def reached(self) -> bool:
        """Whether somebody listens there, even if no answer came in time."""
        return self.status != NOBODY

    def __str__(self) -> str:
        return self.told


class Endpoint:
    """A server by its URL."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def refusal(self, timeout_s: float = _SERVED_TIMEOUT_S) -> Refusal | None:
        """None if the server generated a token for us just now, else what it answered instead."""
        body: dict[str, Any] = {"text": "Hello", "sampling_params": {"max_new_tokens": 1, "temperature": 0}}
        status, text = await self._ask("POST", "/generate", body, timeout_s=timeout_s)
        if status == 404:
            request = {"model": "default", "prompt": "Hello", "max_tokens": 1, "temperature": 0}
            status, text = await self._ask("POST", "/v1/completions", request, timeout_s=timeout_s)
        return None if status == 200 else Refusal(status, f"{status if status > 0 else 'no answer'}: {text[:200]}")

    async def info(self) -> dict[str, Any]:
        """The server's account of its resolved settings; empty if it gives none."""
        import orjson

        for path in ("/server_info", "/get_server_info"):
            status, text = await self._ask("GET", path, timeout_s=_INFO_TIMEOUT_S)
            if status == 200:
                try:
                    account = orjson.loads(text)
                except orjson.JSONDecodeError:
                    return {}
                return account if isinstance(account, dict) else {}
        return {}

    async def page(self, path: str, timeout_s: float) -> tuple[int, str]:
        """Status and text of a page; NOBODY or LATE and the reason if none came."""
        return await self._ask("GET", path, timeout_s=timeout_s)

    async def unready(self, path: str, timeout_s: float) -> str | None:
        """None if the path answered 200, else what it answered instead."""
        status, text = await self._ask("GET", path, timeout_s=timeout_s)
        return None if status == 200 else _told(path, status, text)

    async def abort_all(self) -> None:
        """Have running requests dropped: SGLang drains without a limit before it obeys SIGTERM."""
        await self._ask("POST", "/abort_request", {"abort_all": True}, timeout_s=_ABORT_TIMEOUT_S)

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = _SERVED_TIMEOUT_S
    ) -> tuple[int, str]:
        """Status and text of the answer; NOBODY or LATE and the reason if none came."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session,
                session.request(method, self.url + path, json=body) as response,
            ):
                page = bytearray()
                async for piece in response.content.iter_any():
                    page += piece
                    if len(page) > LARGEST_PAGE_BYTES:
                        return NOBODY, f"more than {LARGEST_PAGE_BYTES >> 20} MiB came"
                return response.status, page.decode("utf-8", errors="replace")
        except TimeoutError:
            return LATE, f"nothing within {timeout_s:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return NOBODY, str(error) or type(error).__name__


class FollowerEndpoint(Endpoint):
    """A part of a server that serves no requests; once its schedulers are up it answers its health path."""

    async def refusal(self, timeout_s: float = _SERVED_TIMEOUT_S) -> Refusal | None:
        """None if its health path answered 200 just now: nothing else can be asked of it."""
        status, text = await self._ask("GET", "/health", timeout_s=timeout_s)
        return None if status == 200 else Refusal(status, _told("/health", status, text))

    async def info(self) -> dict[str, Any]:
        """Rank 0 tells the settings of all."""
        return {}

    async def abort_all(self) -> None:
        """Rank 0 has the requests."""


class OpenAiEndpoint(Endpoint):
    """A server of which only the OpenAI API is known. `served_name`: its model's name, else the first that it lists."""

    def __init__(self, url: str, api_key: str | None = None, *, served_name: str | None = None) -> None:
        super().__init__(url, api_key)
        self._model = served_name or ""

    async def refusal(self, timeout_s: float = _SERVED_TIMEOUT_S) -> Refusal | None:
        """None if the server generated a token for us just now, by completions or else by chat."""
        if not self._model:
            status, text = await self._ask("GET", "/v1/models", timeout_s=_INFO_TIMEOUT_S)
            names = listed_models(text) if status == 200 else []
            self._model = names[0] if names else ""
        request: dict[str, Any] = {"model": self._model or "default", "max_tokens": 1, "temperature": 0}
        status, told = NOBODY, []
        for path, prompt in _PROMPTS:
            status, text = await self._ask("POST", path, {**request, **prompt}, timeout_s=timeout_s)
            if status == 200:
                return None
            told.append(_told(path, status, text))
            if status not in _NO_SUCH_API:
                break
        return Refusal(status, "; ".join(told))

    async def info(self) -> dict[str, Any]:
        """The name of the model, and the version where `/version` tells it."""
        status, text = await self._ask("GET", "/version", timeout_s=_INFO_TIMEOUT_S)
        version = _json(text).get("version") if status == 200 else None
        told = {"served_model": self._model} if self._model else {}
        return {**told, "version": version} if isinstance(version, str) else told

    async def abort_all(self) -> None:
        """SIGTERM has to do: there is no such request in the OpenAI API."""


def _told(path: str, status: int, text: str) -> str:
    return f"{path} answered {status if status > 0 else 'nothing'}" + (f": {text[:200]}" if text else "")


def _json(text: str) -> Mapping[str, Any]:
    import orjson

    try:
        told = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return told if isinstance(told, dict) else {}
