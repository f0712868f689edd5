"""The web application: routes, API keys, access log, uvicorn's headers."""

from __future__ import annotations

import hmac
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from aiohttp import web

from actors.emulator import api_control, api_generate, api_info, api_openai
from actors.emulator.refusal import json_answer
from actors.emulator.state import STATE, ServerState

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN_PATHS = ("/health", "/ready", "/metrics")
ADMIN_PATHS = ("/flush_cache", "/abort_request", "/freeze_gc", "/start_profile", "/stop_profile")


def build_app(state: ServerState) -> web.Application:
    """All endpoints of one server."""
    app = web.Application(middlewares=[*state.middlewares, _authorise], client_max_size=1 << 28)
    app[STATE] = state
    app.on_response_prepare.append(_on_prepare)
    router = app.router
    router.add_post("/generate", api_generate.handle_generate)
    router.add_put("/generate", api_generate.handle_generate)
    router.add_post("/v1/completions", api_openai.handle_completions)
    router.add_post("/v1/chat/completions", api_openai.handle_chat)
    router.add_get("/v1/models", api_openai.handle_models)
    router.add_get("/v1/models/{name:.+}", api_openai.handle_model)
    router.add_get("/v1/loads", api_info.handle_loads)
    for path in ("/health", "/health_generate"):
        router.add_get(path, api_control.handle_health)
    router.add_get("/ready", api_control.handle_ready)
    for path in ("/model_info", "/get_model_info"):
        router.add_get(path, api_info.handle_model_info)
    for path in ("/server_info", "/get_server_info"):
        router.add_get(path, api_info.handle_server_info)
    if state.settings.args["enable_metrics"]:
        router.add_get("/metrics", api_info.handle_metrics)
        router.add_get("/metrics/", api_info.handle_metrics)
    both = {
        "/flush_cache": api_control.handle_flush,
        "/freeze_gc": api_control.handle_freeze_gc,
        "/start_profile": api_control.handle_start_profile,
        "/stop_profile": api_control.handle_stop_profile,
    }
    for path, handler in both.items():
        router.add_get(path, handler)
        router.add_post(path, handler)
    router.add_post("/abort_request", api_control.handle_abort)
    return app


def _wanted_key(state: ServerState, path: str) -> str | None:
    if path.startswith(OPEN_PATHS):
        return None
    admin = state.settings.args["admin_api_key"]
    if path in ADMIN_PATHS and admin:
        return str(admin)
    key = state.settings.args["api_key"]
    return str(key) if key else None


@web.middleware
async def _authorise(request: web.Request, handler: Handler) -> web.StreamResponse:
    state = request.app[STATE]
    key = _wanted_key(state, request.path)
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if key is not None and not (scheme.lower() == "bearer" and hmac.compare_digest(given.encode(), key.encode())):
        return json_answer({"error": "Unauthorized"}, 401)
    call = (request.path, request.method)
    state.metrics.http_requests[call] += 1
    state.metrics.http_active[call] += 1
    try:
        return await handler(request)
    except web.HTTPException as error:
        answer = json_answer({"detail": error.reason}, error.status)
        if "Allow" in error.headers:
            answer.headers["Allow"] = ", ".join(sorted(set(error.headers["Allow"].split(",")) - {"HEAD"}))
        return answer
    finally:
        state.metrics.http_active[call] -= 1


async def _on_prepare(request: web.Request, response: web.StreamResponse) -> None:
    """uvicorn logs a request when its headers leave, so a long stream shows up at its start."""
    state = request.app[STATE]
    response.headers["server"] = "uvicorn"
    response.headers["vary"] = "Origin"
    state.metrics.http[(request.path, request.method, response.status)] += 1
    peer = request.transport.get_extra_info("peername") if request.transport else None
    client = f"{peer[0]}:{peer[1]}" if peer else "-"
    status = HTTPStatus(response.status)
    state.log.access(
        f'INFO:     {client} - "{request.method} {request.path_qs} HTTP/1.1" {response.status} {status.phrase}'
    )
