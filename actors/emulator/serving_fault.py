"""Faults of a server that was ready, as a script writes them; `fault` says which."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from actors.emulator.fault import Count, Fault, FloodLine, Lasting, Seconds

DeathLabel = Literal[
    "runtime_oom", "runtime_pool", "cuda_ima", "nccl_timeout", "software_bug", "watchdog_hang", "segfault_abort",
    "rank_killed", "killed",
]  # fmt: skip


class ServingFault(Fault):
    """A fault of a server that was ready."""

    after_s: float = Field(0.0, ge=0, allow_inf_nan=False, description="Not before so many seconds after ready.")


class RequestFault(ServingFault):
    """A fault that requests bring about. Only requests that stream an answer count, from ready on."""

    path: str | None = Field(
        None,
        pattern="^/",
        description="Only requests to this path count, e.g. `/v1/completions`; default: all that generate.",
    )
    request: Count | None = Field(None, description="Not before the request of this number, the first being 1.")
    probability: float | None = Field(
        None, gt=0, le=1, description="Share of the requests that it strikes, drawn from the script's seed."
    )
    times: Count | Literal["always"] = Field(1, description="How many requests it strikes in all.")


class StreamFault(RequestFault):
    """A fault inside an answer."""

    token: int = Field(
        1,
        ge=0,
        description="Once so many output tokens have left (0: before the first chunk). In streams that carry no counts "
        "a chunk counts as a token.",
    )


class ServerFault(StreamFault):
    """A fault of the whole server. Without `request` and `probability` it strikes by itself, `after_s` after ready."""


class Stall(Lasting, ServerFault):
    """All streams are silent for a while, then go on."""

    fault: Literal["stall"]


class Crawl(ServerFault):
    """Every step takes longer, as on a GPU that throttles."""

    fault: Literal["crawl"]
    seconds: Seconds = Field(description="How much longer each step takes.")
    whenever: str | None = Field(
        None,
        min_length=1,
        description="Only while this file is there; relative to the script. It keeps a request running for as long as "
        "it is looked at.",
    )


class Hang(ServerFault):
    """No token ever again; the process lives on."""

    fault: Literal["hang"]
    health: Literal[200, 503] = Field(200, description="What /health says from then on.")


class SlowDeath(ServerFault):
    """Throughput decays to nothing."""

    fault: Literal["slow_death"]
    halving_s: Seconds = Field(description="It halves every so many seconds.")


class Die(ServerFault):
    """The server dies."""

    fault: Literal["die"]
    label: DeathLabel = Field(
        description="Cause. `rank_killed`: one scheduler gone without a word, the server some seconds later; `killed`: "
        "the main process, at once."
    )
    rank: int = Field(0, ge=0, description="Which scheduler.")


class LogFlood(ServerFault):
    """The log is flooded while requests are served."""

    fault: Literal["log_flood"]
    mib_per_s: Seconds = Field(description="MiB a second.")
    seconds: Seconds = Field(description="How long.")
    lines: list[FloodLine] = Field(
        default_factory=lambda: list(get_args(FloodLine)), min_length=1, description="Kinds of lines, in turn."
    )


class Cut(StreamFault):
    """The connection ends inside the answer: no error event, no `[DONE]`."""

    fault: Literal["cut"]
    reset: bool = Field(False, description="By a TCP reset; otherwise it is closed.")


class Truncate(StreamFault):
    """The answer ends early as if it were whole: no finish reason, no `[DONE]`, but a proper end of the HTTP body."""

    fault: Literal["truncate"]


class ErrorEvent(StreamFault):
    """An error object inside the 200 stream, then `[DONE]`."""

    fault: Literal["error_event"]
    message: str = Field("Out of memory even after retracting all other requests in the decode batch. "
                         "Aborting the last request.", min_length=1, description="Its text.")  # fmt: skip


class HttpError(RequestFault):
    """No stream but an HTTP error, in the body forms of the endpoint."""

    fault: Literal["http_error"]
    status: int = Field(ge=400, le=599, description="503 means SGLang's full queue, 502 a proxy in front of it.")
    message: str | None = Field(None, description="Text of the error; default by status.")
    body: Literal["json", "html", "text", "empty"] = Field("json", description="Form of the body.")


class Empty(RequestFault):
    """A whole answer of 0 tokens."""

    fault: Literal["empty"]


class SlowFirstByte(RequestFault):
    """Nothing comes back for a while, not even headers."""

    fault: Literal["slow_first_byte"]
    seconds: Seconds = Field(description="How long.")


class DropConnection(RequestFault):
    """A kept-alive connection is closed at its next request without an answer (others are let through)."""

    fault: Literal["drop_connection"]


class Reframe(RequestFault):
    """The same events, other bytes: what proxies and networks do to a stream."""

    fault: Literal["reframe"]
    split: bool = Field(True, description="Writes end at random bytes, also inside UTF-8 characters.")
    join: Count = Field(1, description="So many chunks of the server leave in one write.")
    crlf: bool = Field(False, description="Line ends are CRLF.")
    comments: bool = Field(False, description="Keep-alive comments between the events.")


class Usage(RequestFault):
    """Token counts that cannot be trusted."""

    fault: Literal["usage"]
    counts: Literal["missing", "zero", "doubled"] = Field("missing", description="What becomes of `completion_tokens`.")


class DoneMark(RequestFault):
    """A whole answer with a wrong end mark."""

    fault: Literal["done_mark"]
    mark: Literal["missing", "twice"] = Field(description="What becomes of `[DONE]`.")


class EndpointFault(ServingFault):
    """A side endpoint answers something else."""

    fault: Literal["endpoint"]
    path: str = Field(pattern="^/", description="E.g. `/metrics`, `/server_info`, `/flush_cache`, `/health`.")
    status: int = Field(404, ge=200, le=599, description="HTTP status.")
    body: str = Field("", description="Body, as it is.")
    content_type: str = Field("application/json", description="Its type.")
    seconds: Seconds | None = Field(None, description="How long, from `after_s` on; default: for ever.")
    times: Count | Literal["always"] = Field("always", description="How many requests it strikes in all.")


SERVING_FAULTS: dict[str, type[ServingFault]] = {
    "stall": Stall, "hang": Hang, "slow_death": SlowDeath, "crawl": Crawl, "die": Die, "log_flood": LogFlood,
    "cut": Cut, "truncate": Truncate, "error_event": ErrorEvent, "http_error": HttpError, "empty": Empty,
    "slow_first_byte": SlowFirstByte, "drop_connection": DropConnection, "reframe": Reframe, "usage": Usage,
    "done_mark": DoneMark, "endpoint": EndpointFault,
}  # fmt: skip
