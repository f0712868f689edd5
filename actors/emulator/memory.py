"""What fits on one GPU, in SGLang's order: weights, draft weights, KV cache and state, graph capture. Pure.

All memory is GiB (2**30 bytes, as in SGLang's "GB") of one rank.
"""

from __future__ import annotations

from dataclasses import dataclass

from actors.emulator.profiles import Profile
from actors.emulator.resolution import Settings

GIB = 1 << 30
FIRST_CAPTURE_SHARE = 0.85
MAMBA_RATIO = 0.9
PREFILL_GRAPH_GIB = 0.15
CONTEXT_GIB = 0.05


@dataclass(frozen=True, slots=True)
class Death:
    """Why a start dies. `phase`: init, load, draft_load, kv, or graph; `gpu` is set where one card ran out.

    Of a server on several nodes also: meeting, barrier, peer and peer_serving.
    """

    phase: str
    error: str
    message: str
    gpu: int | None = None
    graph: str | None = None


@dataclass(frozen=True, slots=True)
class GraphPlan:
    """One family of captured graphs: free memory before it, the part each batch size leaves free, what it costs."""

    name: str
    metric: str
    tokens_per_request: int
    sizes: tuple[int, ...]
    begin_gib: float
    cost_gib: float

    @property
    def end_gib(self) -> float:
        return self.begin_gib - self.cost_gib

    def free_after(self, captured: int) -> float:
        """Free GiB once the `captured` largest sizes are done: the first takes the pool, the others share it."""
        if captured == 0:
            return self.begin_gib
        rest = (captured - 1) / max(1, len(self.sizes) - 1)
        return self.begin_gib - self.cost_gib * (FIRST_CAPTURE_SHARE + (1 - FIRST_CAPTURE_SHARE) * rest)


@dataclass(frozen=True, slots=True)
class StatePool:
    """Recurrent state of hybrids: slots, GiB of the states and of the per-draft-token intermediate ones."""

    slots: int
    conv_gib: float
    ssm_gib: float
    intermediate_ssm_gib: float
    intermediate_conv_gib: float

    @property
    def total_gib(self) -> float:
        return self.conv_gib + self.ssm_gib + self.intermediate_ssm_gib + self.intermediate_conv_gib


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Every memory number of a start, up to its death if it dies."""

    free_gib: float
    weights_gib: float
    draft_gib: float
    kv_tokens: int
    kv_gib: float
    draft_kv_gib: float
    state: StatePool | None
    max_running: int
    graphs: tuple[GraphPlan, ...]
    warnings: tuple[str, ...]
    death: Death | None

    @property
    def loaded_gib(self) -> float:
        """Free once target and draft weights are loaded."""
        return self.free_gib - self.weights_gib - self.draft_gib

    @property
    def pooled_gib(self) -> float:
        """Free once the KV cache and the states are allocated."""
        state = self.state.total_gib if self.state else 0.0
        return self.loaded_gib - self.kv_gib - self.draft_kv_gib - state

    @property
    def available_gib(self) -> float:
        """Free when the server is ready."""
        return self.graphs[-1].end_gib if self.graphs else self.pooled_gib

    @property
    def captured_batch(self) -> int:
        """Largest running batch that has a captured graph."""
        decode = [g for g in self.graphs if g.metric in {"decode", "target_verify"}]
        return max(decode[0].sizes) if decode else 0


def out_of_memory(profile: Profile, wanted_gib: float, free_gib: float, gpu: int) -> str:
    """PyTorch's words for an allocation that failed."""
    used = profile.gpu.total_gib - free_gib - sum(gib for _, gib in profile.gpu.others)
    strangers = "".join(f"Process {pid} has {gib:.2f} GiB memory in use. " for pid, gib in profile.gpu.others)
    by_torch = max(0.0, used - 1.9)
    return (
        f"CUDA out of memory. Tried to allocate {wanted_gib:.2f} GiB. GPU {gpu} has a total capacity of "
        f"{profile.gpu.total_gib:.2f} GiB of which {free_gib:.2f} GiB is free. {strangers}"
        f"Including non-PyTorch memory, this process has {used:.2f} GiB memory in use. "
        f"Of the allocated memory {by_torch:.2f} GiB is allocated by "
        f"PyTorch, and 0.94 GiB is reserved by PyTorch but unallocated. If reserved but unallocated memory is large "
        f"try setting PYTORCH_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  See documentation for "
        f"Memory Management  (https://pytorch.org/docs/stable/notes/cuda.html#environment-variables)"
    )


