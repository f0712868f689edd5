"""What a running server speaks: SGLang's own API or an OpenAI-compatible one, and the name of its model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import aiohttp
import orjson


@dataclass(frozen=True, slots=True)
class ServedApi:
    """`api` is generate, completions or chat; `model` the name to send with OpenAI requests."""

    api: str
    model: str


def listed_models(text: str | None) -> list[str]:
    """The names in an answer of `/v1/models`; empty if it is none."""
    try:
        answer = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return []
    entries = answer.get("data") if isinstance(answer, dict) else None
    found = [entry.get("id") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
    return [str(name) for name in found if name]


async def find_api(
    url: str, api: str, model: str | None, api_key: str | None, more_headers: tuple[tuple[str, str], ...] = ()
) -> ServedApi:
    """Ask the server; ConnectionError with the reason if nothing answers, or if it speaks none of the APIs."""
    headers = ({"Authorization": f"Bearer {api_key}"} if api_key else {}) | dict(more_headers)
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=False) as session:
        try:
            status, native = await _get(session, f"{url}/model_info")
            if status == 404:
                status, native = await _get(session, f"{url}/get_model_info")
            _, listed = await _get(session, f"{url}/v1/models")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ConnectionError(f"nothing answers there ({type(error).__name__}: {error})") from None
    if status == 401:
        raise ConnectionError("the server wants an API key (401); give its environment variable with --api-key-env")
    is_native = isinstance(native, dict) and "model_path" in native
    names = [m.get("id") for m in listed.get("data", [])] if isinstance(listed, dict) else []
    if api == "auto" and not is_native and not names:
        raise ConnectionError("neither SGLang's /model_info nor /v1/models answers; give --api and --model")
    chosen = api if api != "auto" else "generate" if is_native else "completions"
    found = model or (str(names[0]) if names else str(native["model_path"]) if is_native else "default")
    return ServedApi(chosen, found)


async def _get(session: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
    async with session.get(url) as answer:
        if answer.status != 200 or "json" not in answer.content_type:
            return answer.status, None
        return answer.status, await answer.json()
