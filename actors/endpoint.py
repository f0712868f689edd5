"""The few requests that a slot makes to its server: does it serve, what is it set to, drop what it is doing."""

from __future__ import annotations

from typing import Any

_SERVED_TIMEOUT_S = 120.0
_INFO_TIMEOUT_S = 30.0
_ABORT_TIMEOUT_S = 3.0


class Endpoint:
    """A server by its URL."""

    def __init__(self, url: str, api_key: str | None = None) -> None:
        self.url = url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}

    async def refusal(self) -> str | None:
        """None if the server generated a token for us just now, else what it answered instead."""
        sampling = {"max_new_tokens": 1, "temperature": 0}
        status, text = await self._ask("POST", "/generate", {"text": "Hello", "sampling_params": sampling})
        if status == 404:
            request = {"model": "default", "prompt": "Hello", "max_tokens": 1, "temperature": 0}
            status, text = await self._ask("POST", "/v1/completions", request)
        return None if status == 200 else f"{status or 'no answer'}: {text[:200]}"

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

    async def abort_all(self) -> None:
        """Have running requests dropped: SGLang drains without a limit before it obeys SIGTERM."""
        await self._ask("POST", "/abort_request", {"abort_all": True}, timeout_s=_ABORT_TIMEOUT_S)

    async def _ask(
        self, method: str, path: str, body: dict[str, Any] | None = None, *, timeout_s: float = _SERVED_TIMEOUT_S
    ) -> tuple[int, str]:
        """Status and text of the answer; status 0 and the reason if none came."""
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session,
                session.request(method, self.url + path, json=body) as response,
            ):
                return response.status, await response.text(errors="replace")
        except TimeoutError:
            return 0, f"nothing within {timeout_s:g} s"
        except (aiohttp.ClientError, OSError) as error:
            return 0, str(error) or type(error).__name__