def plan_memory(settings: Settings, profile: Profile) -> MemoryPlan:
    """Decide every number of a start, and whether and how it dies."""
    free = profile.gpu.free_gib
    scale = profile.tp / settings.tp
    weights = profile.memory.weights_gib * scale
    draft = profile.memory.draft_gib * scale if settings.speculating and settings.algorithm != "NGRAM" else 0.0
    death = _load_death(profile, settings, weights, draft)
    if death is not None:
        return MemoryPlan(free, weights, draft, 0, 0.0, 0.0, None, 0, (), (), death)
    return _plan_pools(settings, profile, weights, draft)


def _load_death(profile: Profile, settings: Settings, weights: float, draft: float) -> Death | None:
    free, gpu = profile.gpu.free_gib, min(1, settings.tp - 1)
    if weights > free:
        return Death("load", "torch.OutOfMemoryError", out_of_memory(profile, 1.5, 0.62, gpu), gpu)
    if weights + draft > free:
        return Death("draft_load", "torch.OutOfMemoryError", out_of_memory(profile, draft, free - weights, gpu), gpu)
    return None


def _plan_pools(settings: Settings, profile: Profile, weights: float, draft: float) -> MemoryPlan:
    free = profile.gpu.free_gib
    loaded = free - weights - draft
    rest = loaded - free * (1 - settings.mem_fraction)
    warnings: list[str] = []
    state, running, death, tokens = None, settings.max_running, None, 0
    cell = profile.memory.kv_bytes_per_token * (profile.tp / settings.tp if not profile.mla else 1.0)
    draft_cell = cell / 12 if draft else 0.0
    if rest <= 0:
        death = _fraction_death(settings, loaded, free)
    else:
        state, running = _plan_state(settings, profile, rest)
        rest -= state.total_gib if state else 0.0
        tokens = _kv_tokens(settings, rest * GIB / (cell + draft_cell), warnings)
        if tokens <= 0:
            death = Death("kv", "RuntimeError", "Not enough memory. Please try to increase --mem-fraction-static.")
    if death is not None:
        return MemoryPlan(free, weights, draft, 0, 0.0, 0.0, state, 0, (), tuple(warnings), death)
    running = _max_running(settings, profile, tokens, running, warnings)
    kv, draft_kv = tokens * cell / GIB, tokens * draft_cell / GIB
    pooled = loaded - kv - draft_kv - (state.total_gib if state else 0.0) - CONTEXT_GIB
    graphs, death = _plan_graphs(settings, profile, pooled, max(running, settings.max_running or 0))
    return MemoryPlan(free, weights, draft, tokens, kv, draft_kv, state, running, tuple(graphs), tuple(warnings), death)


def _fraction_death(settings: Settings, loaded: float, free: float) -> Death:
    minimum = 1 - loaded / free
    message = (
        f"Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static={settings.mem_fraction}. "
        f"Raise --mem-fraction-static above {minimum + 0.001:.3f} (minimum viable = 1 - available/pre = {minimum:.4f})."
        " If using speculative decoding, draft weights are now counted."
    )
    return Death("kv", "ValueError", message)


