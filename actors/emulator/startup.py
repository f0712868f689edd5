"""The start-up log in order: what SGLang says between its arguments and `ready`, as a sequence of events. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from actors.emulator.log import progress_bar
from actors.emulator.memory import GraphPlan, MemoryPlan
from actors.emulator.profiles import Profile
from actors.emulator.resolution import Settings

PHASES = ("prefill", "decode", "target_verify", "draft_prefill", "draft_decode", "draft_extend")


@dataclass(frozen=True, slots=True)
class Say:
    """A log line. `who`: "main", "first" (rank 0) or "all" (every rank)."""

    text: str
    who: str = "all"


@dataclass(frozen=True, slots=True)
class Raw:
    """Text without a line prefix: progress bars."""

    text: str


@dataclass(frozen=True, slots=True)
class Pause:
    """Seconds that the real server needs here."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Hold:
    """From here on every rank holds so much GPU memory besides its context. `phase` and `graph` as in Death."""

    taken_gib: float
    phase: str
    graph: str | None = None


@dataclass(frozen=True, slots=True)
class Meet:
    """All ranks need each other here; nothing where they are on one node. `after`: what has ended."""

    after: str


Event = Say | Raw | Pause | Hold | Meet


def joining(profile: Profile) -> tuple[Event, ...]:
    """The ranks find each other; after this they know what is free on all their GPUs."""
    return (
        Say("Init parallel begin."),
        Meet("init"),
        Pause(profile.times.init_s),
        Say(f"Init parallel ends. elapsed={profile.times.init_s:.2f} s"),
    )


def timeline(settings: Settings, plan: MemoryPlan, profile: Profile) -> Iterator[Event]:
    """Events until all graphs are captured, or until the event before the death that `plan` foresees."""
    dead_in = plan.death.phase if plan.death else None
    yield _baseline(plan, profile)
    if dead_in == "init":
        return
    yield from _loading(settings, plan, profile)
    if dead_in in {"load", "draft_load"}:
        return
    if dead_in == "kv":
        yield Pause(profile.times.kv_s)
        return
    yield from _pools(settings, plan, profile)
    yield from _captures(plan, profile)


def _baseline(plan: MemoryPlan, profile: Profile) -> Say:
    return Say(f"Memory baseline taken. mem usage={profile.gpu.total_gib - plan.free_gib:.2f} GB")


def _loading(settings: Settings, plan: MemoryPlan, profile: Profile) -> Iterator[Event]:
    dead_in = plan.death.phase if plan.death else None
    quant = f"quant={profile.quantization}, " if profile.quantization else ""
    yield Say(f"Load weight begin. avail mem={plan.free_gib:.2f} GB")
    if settings.ranks.nodes > 1:
        yield Say("multimem all-gather disabled because the TP group spans across nodes.")
    yield from (
        [Pause(profile.times.load_s)] if settings.args["load_format"] == "dummy" else _shards(profile.times.load_s)
    )
    if dead_in == "load":
        return
    yield Hold(plan.weights_gib, "load")
    yield Meet("load")
    left = plan.free_gib - plan.weights_gib
    yield Say(
        f"Load weight end. elapsed={profile.times.load_s:.2f} s, type={profile.architecture}, {quant}"
        f"avail mem={left:.2f} GB, mem usage={plan.weights_gib:.2f} GB."
    )
    if not plan.draft_gib:
        return
    yield _baseline(plan, profile)
    if settings.args["speculative_draft_load_format"] is not None:
        yield Say(f"Using draft model load_format: '{settings.args['speculative_draft_load_format']}'")
    yield Say(f"Load weight begin. avail mem={left:.2f} GB")
    yield Pause(profile.times.draft_load_s)
    if dead_in == "draft_load":
        return
    yield Hold(plan.weights_gib + plan.draft_gib, "draft_load")
    yield Meet("load")
    yield Say(
        f"Load weight end. elapsed={profile.times.draft_load_s:.2f} s, type={profile.draft_architecture}, {quant}"
        f"avail mem={plan.loaded_gib:.2f} GB, mem usage={plan.draft_gib:.2f} GB."
    )


