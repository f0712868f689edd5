"""`POST /generate`, SGLang's native endpoint: cumulative chunks, `meta_info`, errors in SGLang's words."""

from __future__ import annotations

import math
import time
from typing import Any

import orjson
from aiohttp import web

from actors.emulator.serving import QUEUE_FULL, Ticket
from actors.emulator.state import STATE, BadRequest, ServerState, open_stream
from actors.emulator.words import output_ids, output_text, tokenize

DEFAULT_NEW_TOKENS = 128
DONE = b"data: [DONE]\n\n"


def json_error(status: int, message: str) -> web.Response:
    """The native API's error body."""
    return web.json_response({"error": {"message": message}}, status=status, dumps=_dumps)


def _dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


def bad_json(path: str) -> web.Response:
    """What SGLang answers to a body that is not JSON."""
    detail = "{'type': 'json_invalid', 'loc': ('body', 0), 'msg': 'JSON decode error', 'input': {}}"
    body = {
        "object": "error",
        "message": f"1 validation error:\n  {detail}\n\n    POST {path} [{detail}]",
        "type": "Bad Request",
        "param": None,
        "code": 400,
    }
    return web.json_response(body, status=400, dumps=_dumps)


def _prompt(body: dict[str, Any]) -> tuple[int, ...]:
    if isinstance(body.get("input_ids"), list):
        ids = body["input_ids"]
        if not ids or not all(isinstance(token, int) for token in ids):
            raise BadRequest("input_ids must be a non-empty list of token ids; batches are not emulated.")
        return tuple(ids)
    if isinstance(body.get("text"), str):
        return tokenize(body["text"]) or (0,)
    raise BadRequest("Either text, input_ids or input_embeds should be provided.")


def check_temperature(value: Any) -> None:
    """SGLang's check of the one sampling value that users get wrong."""
    if value is not None and not (isinstance(value, int | float) and math.isfinite(value) and value >= 0):
        raise BadRequest(f"temperature must be a non-negative finite number, got {value}.")


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
    """Always by length, unless aborted: an emulated model never says stop."""
    reason = ticket.request.abort_reason
    if reason is not None:
        return {"type": "abort", "message": reason, "status_code": None, "err_type": None}
    return {"type": "length", "length": seen}


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
            "spec_correct_drafts_histogram": list(request.histogram),
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
    seed = ticket.request.output_seed
    return {"text": output_text(seed, start, end), "output_ids": output_ids(seed, start, end)}


async def handle_generate(http: web.Request) -> web.StreamResponse:
    """One completion, streamed or whole."""
    state = http.app[STATE]
    try:
        body = orjson.loads(await http.read())
    except orjson.JSONDecodeError:
        return bad_json("/generate")
    if not isinstance(body, dict):
        return bad_json("/generate")
    stream = bool(body.get("stream"))
    try:
        sampling = body.get("sampling_params") or {}
        check_temperature(sampling.get("temperature"))
        wanted = sampling.get("max_new_tokens", DEFAULT_NEW_TOKENS)
        ticket = state.ticket(_prompt(body), wanted, stream, body.get("rid"))
    except BadRequest as error:
        state.log.say(f"[http_server] Error: {error}")
        return await _refuse(http, stream, str(error))
    if ticket.request.abort_reason == QUEUE_FULL:
        return json_error(503, QUEUE_FULL)
    try:
        return await (_stream(http, state, ticket) if stream else _whole(state, ticket))
    finally:
        state.engine.abort(ticket.request.rid)


async def _refuse(http: web.Request, stream: bool, message: str) -> web.StreamResponse:
    if not stream:
        return json_error(400, message)
    response = await open_stream(http)
    await response.write(b"data: " + orjson.dumps({"error": {"message": message}}) + b"\n\n" + DONE)
    return response


async def _whole(state: ServerState, ticket: Ticket) -> web.Response:
    seen = 0
    while not ticket.request.done:
        seen = await ticket.progress(seen)
    seen = ticket.request.generated
    answer = _output(ticket, 0, seen) | {"meta_info": meta_info(state, ticket, seen, time.time())}
    return web.Response(body=orjson.dumps(answer), content_type="application/json")


async def _stream(http: web.Request, state: ServerState, ticket: Ticket) -> web.StreamResponse:
    response = await open_stream(http)
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
        await response.write(b"data: " + orjson.dumps(chunk) + b"\n\n" + (DONE if last else b""))
    return response


async def _gather(ticket: Ticket, wanted: int) -> int:
    """`--stream-interval`: wait for more tokens than one step gives."""
    seen = ticket.request.generated
    while seen < wanted and not ticket.request.done:
        seen = await ticket.progress(seen)
    return seen