def _plan_state(settings: Settings, profile: Profile, rest_gib: float) -> tuple[StatePool | None, int | None]:
    """States for every running request, plus one per draft token of it when speculating."""
    one_gib = profile.memory.state_mib * profile.tp / settings.tp / 1024
    if not one_gib:
        return None, settings.max_running
    per_request = 1 if settings.args["disable_radix_cache"] else profile.memory.state_slots
    running, listed = settings.max_running, settings.args["max_mamba_cache_size"]
    if listed is not None:
        running = max(1, min(running or listed, listed // per_request))
    elif running is None:
        budget = rest_gib * MAMBA_RATIO / (1 + MAMBA_RATIO)
        running = max(1, min(4096, int(budget / one_gib) // per_request))
    states = running * per_request * one_gib
    between = running * settings.draft_tokens * one_gib if settings.speculating else 0.0
    pool = StatePool(running * per_request, 0.03 * states, 0.97 * states, 0.97 * between, 0.03 * between)
    return pool, running


def _kv_tokens(settings: Settings, profiled: float, warnings: list[str]) -> int:
    page: int = settings.args["page_size"]
    tokens = int(profiled) // page * page
    asked = settings.max_total_tokens
    if asked is None:
        return tokens
    if asked > tokens > 0:
        warnings.append(
            f"max_total_tokens={asked} is larger than the profiled value {tokens}. Use the profiled value instead."
        )
    return min(asked, tokens)


def _max_running(
    settings: Settings, profile: Profile, tokens: int, state_limit: int | None, warnings: list[str]
) -> int:
    asked = settings.max_running
    by_tokens = max(1, tokens // 2)
    if asked is None:
        wanted = min(4096, max(2048, tokens // settings.context_length * 512))
    else:
        wanted = max(1, asked // settings.args["attn_dp_size"])
    limits = [wanted, by_tokens] + ([state_limit] if state_limit is not None else [])
    if profile.verify_rows:
        limits.append(max(1, profile.verify_rows // settings.draft_tokens))
    running = min(limits)
    if asked is not None and running < wanted:
        warnings.append(
            f"max_running_requests was reduced from the requested {wanted} to {running} (per dp worker) "
            "due to the available KV cache capacity."
        )
    elif asked is None and running == state_limit:
        slots = running * profile.memory.state_slots
        warnings.append(
            f"max_running_requests is capped to {running} by the mamba state cache (max_mamba_cache_size={slots}, "
            f"{profile.memory.state_slots} state slots per request)."
        )
    return running


def _plan_graphs(settings: Settings, profile: Profile, free: float, pool: int) -> tuple[list[GraphPlan], Death | None]:
    plans: list[GraphPlan] = []
    if settings.capture_prefill:
        plans.append(GraphPlan("target prefill", "prefill", 0, settings.capture_prefill[::-1], free, PREFILL_GRAPH_GIB))
        free -= PREFILL_GRAPH_GIB
    sizes = tuple(sorted({min(size, pool) for size in settings.capture_decode}, reverse=True))
    if not sizes:
        return plans, None
    graphs = profile.graphs
    free -= graphs.workspace_gib if settings.speculating else 0.0
    for name, metric, per_request, mib in _graph_families(settings, profile):
        tokens = min(sizes[0] * per_request, graphs.saturation_tokens)
        cost = mib * tokens / 1024
        plans.append(GraphPlan(name, metric, per_request, sizes, free, cost))
        if cost > free:
            return plans, _graph_death(settings, profile, name, cost, free)
        free -= cost
    return plans, None


def _graph_death(settings: Settings, profile: Profile, name: str, cost: float, free: float) -> Death:
    first, second = cost * (1 - profile.graphs.last_share), cost * profile.graphs.last_share
    wanted, left = (second, free - first) if first <= free else (first, free)
    gpu = min(1, settings.tp - 1)
    message = out_of_memory(profile, wanted, max(0.0, left), gpu)
    return Death("graph", "torch.OutOfMemoryError", message, gpu, name)


def _graph_families(settings: Settings, profile: Profile) -> list[tuple[str, str, int, float]]:
    graphs, draft = profile.graphs, settings.draft_tokens
    if not settings.speculating:
        return [("target decode", "decode", 1, graphs.decode_mib)]
    families = [("target verify", "target_verify", draft, graphs.verify_mib)]
    if settings.algorithm == "NGRAM":
        return families
    if settings.num_steps > 1:
        families.append(("draft decode", "draft_decode", settings.topk, graphs.draft_mib))
    return [*families, ("draft extend", "draft_extend", draft, graphs.draft_mib)]
