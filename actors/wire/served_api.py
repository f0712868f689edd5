"""What a running server speaks: SGLang's own API or an OpenAI-compatible one, and the name of its model."""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp
import orjson

_TIMEOUT_S = 20.0
# Where the answer is only whether somebody is there.
_KNOWN_TIMEOUT_S = 5.0
_OK, _UNAUTHORIZED, _NOT_FOUND = 200, 401, 404


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
    """Ask the server; ConnectionError with the reason if nothing answers, or if it speaks none of the APIs.

    Who knows API and model only finds out whether somebody is there: a server need not have more than the API.
    """
    headers = ({"Authorization": f"Bearer {api_key}"} if api_key else {}) | dict(more_headers)
    known = api != "auto" and bool(model or api == "generate")
    timeout = aiohttp.ClientTimeout(total=_KNOWN_TIMEOUT_S if known else _TIMEOUT_S)
    async with aiohttp.ClientSession(headers=headers, timeout=timeout, trust_env=False) as session:
        listed = await _get(session, f"{url}/v1/models")
        native = _Told() if known else await _get(session, f"{url}/model_info")
        if native.status == _NOT_FOUND:
            native = await _get(session, f"{url}/get_model_info")
    told = (listed,) if known else (listed, native)
    if listed.refused or (not known and all(answer.status is None for answer in told)):
        raise ConnectionError(f"nothing answers there ({listed.fault})")
    if any(answer.status == _UNAUTHORIZED for answer in told):
        raise ConnectionError("the server wants an API key (401); give its environment variable with --api-key-env")
    names, native_model = listed_models(listed.text), _native_model(native.text)
    if api == "auto" and native_model is None and not names:
        raise ConnectionError("neither SGLang's /model_info nor /v1/models answers; give --api and --model")
    chosen = api if api != "auto" else "generate" if native_model is not None else "completions"
    return ServedApi(chosen, model or (names[0] if names else native_model or "default"))


@dataclass(frozen=True, slots=True)
class _Told:
    """An answer to a question aside. `text` is None unless the status is 200; `refused`: nobody listens there."""

    status: int | None = None
    text: str | None = None
    fault: str = ""
    refused: bool = False


async def _get(session: aiohttp.ClientSession, url: str) -> _Told:
    try:
        async with session.get(url) as answer:
            text = await answer.text(errors="replace") if answer.status == _OK else None
            return _Told(answer.status, text)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        refused = isinstance(error, aiohttp.ClientConnectorError)
        return _Told(fault=f"{type(error).__name__}: {error}", refused=refused)


def _native_model(text: str | None) -> str | None:
    """The model's path in an answer of `/model_info`; None if it is none."""
    try:
        answer = orjson.loads(text or "")
    except orjson.JSONDecodeError:
        return None
    return str(answer["model_path"]) if isinstance(answer, dict) and "model_path" in answer else None
