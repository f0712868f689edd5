"""What a server tells about itself: model, resolved settings, capacities, load, metrics."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from actors.emulator.refusal import json_answer
from actors.emulator.startup import PHASES
from actors.emulator.state import STATE, VERSION, ServerState

SECRETS = ("api_key", "admin_api_key")


def public_args(args: dict[str, Any]) -> dict[str, Any]:
    """Resolved settings without secrets. SGLang shows keys in clear; a stand-in has no reason to."""
    shown = {name: value for name, value in args.items() if name != "config"}
    return {name: "<redacted>" if name in SECRETS and value else value for name, value in shown.items()}


async def handle_model_info(http: web.Request) -> web.Response:
    """Model, tokenizer and weight version."""
    state = http.app[STATE]
    args = state.settings.args
    _deprecated(http)
    return json_answer(
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


def _deprecated(http: web.Request) -> None:
    if http.path.startswith("/get_"):
        http.app[STATE].log.say(
            f"Endpoint '{http.path}' is deprecated and will be removed in a future version. "
            f"Please use '/{http.path.removeprefix('/get_')}' instead."
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
    _deprecated(http)
    return json_answer(
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
    """Queue, pool and memory figures, cheap to poll. `include` names the sections, `format` may be prometheus."""
    state = http.app[STATE]
    wanted = set(http.query.get("include", "all").split(","))
    sections = _load_sections(state)
    load = _core_load(state) | {k: v for k, v in sections.items() if wanted & {"all", SECTION_NAMES.get(k, k)}}
    if http.query.get("format") == "prometheus":
        return web.Response(text=_prometheus(load), content_type="text/plain")
    stamp = datetime.fromtimestamp(load["timestamp"], UTC).isoformat()
    body = {"timestamp": stamp, "version": VERSION, "accelerator": None, "num_accelerators": state.settings.tp}
    return json_answer(body | {"loads": [load]})


SECTION_NAMES = {"speculative": "spec", "disaggregation": "disagg"}


def _core_load(state: ServerState) -> dict[str, Any]:
    engine, metrics = state.engine, state.metrics
    batch, used = engine.batch, engine.batch.tokens_used
    return {
        "timestamp": time.time(),
        "dp_rank": 0,
        "num_running_reqs": len(batch.running),
        "num_waiting_reqs": len(batch.waiting),
        "num_waiting_uncached_tokens": sum(len(r.prompt) for r in batch.waiting),
        "num_used_tokens": used,
        "num_total_tokens": used,
        "num_active_tokens": used,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": state.plan.kv_tokens,
        "max_running_requests": state.plan.max_running,
        "token_usage": round(used / max(1, state.plan.kv_tokens), 4),
        "gen_throughput": engine.last_throughput,
        "cache_hit_rate": metrics.gauges["cache_hit_rate"],
        "utilization": 0.0,
        "total_prefill_uncached_tokens": metrics.realtime["prefill_compute"],
        "total_prefill_busy_us": round(engine.prefill_busy_s * 1e6),
    }


def _load_sections(state: ServerState) -> dict[str, Any]:
    engine, usage = state.engine, memory_usage(state)
    sections: dict[str, Any] = {
        "memory": {
            "weight_gb": usage["weight"],
            "kv_cache_gb": usage["kvcache"],
            "graph_gb": round(sum(usage["graph"].values()), 3),
            "token_capacity": state.plan.kv_tokens,
        }
    }
    gauges = state.metrics.gauges
    if gauges["spec_accept_length"]:
        told = {"accept_length": gauges["spec_accept_length"], "accept_rate": gauges["spec_accept_rate"]}
        sections["speculative"] = told
    queues = ("prefill_bootstrap", "prefill_inflight", "decode_prealloc", "decode_transfer", "decode_retracted")
    empty = {f"{name}_queue_reqs": 0 for name in queues}
    sections["disaggregation"] = {"mode": "null", **empty, "kv_transfer_speed_gb_s": 0.0, "kv_transfer_latency_ms": 0.0}
    waiting = len(engine.batch.waiting)
    sections["queues"] = {"waiting": waiting, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0}
    return sections


def _prometheus(load: dict[str, Any]) -> str:
    lines = []
    for section, value in load.items():
        inner = value.items() if isinstance(value, dict) else [(section, value)]
        for name, number in inner:
            if isinstance(number, int | float) and name != "dp_rank":
                short = SECTION_NAMES.get(section, section)
                full = f"sglang_{short}_{name}" if isinstance(value, dict) else f"sglang_{name}"
                lines += [f"# TYPE {full} gauge", f'{full}{{dp_rank="0"}} {number}']
    return "\n".join(lines) + "\n"
