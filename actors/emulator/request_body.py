"""From a request body to what the engine is asked: prompts and sampling, or a refusal in SGLang's words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from actors.emulator.words import tokenize

DEFAULT_NEW_TOKENS = 128

_INTS = {"max_new_tokens", "top_k", "min_new_tokens", "n", "stream_interval", "sampling_seed", "beam_width"}
_FLOATS = {"temperature", "top_p", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty"}
SAMPLING_FIELDS = [
    "max_new_tokens",
    "stop",
    "stop_token_ids",
    "stop_regex",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "repetition_penalty",
    "min_new_tokens",
    "n",
    "json_schema",
    "regex",
    "ebnf",
    "structural_tag",
    "ignore_eos",
    "skip_special_tokens",
    "spaces_between_special_tokens",
    "no_stop_trim",
    "stream_interval",
    "logit_bias",
    "sampling_seed",
    "custom_params",
    "beam_width",
    "watermark",
    "choice",
]


class BadRequest(ValueError):
    """A request that SGLang answers with 400 and this text."""


class BadSampling(ValueError):
    """Sampling that SGLang's schema refuses before it looks at anything else; streamed requests get a 400 too."""


class BadFields(ValueError):
    """Fields of the wrong type: `details` are the entries of SGLang's validation error."""

    def __init__(self, *details: dict[str, Any]) -> None:
        super().__init__(details)
        self.details = details


@dataclass(frozen=True, slots=True)
class Sampling:
    """What of the sampling decides when an answer ends, and how many answers there are."""

    max_new_tokens: int = DEFAULT_NEW_TOKENS
    n: int = 1
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    trim: bool = True
    ignore_eos: bool = False


@dataclass(frozen=True, slots=True)
class Ask:
    """One answer that is wanted. `rid` is None where the server chooses one."""

    prompt: tuple[int, ...]
    sampling: Sampling
    rid: str | None = None


@dataclass(frozen=True, slots=True)
class Asks:
    """All answers of one body, in order, and whether they are answered as a list."""

    items: tuple[Ask, ...]
    listed: bool


def type_error(*where: str, wanted: str, value: Any) -> dict[str, Any]:
    """One entry of a validation error: `wanted` is string, list or int."""
    article = "integer" if wanted == "int" else wanted
    message = f"Input should be a valid {article}"
    return {"type": f"{wanted}_type", "loc": ("body", *where), "msg": message, "input": value}


def check_schema(sampling: Any) -> None:
    """Refuse unknown sampling fields and wrong types of numbers."""
    for each in sampling if isinstance(sampling, list) else [sampling]:
        for name, value in (each or {}).items():
            if name not in SAMPLING_FIELDS:
                expected = ", ".join(f"`{field}`" for field in SAMPLING_FIELDS)
                raise BadSampling(f"unknown field `{name}`, expected one of {expected}")
            if name in _INTS | _FLOATS and isinstance(value, str):
                kind = "i64" if name in _INTS else "f64"
                raise BadSampling(f'invalid type: string "{value}", expected {kind}')


def check_values(sampling: dict[str, Any]) -> None:
    """Refuse values out of range."""
    temperature = sampling.get("temperature")
    if temperature is not None and not (math.isfinite(temperature) and temperature >= 0):
        raise BadRequest(f"temperature must be a non-negative finite number, got {temperature}.")
    top_p, top_k, new = sampling.get("top_p"), sampling.get("top_k"), sampling.get("max_new_tokens")
    if top_p is not None and not 0 < top_p <= 1:
        raise BadRequest(f"top_p must be in (0, 1], got {top_p}.")
    if top_k is not None and top_k < 1 and top_k != -1:
        raise BadRequest(f"top_k must be -1 (disable) or at least 1, got {top_k}.")
    if new is not None and new < 0:
        raise BadRequest(f"max_new_tokens must be at least 0, got {new}.")


def sampling_of(values: dict[str, Any]) -> Sampling:
    """Checked sampling. `ignore_eos` ignores stop tokens, but not stop strings, as in SGLang."""
    check_values(values)
    new, stop = values.get("max_new_tokens"), values.get("stop") or ()
    stops = (stop,) if isinstance(stop, str) else tuple(stop)
    return Sampling(
        max_new_tokens=DEFAULT_NEW_TOKENS if new is None else new,
        n=max(1, values.get("n") or 1),
        stop=stops,
        stop_token_ids=() if values.get("ignore_eos") else tuple(values.get("stop_token_ids") or ()),
        trim=not values.get("no_stop_trim"),
        ignore_eos=bool(values.get("ignore_eos")),
    )


def _is_ids(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(token, int) for token in value)


def _native_prompts(body: dict[str, Any]) -> tuple[list[tuple[int, ...]], bool]:
    """Token ids of all prompts, and whether the body gave a list of prompts. `input_ids` win over `text`."""
    ids, text = body.get("input_ids"), body.get("text")
    if ids is not None:
        if not ids:
            raise BadRequest("input_ids cannot be empty.")
        if _is_ids(ids):
            return [tuple(ids)], False
        return [tuple(each) for each in ids], True
    if isinstance(text, str):
        return [tokenize(text) or (0,)], False
    if text is None:
        raise BadRequest("Either text, input_ids or input_embeds should be provided.")
    return [tokenize(each) or (0,) for each in text], True


def check_native(body: dict[str, Any]) -> None:
    """Refuse wrong types of the fields that say what is asked."""
    for name in ("text", "rid"):
        value = body.get(name)
        strings = isinstance(value, list) and all(isinstance(each, str) for each in value)
        if not (value is None or isinstance(value, str) or strings):
            raise BadFields(
                type_error(name, "str", wanted="string", value=value),
                type_error(name, "list[str]", wanted="list", value=value),
            )


def native_asks(body: dict[str, Any]) -> Asks:
    """All answers that a `/generate` body asks for: prompts times `n`, the answers of a prompt side by side."""
    prompts, listed = _native_prompts(body)
    given = body.get("sampling_params") or {}
    each = given if isinstance(given, list) else [given] * len(prompts)
    samplings = [sampling_of(values) for values in each]
    listed = listed or samplings[0].n > 1
    return Asks(tuple(_spread(prompts, samplings, body.get("rid"), listed)), listed)


def _spread(
    prompts: list[tuple[int, ...]], samplings: list[Sampling], rid: str | list[str] | None, listed: bool
) -> Iterator[Ask]:
    for index, (prompt, sampling) in enumerate(zip(prompts, samplings, strict=True)):
        own = rid[index] if isinstance(rid, list) else None if listed else rid
        for copy in range(sampling.n):
            yield Ask(prompt, sampling, own if copy == 0 else None)