def _shards(seconds: float) -> Iterator[Event]:
    total = 8
    for done in range(total + 1):
        yield Raw("\r" + progress_bar("Loading safetensors checkpoint shards", done, total, *_progress(done, seconds)))
        if done < total:
            yield Pause(seconds / total)
    yield Raw("\n")


def _progress(done: int, seconds: float) -> tuple[float, float]:
    return done * seconds / 8, seconds / 8


def _pools(settings: Settings, plan: MemoryPlan, profile: Profile) -> Iterator[Event]:
    for warning in plan.warnings:
        yield Say(warning)
    yield Pause(profile.times.kv_s)
    yield Hold(plan.free_gib - plan.pooled_gib, "kv")
    yield Meet("kv")
    if plan.state is not None:
        yield Say(_state_line(settings, plan))
    yield Say(_kv_line(profile, plan.kv_tokens, plan.kv_gib))
    yield Say(f"Memory pool end. avail mem={plan.pooled_gib + plan.draft_kv_gib:.2f} GB")
    if plan.draft_gib:
        yield Say(_kv_line(profile, plan.kv_tokens, plan.draft_kv_gib))
        yield Say(f"Memory pool end. avail mem={plan.pooled_gib:.2f} GB")


def _state_line(settings: Settings, plan: MemoryPlan) -> str:
    state = plan.state
    if state is None:
        return ""
    line = (
        f"Mamba Cache is allocated. max_mamba_cache_size: {state.slots}, conv_state size: {state.conv_gib:.2f}GB, "
        f"ssm_state size: {state.ssm_gib:.2f}GB "
    )
    if settings.speculating:
        line += (
            f"intermediate_ssm_state_cache size: {state.intermediate_ssm_gib:.2f}GB "
            f"intermediate_conv_window_cache size: {state.intermediate_conv_gib:.2f}GB "
        )
    return line


def _kv_line(profile: Profile, tokens: int, gib: float) -> str:
    size = f"KV size: {gib:.2f} GB" if profile.mla else f"K size: {gib / 2:.2f} GB, V size: {gib / 2:.2f} GB"
    return f"KV Cache is allocated. dtype: torch.bfloat16, #tokens: {tokens}, {size}"


def _captures(plan: MemoryPlan, profile: Profile) -> Iterator[Event]:
    if not any(graph.metric == "prefill" for graph in plan.graphs):
        for _ in ("target", "draft") if plan.draft_gib else ("target",):
            yield Say(
                "Disable prefill CUDA graph because cuda_graph_config resolved prefill.backend='disabled' "
                "(e.g. via --cuda-graph-backend-prefill=disabled or auto-disable rules)."
            )
    for index, graph in enumerate(plan.graphs):
        fatal = plan.death is not None and index == len(plan.graphs) - 1
        yield from _capture(graph, profile, fatal, plan.free_gib)


def capture_seconds(graph: GraphPlan, profile: Profile) -> float:
    """Seconds that one family of graphs takes to capture."""
    each = profile.times.capture_s if graph.metric != "prefill" else profile.times.capture_s / 4
    return profile.times.first_capture_s + each * (len(graph.sizes) - 1)


def _capture(graph: GraphPlan, profile: Profile, fatal: bool, plan_free_gib: float) -> Iterator[Event]:
    head = f"Capture {graph.name} CUDA graph"
    sizes = list(graph.sizes[::-1])
    backend = "breakable" if graph.metric == "prefill" else "full"
    shape = f"num_tokens={sizes}" if graph.metric == "prefill" else f"num_tokens_per_req={graph.tokens_per_request}"
    if graph.metric.startswith("draft"):
        shape += f", bs={sizes}"
    yield Say(f"{head} begin. backend={backend}, {shape}, avail mem={graph.begin_gib:.2f} GB")
    yield from _bar(graph, profile, fatal)
    if fatal:
        return
    yield Hold(plan_free_gib - graph.end_gib, "graph", graph.name)
    yield Meet("graph")
    listed = f"bs={sizes}, " if graph.metric in {"decode", "target_verify"} else ""
    yield Say(
        f"{head} end. {listed}elapsed={capture_seconds(graph, profile):.2f} s, "
        f"mem usage={graph.cost_gib:.2f} GB, avail mem={graph.end_gib:.2f} GB."
    )


