"""How the streaming server streams, what it keeps account of, and what a request asks it for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from benchmarks.stream_frames import Asked

MODEL = "bench-model"
# Of every ten requests with `failing`: one is refused, one is cut after two frames, one gets an error in its stream.
FAILURES = {2: "refused", 5: "cut", 8: "error"}


@dataclass(frozen=True, slots=True)
class Script:
    """How answers are streamed.

    First token `ttft_ms` after the request, then `chunk_tokens` at once so that a stream makes `rate` tokens per
    second; `flat` instead writes as fast as the socket takes. `role_ms`: chat's role-only chunk comes so long after
    the request, else with the first token. `accept_length` is what `/server_info` tells. `detailed`: keep an account
    of each request, not only totals.
    """

    ttft_ms: float = 100.0
    rate: float = 50.0
    chunk_tokens: int = 1
    flat: bool = False
    cumulative: bool = True
    failing: bool = False
    role_ms: float | None = None
    accept_length: float | None = None
    detailed: bool = True


@dataclass(slots=True)
class Told:
    """One request by the server's account. Times are CLOCK_MONOTONIC nanoseconds; `digest` is of the prompt's text."""

    digest: str
    arrived_ns: int
    first_ns: int = 0
    last_ns: int = 0
    tokens: int = 0
    status: str = "open"


@dataclass(slots=True)
class Account:
    """What happened since the script began."""

    requests: list[Told] = field(default_factory=list)
    issued: int = 0
    ended: int = 0
    tokens: int = 0
    open: int = 0
    peak_open: int = 0


def asked_of(api: str, body: Mapping[str, Any], script: Script) -> tuple[str, Asked]:
    """(text of the prompt, what decides the frames)."""
    if api == "generate":
        prompt = body.get("text") or str(body.get("input_ids"))
        tokens = (body.get("sampling_params") or {}).get("max_new_tokens")
    elif api == "chat":
        content = body["messages"][-1]["content"]
        prompt = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
        tokens = body.get("max_completion_tokens") or body.get("max_tokens")
    else:
        prompt, tokens = str(body.get("prompt")), body.get("max_tokens")
    options = body.get("stream_options") or {}
    usage = "every" if options.get("continuous_usage_stats") else "end" if options.get("include_usage") else "none"
    model = str(body.get("model", MODEL))
    return prompt, Asked(
        api, model, int(tokens or 64), prompt.count(" ") + 1, usage, script.chunk_tokens, script.cumulative
    )
