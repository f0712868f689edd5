"""Health, and what acts on a running server: flush, abort, profile."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from aiohttp import web

from actors.emulator.refusal import read_json, validation_error
from actors.emulator.request_body import Ask, Sampling
from actors.emulator.state import STATE

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
FLUSH_POLL_S = 0.02
ONE_TOKEN = Ask((0,), Sampling(max_new_tokens=1))


async def handle_health(http: web.Request) -> web.Response:
    """200 once a one-token request went through the engine; 503 while starting or draining."""
    state = http.app[STATE]
    if state.status == "draining":
        state.log.say("Health check request received during shutdown. Returning 503.")
    if state.status != "ready":
        return web.Response(status=503)
    await state.ticket(ONE_TOKEN, stream=False, internal=True).ended()
    return web.Response()


async def handle_ready(http: web.Request) -> web.Response:
    """The in-process flag, no generation."""
    return web.Response(status=200 if http.app[STATE].status == "ready" else 503)


async def handle_flush(http: web.Request) -> web.Response:
    """Empty the prefix cache; 400 while requests run. `timeout` is how many seconds to wait for them to end."""
    engine, given = http.app[STATE].engine, http.query.get("timeout", "0")
    try:
        timeout_s = float(given)
    except ValueError:
        words = "Input should be a valid number, unable to parse string as a number"
        wrong: dict[str, Any] = {"type": "float_parsing", "loc": ("query", "timeout"), "msg": words, "input": given}
        return validation_error("/flush_cache", wrong)
    end = time.monotonic() + timeout_s
    while engine.batch.busy and time.monotonic() < end:  # noqa: ASYNC110 - a step has no event
        await asyncio.sleep(FLUSH_POLL_S)
    if engine.flush():
        return web.Response(body=FLUSHED.encode())
    return web.Response(body=b"Flush cache failed.\n", status=400)


async def handle_abort(http: web.Request) -> web.Response:
    """End one request by `rid`, or all of them."""
    state = http.app[STATE]
    body = read_json("/abort_request", await http.read())
    if isinstance(body, web.Response):
        return body
    if not body.get("rid") and not body.get("abort_all"):
        state.log.say("Ignore abort_request with empty rid and abort_all=False")
    for rid in list(state.engine.tickets) if body.get("abort_all") else [str(body.get("rid", ""))]:
        state.engine.abort(rid, "Aborted")
    return web.Response()


async def handle_freeze_gc(_: web.Request) -> web.Response:
    """Accepted; there is nothing to freeze."""
    return web.Response(body=b"Garbage collection frozen.\n")


async def handle_start_profile(http: web.Request) -> web.Response:
    """Record engine steps from now on: until `/stop_profile`, or for `num_steps` steps."""
    raw, state = await http.read(), http.app[STATE]
    body = (read_json("/start_profile", raw) if raw else None) or {}
    if isinstance(body, web.Response):
        return body
    state.engine.profiler.start(body.get("output_dir"), body.get("num_steps"), body.get("profile_id"))
    return web.Response(body=b"Start profiling.\n")


async def handle_stop_profile(http: web.Request) -> web.Response:
    """Write the trace. Without a profile that runs SGLang's handler fails, and so does this one."""
    profiler = http.app[STATE].engine.profiler
    if not profiler.running:
        return web.Response(text="Internal Server Error", status=500)
    profiler.stop()
    return web.Response(body=b"Stop profiling. This will take some time.\n")
