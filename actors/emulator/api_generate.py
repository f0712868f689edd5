"""`POST /generate`, SGLang's native endpoint: cumulative chunks, `meta_info`, errors in SGLang's words."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, TypeVar

import orjson
from aiohttp import web

from actors.emulator.refusal import json_answer, native_error, read_json, streamed_error, validation_error
from actors.emulator.request_body import BadFields, BadRequest, BadSampling, check_native, check_schema, native_asks
from actors.emulator.serving import QUEUE_FULL, Ticket
from actors.emulator.state import STATE, ServerState, open_stream
from actors.emulator.words import output_ids, output_text

T = TypeVar("T")

DONE = b"data: [DONE]\n\n"


def meta_info(state: ServerState, ticket: Ticket, seen: int, sent_at: float | None) -> dict[str, Any]:
    """`meta_info` of a chunk that ends at token `seen`, with the keys that SGLang has at that point."""
    request, offset = ticket.request, state.engine.wall_offset
    final = request.done and seen >= request.generated
    timed = state.settings.args["enable_metrics"]
    reason = finish_reason(ticket, seen) if final else None
    info: dict[str, Any] = {
        "id": request.rid,
        "finish_reason": reason,
        "prompt_tokens": len(request.prompt),
        "weight_version": "default",
        "num_retractions": request.retractions,
    }
    if timed:
        info |= {
            "storage_prefetch_wait": 0.0,
            "storage_staging_wait": 0.0,
            "forward_entry_time": request.scheduled + offset,
            "prefill_finished_time": request.first_token + offset,
            "queue_time": max(0.0, request.scheduled - request.arrived),
        }
    info |= {"reasoning_tokens": 0, "completion_tokens": seen, "cached_tokens": request.cached}
    if final:
        info["weight_versions"] = [{"version": "default", "start": 0, "end": seen}]
    info["cached_tokens_details"] = {"device": request.cached, "host": 0} if request.cached else None
    info["dp_rank"] = None
    if final:
        info |= _final_info(state, ticket, seen, timed)
    if sent_at is not None:
        info["response_sent_to_client_ts"] = sent_at
    return info


def finish_reason(ticket: Ticket, seen: int) -> dict[str, Any]:
    """By length, a stop condition or an abort; an emulated model never ends an answer by itself."""
    reason, stop = ticket.request.abort_reason, ticket.stop
    if reason is not None:
        return {"type": "abort", "message": reason, "status_code": None, "err_type": None}
    if stop is not None and seen == stop.tokens:
        return {"type": "stop", "matched": stop.matched}
    return {"type": "length", "length": seen}


def answer_text(ticket: Ticket, start: int, seen: int) -> str:
    """Output text from token `start` on; the whole of it is cut where a stop condition ended it."""
    text, stop = output_text(ticket.request.output_seed, start, seen), ticket.stop
    if stop is None or stop.cut is None or seen < stop.tokens:
        return text
    before = len(output_text(ticket.request.output_seed, 0, start))
    return text[: max(0, stop.cut - before)]


def _up_to_most(histogram: list[int]) -> list[int]:
    """Counts by drafts accepted, up to the most that ever were."""
    return histogram[: max((n for n, count in enumerate(histogram) if count), default=0) + 1]


def _final_info(state: ServerState, ticket: Ticket, seen: int, timed: bool) -> dict[str, Any]:
    request, settings = ticket.request, state.settings
    ended = request.finished or time.time() - state.engine.wall_offset
    info: dict[str, Any] = {"e2e_latency": ended - request.arrived}
    if settings.speculating and request.verifies:
        proposed = request.verifies * (settings.draft_tokens - 1)
        info |= {
            "spec_accept_rate": request.accepted / max(1, proposed),
            "spec_accept_length": seen / request.verifies,
            "spec_num_correct_drafts": request.accepted,
            "spec_num_proposed_drafts": proposed,
            "spec_verify_ct": request.verifies,
            "spec_correct_drafts_histogram": _up_to_most(request.histogram),
        }
    if timed:
        decode_s = max(1e-9, ended - request.first_token)
        info |= {
            "request_received_ts": ticket.received,
            "first_token_latency": request.first_token - request.arrived,
            "api_server_dispatch_finish_ts": ticket.received,
            "request_finished_ts": ended + state.engine.wall_offset,
            "decode_throughput": (seen - 1) / decode_s,
        }
    return info


def _output(ticket: Ticket, start: int, end: int) -> dict[str, Any]:
    text = answer_text(ticket, start, end)
    return {"text": text, "output_ids": output_ids(ticket.request.output_seed, start, end)}


async def handle_generate(http: web.Request) -> web.StreamResponse:
    """One or more completions, streamed or whole."""
    state = http.app[STATE]
    body = read_json("/generate", await http.read())
    if isinstance(body, web.Response):
        return body
    if not isinstance(body, dict):
        return _no_dictionary(body)
    stream = bool(body.get("stream"))
    try:
        check_native(body)
        check_schema(body.get("sampling_params"))
        asks = native_asks(body)
        tickets = state.tickets(asks.items, stream)
    except BadFields as error:
        return validation_error("/generate", *error.details)
    except BadSampling as error:
        return json_answer({"error": str(error)}, 400)
    except BadRequest as error:
        state.log.say(f"[http_server] Error: {error}")
        return await _refuse(http, stream, str(error))
    try:
        if any(ticket.request.abort_reason == QUEUE_FULL for ticket in tickets):
            return native_error(503, QUEUE_FULL)
        return await (_stream(http, state, tickets, asks.listed) if stream else _whole(state, tickets, asks.listed))
    finally:
        for ticket in tickets:
            state.engine.abort(ticket.request.rid)


def _no_dictionary(body: Any) -> web.Response:
    name = "GenerateReqInput"
    message = f"Input should be a dictionary or an instance of {name}"
    wrong = {"type": "dataclass_type", "loc": ("body",), "msg": message, "input": body}
    return validation_error("/generate", wrong | {"ctx": {"class_name": name}})


async def _refuse(http: web.Request, stream: bool, message: str) -> web.StreamResponse:
    if not stream:
        return native_error(400, message)
    response = await open_stream(http)
    await response.write(streamed_error(message) + DONE)
    return response


async def _whole(state: ServerState, tickets: Sequence[Ticket], listed: bool) -> web.Response:
    answers = []
    for ticket in tickets:
        seen = await ticket.ended()
        answers.append(_output(ticket, 0, seen) | {"meta_info": meta_info(state, ticket, seen, time.time())})
    return json_answer(answers if listed else answers[0])


async def _stream(http: web.Request, state: ServerState, tickets: Sequence[Ticket], listed: bool) -> web.StreamResponse:
    response = await open_stream(http)
    if listed:
        streams = [_chunks(state, ticket, index) for index, ticket in enumerate(tickets)]
        async for chunk, _ in merged(streams):
            await response.write(chunk)
        await response.write(DONE)
        return response
    async for chunk, last in _chunks(state, tickets[0], None):
        await response.write(chunk + DONE if last else chunk)
    return response


async def _chunks(state: ServerState, ticket: Ticket, index: int | None) -> AsyncIterator[tuple[bytes, bool]]:
    """Events of one answer, and whether it is the last."""
    incremental = state.settings.args["incremental_streaming_output"]
    interval = state.settings.args["stream_interval"]
    seen, last = 0, False
    first_sent = None
    while not last:
        start = seen
        seen = await ticket.progress(seen)
        last = ticket.request.done
        if not last and start and seen - start < interval:
            seen = await _gather(ticket, start + interval)
            last = ticket.request.done
        chunk = _output(ticket, start if incremental else 0, seen)
        first_sent = first_sent or time.time()
        chunk["meta_info"] = meta_info(state, ticket, seen, first_sent if last or not start else None)
        if index is not None:
            chunk["index"] = index
        yield b"data: " + orjson.dumps(chunk) + b"\n\n", last


async def _gather(ticket: Ticket, wanted: int) -> int:
    """`--stream-interval`: wait for more tokens than one step gives."""
    seen = ticket.request.generated
    while seen < wanted and not ticket.request.done:
        seen = await ticket.progress(seen)
    return seen


async def merged(streams: Sequence[AsyncIterator[T]]) -> AsyncIterator[T]:
    """What several streams yield, as it comes."""
    queue: asyncio.Queue[tuple[T] | None] = asyncio.Queue()

    async def pump(stream: AsyncIterator[T]) -> None:
        async for item in stream:
            queue.put_nowait((item,))
        queue.put_nowait(None)

    pumps = [asyncio.get_running_loop().create_task(pump(stream)) for stream in streams]
    left = len(pumps)
    try:
        while left:
            item = await queue.get()
            if item is None:
                left -= 1
            else:
                yield item[0]
    finally:
        for task in pumps:
            task.cancel()
