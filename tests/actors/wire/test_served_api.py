"""What is asked of a server before it is loaded, and what it may answer."""

from __future__ import annotations

import asyncio

import pytest

from actors.wire.served_api import ServedApi, find_api
from tests.actors.load_specs import run

JSON = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"


def answer(body: bytes) -> bytes:
    return JSON % (len(body), body)


NOT_FOUND = b"HTTP/1.1 404 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
WANTS_KEY = b"HTTP/1.1 401 No\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


def found(answers: dict[str, bytes], api: str = "auto", model: str | None = None) -> tuple[ServedApi, list[str]]:
    """What is found out at a server that gives these bytes for its paths and closes on all others; the paths asked."""
    asked: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        asked.append(path)
        writer.write(answers.get(path, b""))
        await writer.drain()
        writer.close()

    async def go() -> ServedApi:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            return await find_api(f"http://127.0.0.1:{port}", api, model, None)

    return run(go()), sorted(set(asked))


LISTED = answer(b'{"data": [{"id": "m"}, {"id": "n"}]}')


@pytest.mark.parametrize("native", [NOT_FOUND, b"", answer(b"{bad}"), answer(b"[]"), answer(b'{"data": null}')])
def test_a_server_that_lists_models_and_is_no_sglang_is_asked_for_completions(native: bytes) -> None:
    assert found({"/v1/models": LISTED, "/model_info": native})[0] == ServedApi("completions", "m")


@pytest.mark.parametrize("listed", [NOT_FOUND, b"", answer(b"{bad}"), answer(b'{"data": null}')])
def test_sglang_is_known_by_either_of_its_paths_whatever_it_lists(listed: bytes) -> None:
    told = {"/v1/models": listed, "/model_info": NOT_FOUND, "/get_model_info": answer(b'{"model_path": "p"}')}
    assert found(told)[0] == ServedApi("generate", "p")


@pytest.mark.parametrize("listed", [NOT_FOUND, b"", answer(b"{bad}"), answer(b'{"data": [3]}'), LISTED])
def test_who_knows_api_and_model_needs_no_answer_to_other_questions(listed: bytes) -> None:
    assert found({"/v1/models": listed}, "chat", "mine") == (ServedApi("chat", "mine"), ["/v1/models"])


def test_a_server_that_answers_no_question_must_be_told_what_it_speaks() -> None:
    with pytest.raises(ConnectionError, match="neither SGLang's /model_info nor /v1/models answers; give --api"):
        found({"/v1/models": answer(b"{}"), "/model_info": answer(b"{}")})
    with pytest.raises(ConnectionError, match="nothing answers there"):
        found({})


def test_a_missing_key_is_told_as_that_whichever_question_shows_it() -> None:
    with pytest.raises(ConnectionError, match="wants an API key"):
        found({"/v1/models": WANTS_KEY, "/model_info": NOT_FOUND, "/get_model_info": NOT_FOUND})
    with pytest.raises(ConnectionError, match="wants an API key"):
        found({"/v1/models": WANTS_KEY}, "chat", "mine")
