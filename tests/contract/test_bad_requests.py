"""Refusals: status and body, whole or in a stream."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.contract.servers import Server, Variant

LONG_IDS = list(range(100, 140)) * 150
TOO_LONG = "The input ({prompt} tokens) is longer than the model's context length (4096 tokens)."
TOO_MANY = (
    "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
    "{total} tokens: {prompt} tokens from the input messages and 100000 tokens for the completion. Please reduce the "
    "number of tokens in the input messages or the completion to fit within the limit."
)
THREE = [5, 6, 7]

BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    ({"input_ids": LONG_IDS, "sampling_params": {"max_new_tokens": 1}}, TOO_LONG),
    ({"input_ids": THREE, "sampling_params": {"max_new_tokens": 100000}}, TOO_MANY),
    ({"sampling_params": {}}, "Either text, input_ids or input_embeds should be provided."),
    ({"input_ids": []}, "input_ids cannot be empty."),
    (
        {"input_ids": THREE, "sampling_params": {"temperature": -1}},
        "temperature must be a non-negative finite number, got -1.",
    ),
    ({"input_ids": THREE, "sampling_params": {"top_p": 2}}, "top_p must be in (0, 1], got 2."),
    ({"input_ids": THREE, "sampling_params": {"top_k": 0}}, "top_k must be -1 (disable) or at least 1, got 0."),
    ({"input_ids": THREE, "sampling_params": {"max_new_tokens": -1}}, "max_new_tokens must be at least 0, got -1."),
]


def told(message: str, body: dict[str, Any], variant: Variant) -> str:
    """The message with the prompt's tokens, those that EAGLE reserves included."""
    prompt = len(body.get("input_ids", ())) + variant.reserved_tokens
    return message.replace("{prompt}", str(prompt)).replace("{total}", str(prompt + 100000))


VALUE_IDS = ["too-long", "too-many", "no-prompt", "no-ids", "temperature", "top_p", "top_k", "max_new_tokens"]


@pytest.mark.parametrize(("body", "message"), BAD_VALUES, ids=VALUE_IDS)
def test_a_bad_value_is_a_400(server: Server, variant: Variant, body: dict[str, Any], message: str) -> None:
    message = told(message, body, variant)
    answer = server.generate(**body)
    assert (answer.status, answer.json) == (400, {"error": {"message": message}})
    server.wait_for(f"[http_server] Error: {message}")


@pytest.mark.parametrize(("body", "message"), BAD_VALUES, ids=VALUE_IDS)
def test_a_stream_tells_a_bad_value_in_its_first_event(
    server: Server, variant: Variant, body: dict[str, Any], message: str
) -> None:
    message = told(message, body, variant)
    answer = server.generate(**body, stream=True)
    assert answer.status == 200
    error = {"message": message, "type": "invalid_request_error", "code": 400, "retryable": False}
    assert answer.events == [{"error": error}, "[DONE]"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("sampling", "message"),
    [
        ({"max_tokens": 4}, r"unknown field `max_tokens`, expected one of `max_new_tokens`, `stop`, .*, `choice`"),
        ({"max_new_tokens": "a"}, r'invalid type: string "a", expected i64'),
        ({"temperature": "x"}, r'invalid type: string "x", expected f64'),
    ],
)
def test_a_schema_error_is_a_400_even_for_streams(
    server: Server, sampling: dict[str, Any], message: str, stream: bool
) -> None:
    answer = server.generate(input_ids=THREE, sampling_params=sampling, stream=stream)
    assert answer.status == 400
    assert list(answer.json) == ["error"]
    assert re.fullmatch(message, answer.json["error"])


def check_validation(answer: Any, path: str, count: int, *details: str) -> None:
    """The validation error's two parts, which repeat each other, around the place in the code."""
    assert answer.status == 400
    body = answer.json
    assert (body["object"], body["type"], body["param"], body["code"]) == ("error", "Bad Request", None, 400)
    head = f"{count} validation error{'s' if count > 1 else ''}:\n"
    listed = "\n".join(f"  {detail}" for detail in details)
    tail = f"    POST {path} [{', '.join(details)}]"
    pattern = re.escape(head + listed + "\n\n") + r'  File ".*http_server\.py", line \d+, in \w+\n' + re.escape(tail)
    assert re.fullmatch(pattern, body["message"]), body["message"]


@pytest.mark.parametrize("path", ["/generate", "/v1/chat/completions", "/v1/completions"])
def test_a_body_that_is_no_json(server: Server, path: str) -> None:
    cut = (
        "{'type': 'json_invalid', 'loc': ('body', 16), 'msg': 'JSON decode error', 'input': {}, "
        "'ctx': {'error': 'unexpected end of data'}}"
    )
    missing = "{'type': 'missing', 'loc': ('body',), 'msg': 'Field required', 'input': None}"
    check_validation(server.call("POST", path, b'{"text": "hello"'), path, 1, cut)
    check_validation(server.call("POST", path, b""), path, 1, missing)


def test_a_body_that_is_no_mapping(server: Server) -> None:
    wrong = (
        "{'type': 'dataclass_type', 'loc': ('body',), 'msg': 'Input should be a dictionary or an instance of "
        "GenerateReqInput', 'input': [1], 'ctx': {'class_name': 'GenerateReqInput'}}"
    )
    check_validation(server.call("POST", "/generate", [1]), "/generate", 1, wrong)