def _bar(graph: GraphPlan, profile: Profile, fatal: bool) -> Iterator[Event]:
    """Largest first. tqdm rewrites the line in place, so nothing ends it before the capture does."""
    each = profile.times.capture_s if graph.metric != "prefill" else profile.times.capture_s / 4
    total, elapsed = len(graph.sizes), 0.0
    for done in range(total + 1):
        current, free = graph.sizes[min(done, total - 1)], max(0.0, graph.free_after(done))
        what = f"prefill shape (num_tokens={current}" if graph.metric == "prefill" else f"batches (bs={current}"
        label = f"Capturing {what} avail_mem={free:.2f} GB)"
        yield Raw("\r" + progress_bar(label, done, total, elapsed, each))
        seconds = profile.times.first_capture_s if done == 0 else each
        if fatal or done == total:
            yield Pause(seconds if fatal else 0.0)
            break
        yield Pause(seconds)
        yield Meet("graph")
        elapsed += seconds
    yield Raw("\n")


def ready_line(settings: Settings, plan: MemoryPlan) -> str:
    """The line that tells every resolved capacity."""
    return (
        f"max_total_num_tokens={plan.kv_tokens}, chunked_prefill_size={settings.args['chunked_prefill_size']}, "
        f"max_prefill_tokens={settings.args['max_prefill_tokens']}, max_running_requests={plan.max_running}, "
        f"context_len={settings.context_length}, "
        f"available_{'cpu' if settings.device == 'cpu' else 'gpu'}_mem={plan.available_gib:.2f} GB"
    )


def cache_lines(settings: Settings, plan: MemoryPlan) -> Iterator[str]:
    """What is said of the prefix cache."""
    if settings.args["disable_radix_cache"]:
        return
    yield "Init Unified Radix Cache. Components: (<ComponentType.FULL: 0>,). Tree Core: RustUnifiedTreeCore"
    yield (
        f"Tree cache initialized: source=default impl=UnifiedRadixCache hybrid_swa=False "
        f"hybrid_ssm={plan.state is not None} hicache_attached=False"
    )


def startup_seconds(plan: MemoryPlan, profile: Profile) -> dict[str, Any]:
    """Modelled seconds of the start by phase, as /server_info and the timings line give them."""
    graphs = dict.fromkeys(PHASES, 0.0)
    for graph in plan.graphs:
        graphs[graph.metric] = round(capture_seconds(graph, profile), 2)
    load = profile.times.load_s + (profile.times.draft_load_s if plan.draft_gib else 0.0)
    scheduler = profile.times.init_s + load + profile.times.kv_s + sum(graphs.values())
    return {
        "load_weight": round(load, 2),
        "kv_cache_allocation": profile.times.kv_s,
        "scheduler_e2e": round(scheduler, 2),
        "cuda_graph": graphs,
        "tokenizer_e2e": round(scheduler + 6.5, 2),
    }


def timings_line(seconds: dict[str, Any]) -> str:
    """`Engine startup timings (s): ...` of those seconds."""
    graphs = ", ".join(f"{phase}={value:.2f}" for phase, value in seconds["cuda_graph"].items())
    return (
        f"Engine startup timings (s): load_weight={seconds['load_weight']:.2f}, "
        f"kv_cache_allocation={seconds['kv_cache_allocation']:.2f}, scheduler_e2e={seconds['scheduler_e2e']:.2f}, "
        f"cuda_graph={{{graphs}}}, tokenizer_e2e={seconds['tokenizer_e2e']:.2f}"
    )
