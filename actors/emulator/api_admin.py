"""State, control and metrics endpoints."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import orjson
from aiohttp import web

from actors.emulator.startup import PHASES
from actors.emulator.state import STATE, VERSION, ServerState

FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)
SECRETS = ("api_key", "admin_api_key")


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


async def handle_health(http: web.Request) -> web.Response:
    """200 once a one-token request went through the engine; 503 while starting or draining."""
    state = http.app[STATE]
    if state.status != "ready":
        return web.Response(status=503)
    ticket = state.ticket((0,), 1, stream=False, internal=True)
    await ticket.progress(0)
    return web.Response()


async def handle_ready(http: web.Request) -> web.Response:
    """The in-process flag, no generation."""
    return web.Response(status=200 if http.app[STATE].status == "ready" else 503)


def public_args(args: dict[str, Any]) -> dict[str, Any]:
    """Resolved settings without secrets. SGLang shows keys in clear; a stand-in has no reason to."""
    return {name: "<redacted>" if name in SECRETS and value else value for name, value in args.items()}


async def handle_model_info(http: web.Request) -> web.Response:
    """Model, tokenizer and weight version."""
    state = http.app[STATE]
    args = state.settings.args
    return _json(
        {
            "model_path": args["model_path"],
            "served_model_name": state.model_name,
            "tokenizer_path": args["tokenizer_path"],
            "is_generation": True,
            "preferred_sampling_params": args["preferred_sampling_params"],
            "weight_version": "default",
            "load_format": args["load_format"],
            "reasoning_parser": args["reasoning_parser"],
            "tool_call_parser": args["tool_call_parser"],
            "disaggregation_mode": args["disaggregation_mode"],
            "has_image_understanding": False,
            "has_audio_understanding": False,
            "model_type": state.profile.name,
            "architectures": [state.profile.architecture],
        }
    )


def memory_usage(state: ServerState) -> dict[str, Any]:
    """GiB of one rank, of the target model only, as SGLang reports them."""
    plan, graphs = state.plan, dict.fromkeys(PHASES, 0.0)
    graphs |= {graph.metric: round(graph.cost_gib, 3) for graph in plan.graphs}
    pool = plan.kv_gib + (plan.state.total_gib if plan.state else 0.0)
    return {
        "weight": round(plan.weights_gib, 3),
        "kvcache": round(pool, 3),
        "startup_available": round(plan.available_gib, 3),
        "token_capacity": plan.kv_tokens,
        "token_capacity_swa": None,
        "graph": graphs,
    }


def _internal_state(state: ServerState) -> dict[str, Any]:
    engine, args = state.engine, state.settings.args
    decode = [graph for graph in state.plan.graphs if graph.metric in {"decode", "target_verify"}]
    internal = public_args(args) | {
        "world_size": state.settings.tp,
        "startup_time": {k: v for k, v in state.startup.items() if k != "tokenizer_e2e"},
        "effective_max_running_requests_per_dp": state.plan.max_running,
        "last_gen_throughput": engine.last_throughput,
        "memory_usage": memory_usage(state),
        "disaggregation_mode": "null",
        "decode_cuda_graph_bs": list(decode[0].sizes[::-1]) if decode else [],
        "decode_cuda_graph_memory_gb": round(sum(g.cost_gib for g in state.plan.graphs), 3),
    }
    if engine.accept_length is not None:
        internal["avg_spec_accept_length"] = engine.accept_length
    return internal


async def handle_server_info(http: web.Request) -> web.Response:
    """Resolved settings, capacities and the state of the scheduler. `engine` tells that this is a stand-in."""
    state = http.app[STATE]
    return _json(
        public_args(state.settings.args)
        | {
            "launch_command": state.launch_command,
            "status": "ready" if state.status == "ready" else state.status,
            "max_total_num_tokens": state.plan.kv_tokens,
            "max_req_input_len": state.settings.context_length - 6,
            "startup_time": state.startup,
            "kv_events": None,
            "internal_states": [_internal_state(state)],
            "version": VERSION,
            "frontend": "python",
            "engine": "emulator",
            "emulator_profile": state.profile.name,
        }
    )


async def handle_metrics(http: web.Request) -> web.Response:
    """The Prometheus page."""
    return web.Response(text=http.app[STATE].metrics.render(), content_type="text/plain")


async def handle_loads(http: web.Request) -> web.Response:
    """Queue, pool and memory figures, cheap to poll."""
    state = http.app[STATE]
    batch, now = state.engine.batch, time.time()
    used, capacity = batch.tokens_used, max(1, state.plan.kv_tokens)
    usage = memory_usage(state)
    load: dict[str, Any] = {
        "timestamp": now,
        "dp_rank": 0,
        "num_running_reqs": len(batch.running),
        "num_waiting_reqs": len(batch.waiting),
        "num_waiting_uncached_tokens": sum(len(r.prompt) for r in batch.waiting),
        "num_used_tokens": used,
        "num_total_tokens": used,
        "num_active_tokens": used,
        "max_total_num_tokens": state.plan.kv_tokens,
        "max_running_requests": state.plan.max_running,
        "token_usage": round(used / capacity, 2),
        "gen_throughput": state.engine.last_throughput,
        "memory": {
            "weight_gb": usage["weight"],
            "kv_cache_gb": usage["kvcache"],
            "graph_gb": round(sum(usage["graph"].values()), 3),
            "token_capacity": state.plan.kv_tokens,
        },
        "queues": {"waiting": len(batch.waiting), "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
    }
    if state.engine.accept_length is not None:
        rate = state.metrics.gauges.get("spec_accept_rate", 0.0)
        load["speculative"] = {"accept_length": state.engine.accept_length, "accept_rate": rate}
    stamp = datetime.fromtimestamp(now, UTC).isoformat()
    body = {"timestamp": stamp, "version": VERSION, "accelerator": None, "num_accelerators": state.settings.tp}
    return _json(body | {"loads": [load]})


async def handle_flush(http: web.Request) -> web.Response:
    """Empty the prefix cache; 400 while requests run."""
    flushed = http.app[STATE].engine.flush()
    return web.Response(text=FLUSHED, status=200 if flushed else 400)


async def handle_abort(http: web.Request) -> web.Response:
    """End one request by `rid`, or all of them."""
    engine = http.app[STATE].engine
    try:
        body = orjson.loads(await http.read())
    except orjson.JSONDecodeError:
        body = {}
    for rid in list(engine.tickets) if body.get("abort_all") else [str(body.get("rid", ""))]:
        engine.abort(rid, "Abort by /abort_request")
    return web.Response()


async def handle_freeze_gc(_: web.Request) -> web.Response:
    """Accepted; there is nothing to freeze."""
    return web.Response(text="Garbage collection frozen.\n")