@pytest.mark.parametrize("name", ["text", "rid"])
def test_a_field_of_the_wrong_type(server: Server, name: str) -> None:
    text = f"{{'type': 'string_type', 'loc': ('body', '{name}', 'str'), 'msg': 'Input should be a valid string', "
    listed = f"{{'type': 'list_type', 'loc': ('body', '{name}', 'list[str]'), 'msg': 'Input should be a valid list', "
    answer = server.generate(**{"text": "hello", name: 5})
    check_validation(answer, "/generate", 2, text + "'input': 5}", listed + "'input': 5}")


BOTH = pytest.mark.parametrize("chat", [pytest.param(True, id="chat"), pytest.param(False, id="completions")])


def openai_error(message: str) -> dict[str, Any]:
    return {"object": "error", "message": message, "type": "BadRequestError", "param": None, "code": 400}


@BOTH
@pytest.mark.parametrize("stream", [False, True])
def test_openai_limits_are_a_400_even_for_streams(server: Server, chat: bool, stream: bool) -> None:
    long = "x " * 9000
    prompt = {"messages": [{"role": "user", "content": long}]} if chat else {"prompt": long}
    answer = server.complete(chat, stream=stream, **prompt)
    pattern = r"The input \(\d+ tokens\) is longer than the model's context length \(4096 tokens\)\."
    assert answer.status == 400
    assert re.fullmatch(pattern, answer.json["message"])
    assert answer.json == openai_error(answer.json["message"])
    many = server.complete(chat, stream=stream, max_tokens=4096)
    assert many.status == 400
    pattern = re.escape(TOO_MANY).replace(r"\{prompt\}", r"\d+").replace(r"\{total\}", r"\d+")
    assert re.fullmatch(pattern.replace("100000", "4096"), many.json["message"])


def test_chat_refuses_a_limit_beyond_the_context_that_was_set(server: Server) -> None:
    words = "max_completion_tokens is too large: 100000.This model supports at most 4096 completion tokens."
    answer = server.complete(True, max_tokens=100000)
    assert (answer.status, answer.json) == (400, openai_error(words))


@BOTH
def test_openai_values_out_of_range(server: Server, chat: bool) -> None:
    answer = server.complete(chat, temperature=-1)
    words = "temperature must be a non-negative finite number, got -1.0."
    assert (answer.status, answer.json) == (400, openai_error(words))


def test_empty_prompts(server: Server) -> None:
    chat = server.complete(True, messages=[])
    assert (chat.status, chat.json) == (400, openai_error("Messages cannot be empty."))
    text = server.complete(False, prompt="")
    assert (text.status, text.json) == (400, openai_error("Prompt cannot be empty"))


@BOTH
def test_openai_fields_of_the_wrong_type(server: Server, chat: bool) -> None:
    path = "/v1/chat/completions" if chat else "/v1/completions"
    model = "{'type': 'string_type', 'loc': ('body', 'model'), 'msg': 'Input should be a valid string', 'input': None}"
    check_validation(server.complete(chat, model=None), path, 1, model)


def test_completions_need_a_positive_limit_and_chat_a_list(server: Server) -> None:
    zero = (
        "{'type': 'value_error', 'loc': ('body', 'max_tokens'), 'msg': 'Value error, max_tokens must be positive', "
        "'input': 0, 'ctx': {'error': ValueError('max_tokens must be positive')}}"
    )
    nothing = "{'type': 'int_type', 'loc': ('body', 'max_tokens'), 'msg': 'Input should be a valid integer', "
    listed = "{'type': 'list_type', 'loc': ('body', 'messages'), 'msg': 'Input should be a valid list', 'input': 'x'}"
    check_validation(server.complete(False, max_tokens=0), "/v1/completions", 1, zero)
    check_validation(server.complete(False, max_tokens=None), "/v1/completions", 1, nothing + "'input': None}")
    check_validation(server.complete(True, messages="x"), "/v1/chat/completions", 1, listed)
    assert server.complete(True, max_tokens=-1).json == openai_error("max_new_tokens must be at least 0, got -1.")


@BOTH
def test_openai_bodies_must_say_that_they_are_json(server: Server, chat: bool) -> None:
    path = "/v1/chat/completions" if chat else "/v1/completions"
    key = {"Authorization": f"Bearer {server.variant.key}"} if server.variant.key else {}
    answer = server.call("POST", path, b'{"prompt": "x"}', headers={**key, "Content-Type": "text/plain"})
    assert answer.status == 400
    assert "Unsupported Media Type: Only 'application/json' is allowed" in answer.json["message"]
    assert answer.json["type"] == "Bad Request"


def test_bad_bodies_of_control_calls(server: Server) -> None:
    junk = (
        "{'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', 'input': {}, "
        "'ctx': {'error': 'unexpected character, expected a JSON value'}}"
    )
    number = (
        "{'type': 'float_parsing', 'loc': ('query', 'timeout'), 'msg': 'Input should be a valid number, "
        "unable to parse string as a number', 'input': 'x'}"
    )
    check_validation(server.call("POST", "/abort_request", b"x", admin=True), "/abort_request", 1, junk)
    check_validation(server.call("POST", "/flush_cache?timeout=x", admin=True), "/flush_cache", 1, number)
