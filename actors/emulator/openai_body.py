"""What a body of the OpenAI endpoints asks for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from actors.emulator.request_body import Ask, BadFields, BadRequest, sampling_of, type_error
from actors.emulator.words import tokenize

# SGLang has no limit of its own for chat; an emulated model would then talk until its context is full.
CHAT_DEFAULT_TOKENS = 256
COMPLETION_DEFAULT_TOKENS = 16
_SAMPLING = ("temperature", "top_p", "top_k", "stop", "stop_token_ids", "ignore_eos", "no_stop_trim", "n")


@dataclass(frozen=True, slots=True)
class Wanted:
    """All answers of one body, and how they are to be told. `echo` has the prompts that precede the answers."""

    asks: tuple[Ask, ...]
    chat: bool
    n: int
    model: str
    stream: bool
    include_usage: bool
    continuous_usage: bool
    echo: tuple[str, ...]


def wanted(body: dict[str, Any], chat: bool, args: dict[str, Any]) -> Wanted:
    """BadFields where a type is wrong, BadRequest where a value is, both in SGLang's words."""
    _check_types(body, chat)
    prompts, texts = _chat_prompts(body, args["context_length"]) if chat else _prompts(body)
    values = {name: body[name] for name in _SAMPLING if body.get(name) is not None}
    values |= {name: float(values[name]) for name in ("temperature", "top_p") if name in values}
    sampling = sampling_of(values | {"max_new_tokens": _new(body, chat)})
    rid = body.get("rid") if len(prompts) * sampling.n == 1 else None
    options = body.get("stream_options") or {}
    default_usage = bool(args["stream_response_default_include_usage"])
    return Wanted(
        asks=tuple(Ask(prompt, sampling, rid) for prompt in prompts for _ in range(sampling.n)),
        chat=chat,
        n=sampling.n,
        model=str(body.get("model", "default")),
        stream=bool(body.get("stream")),
        include_usage=bool(options.get("include_usage", default_usage)),
        continuous_usage=bool(options.get("continuous_usage_stats")),
        echo=tuple(text for text in texts for _ in range(sampling.n)) if body.get("echo") and not chat else (),
    )


def _check_types(body: dict[str, Any], chat: bool) -> None:
    if "model" in body and not isinstance(body["model"], str):
        raise BadFields(type_error("model", wanted="string", value=body["model"]))
    if chat:
        if not isinstance(body.get("messages"), list):
            raise BadFields(type_error("messages", wanted="list", value=body.get("messages")))
        return
    if not isinstance(body.get("prompt"), str | list):
        kinds = (("list[int]", "list"), ("list[list[int]]", "list"), ("str", "string"), ("list[str]", "list"))
        raise BadFields(
            *(type_error("prompt", kind, wanted=kind_of, value=body.get("prompt")) for kind, kind_of in kinds)
        )
    limit = body.get("max_tokens", COMPLETION_DEFAULT_TOKENS)
    if not isinstance(limit, int):
        raise BadFields(type_error("max_tokens", wanted="int", value=limit))
    if limit < 1:
        words = "max_tokens must be positive"
        wrong = {"type": "value_error", "loc": ("body", "max_tokens"), "msg": f"Value error, {words}", "input": limit}
        raise BadFields(wrong | {"ctx": {"error": ValueError(words)}})


def _new(body: dict[str, Any], chat: bool) -> int:
    if not chat:
        return int(body.get("max_tokens", COMPLETION_DEFAULT_TOKENS))
    value = body.get("max_completion_tokens") or body.get("max_tokens")
    return CHAT_DEFAULT_TOKENS if value is None else int(value)


def _message_text(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return f"<|{message.get('role', 'user')}|>\n{content}\n"


def _chat_prompts(body: dict[str, Any], context_given: int | None) -> tuple[list[tuple[int, ...]], list[str]]:
    if not body["messages"]:
        raise BadRequest("Messages cannot be empty.")
    limit = _new(body, chat=True)
    if context_given and limit > context_given:
        raise BadRequest(
            f"max_completion_tokens is too large: {limit}."
            f"This model supports at most {context_given} completion tokens."
        )
    return [tokenize("".join(map(_message_text, body["messages"])) + "<|assistant|>\n")], [""]


def _prompts(body: dict[str, Any]) -> tuple[list[tuple[int, ...]], list[str]]:
    """Token ids of all prompts, and the texts of those that are texts."""
    prompt = body["prompt"]
    if not prompt:
        raise BadRequest("Prompt cannot be empty")
    listed = isinstance(prompt, list) and not isinstance(prompt[0], int)
    prompts = prompt if listed else [prompt]
    ids = [tokenize(each) if isinstance(each, str) else tuple(each) for each in prompts]
    return ids, [each if isinstance(each, str) else "" for each in prompts]
