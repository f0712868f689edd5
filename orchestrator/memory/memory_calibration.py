"""What earlier starts of a model tell of the next one: free memory by phase -> weights, cache, scratch of graphs. Pure.

Each amount is the median of what was seen for like settings, its error the spread of that; where only unlike settings
were seen, the guess from the files is scaled by how far it was off there.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.memory.estimate import Estimate
from orchestrator.memory.graph_budget import SLOPE_FACTOR, ScratchLaw, captured_tokens
from orchestrator.memory.memory_defaults import MemorySettings
from orchestrator.memory.memory_model import MemoryModel
from orchestrator.memory.pool_budget import PoolPlan, plan_pools
from orchestrator.outcome import Label, Phase
from orchestrator.starts.start_history import PastStart

# Logs give two digits, and two starts of one config differ by some tens of MiB.
SEEN_ERROR_GIB = 0.1
OTHER_GPU_GIB = 2.0
CELL_ERROR = 0.01
_TOKENS = re.compile(r"(\d+) tokens")
_RUNNING = re.compile(r"(\d+) running requests")
_TORCH_OOM = re.compile(
    r"Tried to allocate (?P<wanted>[\d.]+) (?P<wanted_unit>[GM])iB.*?"
    r"of which (?P<free>[\d.]+) (?P<free_unit>[GM])iB is free"
)
_WEIGHTS = (
    "quantization",
    "dtype",
    "load_format",
    "cpu_offload_gb",
    "ep_size",
    "moe_dense_tp_size",
    "enable_dp_lm_head",
)
_DRAFT = ("speculative_draft_model_path", "speculative_draft_model_quantization", "enable_multi_layer_eagle")
_GRAPHS = (
    "attention_backend", "prefill_attention_backend", "decode_attention_backend", "moe_runner_backend",
    "speculative_draft_attention_backend", "enable_torch_compile", "enable_two_batch_overlap", "moe_a2a_backend",
)  # fmt: skip

ModelFor = Callable[[Mapping[str, Any], str | None], MemoryModel]


@dataclass(frozen=True, slots=True)
class SeenStart:
    """One start that told free memory, and what was guessed of it from the files."""

    start: PastStart
    guess: MemoryModel
    free_gib: Mapping[Phase, float]
    tokens: int | None
    running: int | None

    @property
    def ask(self) -> MemorySettings:
        return self.guess.ask

    @property
    def same_gpu(self) -> bool:
        """Whether what was free before the load is what this kind of GPU leaves: scratch of graphs differs between
        kinds, and so does what a process finds. Another kind, or a GPU that others used, still tells of the weights.
        """
        pre, guess = self.free_gib.get(Phase.DIST_INIT), self.guess.pre
        if pre is None:
            loaded = self.free_gib.get(Phase.WEIGHTS)
            if loaded is None:
                return False
            pre = loaded + self.guess.weights.gib
        return abs(pre - guess.gib) <= OTHER_GPU_GIB + guess.error_gib

    @property
    def loaded_gib(self) -> float | None:
        """Free when the pools were sized."""
        if self.ask.has_draft_model and self.ask.since("0.5.15"):
            return self.free_gib.get(Phase.DRAFT_WEIGHTS)
        return self.free_gib.get(Phase.WEIGHTS)


def seen_starts(starts: Iterable[PastStart], model_for: ModelFor) -> tuple[SeenStart, ...]:
    """The starts that told free memory; `model_for` guesses any settings from the model's files."""
    return tuple(found for start in starts if (found := _seen(start, model_for)) is not None)


def calibrated(model: MemoryModel, seen: Sequence[SeenStart]) -> MemoryModel:
    """The model of one config, with what the starts tell in place of guesses."""
    if not seen:
        return model
    for learn in (_learn_pre, _learn_weights, _learn_draft, _learn_pools, _learn_target, _learn_draft_graphs):
        model = learn(model, seen)
    return model


def _seen(start: PastStart, model_for: ModelFor) -> SeenStart | None:
    free = {fact.phase: fact.free_gib for fact in start.phases if fact.free_gib is not None}
    if not free:
        return None
    details = " ".join(fact.detail for fact in start.phases if fact.phase in {Phase.KV_POOL, Phase.HTTP_BIND})
    tokens, running = _TOKENS.findall(details), _RUNNING.findall(details)
    guess = model_for(start.settings, start.version)
    return SeenStart(start, guess, free, int(tokens[-1]) if tokens else None, int(running[-1]) if running else None)


def _learnt(model: MemoryModel, name: str, **changes: Any) -> MemoryModel:
    return replace(model, learnt=model.learnt | {name}, **changes)


def _middle(values: Sequence[float]) -> Estimate:
    middle = statistics.median(values)
    return Estimate(middle, SEEN_ERROR_GIB + max(abs(value - middle) for value in values))


def _gpus(ask: MemorySettings) -> int:
    return ask.parallel.tp * ask.parallel.pp


def _learn_pre(model: MemoryModel, seen: Sequence[SeenStart]) -> MemoryModel:
    told = [s for s in seen if Phase.DIST_INIT in s.free_gib and s.same_gpu]
    same = [s.free_gib[Phase.DIST_INIT] for s in told if _gpus(s.ask) == _gpus(model.ask)]
    return _learnt(model, "free before the load", pre=_middle(same)) if same else model


def _pre_of(one: SeenStart) -> float:
    return one.free_gib.get(Phase.DIST_INIT, one.guess.pre.gib)


def _like(one: MemorySettings, other: MemorySettings, names: Iterable[str]) -> bool:
    """Same parallelism, and same values of these settings."""
    return one.parallel == other.parallel and all(one.given.get(n) == other.given.get(n) for n in names)


def _learn_amount(guess: Estimate, like: Sequence[float], ratios: Sequence[float]) -> Estimate | None:
    """The median of what like settings took, else the guess scaled by how far guesses were off elsewhere."""
    if like:
        return _middle(like)
    if not ratios:
        return None
    ratio = _middle(ratios)
    spread = ratio.error_gib - SEEN_ERROR_GIB
    return Estimate(guess.gib * ratio.gib, guess.gib * (spread + 0.03) + SEEN_ERROR_GIB)


def _learn_weights(model: MemoryModel, seen: Sequence[SeenStart]) -> MemoryModel:
    told = [(s, _pre_of(s) - s.free_gib[Phase.WEIGHTS]) for s in seen if Phase.WEIGHTS in s.free_gib]
    like = [gib for s, gib in told if _like(s.ask, model.ask, _WEIGHTS)]
    found = _learn_amount(model.weights, like, [gib / s.guess.weights.gib for s, gib in told if s.guess.weights.gib])
    return model if found is None else _learnt(model, "weights", weights=found)


def _learn_draft(model: MemoryModel, seen: Sequence[SeenStart]) -> MemoryModel:
    if not model.ask.has_draft_model:
        return model
    both = [s for s in seen if {Phase.WEIGHTS, Phase.DRAFT_WEIGHTS} <= s.free_gib.keys() and s.ask.since("0.5.15")]
    told = [(s, s.free_gib[Phase.WEIGHTS] - s.free_gib[Phase.DRAFT_WEIGHTS]) for s in both]
    like = [gib for s, gib in told if _like(s.ask, model.ask, (*_WEIGHTS, *_DRAFT))]
    found = _learn_amount(model.draft, like, [gib / s.guess.draft.gib for s, gib in told if s.guess.draft.gib])
    return model if found is None else _learnt(model, "draft weights", draft=found)


def _learn_pools(model: MemoryModel, seen: Sequence[SeenStart]) -> MemoryModel:
    """Bytes per token, from the tokens that SGLang counted out of memory that is known by then."""
    planned = [(s, plan) for s in seen if (plan := _planned(s)) is not None]
    free_of_cap = [(s, plan) for s, plan in planned if not plan.is_capped and plan.kv_tokens]
    factors = [plan.kv_tokens / s.tokens for s, plan in free_of_cap if s.tokens]
    if not factors:
        return model
    factor = statistics.median(factors)
    spread = max(abs(f / factor - 1) for f in factors)
    cell = model.pools.cell
    scaled = replace(
        cell, full=cell.full * factor, draft=cell.draft * factor, window=cell.window * factor, error=CELL_ERROR + spread
    )
    beside = [
        (s.loaded_gib or 0.0) - s.free_gib[Phase.KV_POOL] - plan.total_gib
        for s, plan in planned
        if Phase.KV_POOL in s.free_gib
    ]
    after = statistics.median(beside) if beside else 0.0
    return _learnt(model, "KV cache", pools=replace(model.pools, cell=scaled), after_pools_gib=after)


def _planned(one: SeenStart) -> PoolPlan | None:
    """The pools that SGLang's rules give for the memory that this start had; None where it did not come so far."""
    if one.loaded_gib is None or one.tokens is None:
        return None
    plan = plan_pools(_pre_of(one), one.loaded_gib, one.ask, one.guess.pools)
    return None if plan.refusal else plan


def _learn_target(model: MemoryModel, seen: Sequence[SeenStart]) -> MemoryModel:
    like = [s for s in seen if _like_graphs(s, model)]
    law = _learn_law(model.target_graphs, like, (Phase.KV_POOL, Phase.GRAPH_TARGET), Label.OOM_GRAPH_TARGET)
    if law == model.target_graphs:
        return model
    known = any(s.ask.prefill_sizes == model.ask.prefill_sizes and Phase.GRAPH_TARGET in s.free_gib for s in like)
    prefill = Estimate(model.prefill_graphs.gib) if known else model.prefill_graphs
    return _learnt(model, "graphs of the target", target_graphs=law, prefill_graphs=prefill)


def _learn_draft_graphs(model: MemoryModel, seen: Sequence[SeenStart]) -> MemoryModel:
    if not model.ask.has_draft_model or not model.ask.since("0.5.15"):
        return model
    like = [s for s in seen if _like_graphs(s, model) and s.ask.since("0.5.15")]
    law = _learn_law(model.draft_graphs, like, (Phase.GRAPH_TARGET, Phase.GRAPH_DRAFT), Label.OOM_GRAPH_DRAFT)
    return model if law == model.draft_graphs else _learnt(model, "graphs of the draft", draft_graphs=law)


def _like_graphs(one: SeenStart, model: MemoryModel) -> bool:
    return one.same_gpu and one.ask.speculating == model.ask.speculating and _like(one.ask, model.ask, _GRAPHS)


def _learn_law(law: ScratchLaw, seen: Sequence[SeenStart], edge: tuple[Phase, Phase], death: Label) -> ScratchLaw:
    """Points of captures that ended, and the least that one needed which died."""
    before, after = edge
    points, deaths, doubt = [], [], law.point_error_gib
    for one in seen:
        tokens = captured_tokens(one.ask, _running(one))
        if not tokens or before not in one.free_gib:
            continue
        prefill = one.guess.prefill_graphs.gib if after is Phase.GRAPH_TARGET else 0.0
        if after in one.free_gib and one.start.label != death:
            points.append((tokens, one.free_gib[before] - one.free_gib[after] - prefill))
            told = tokens if one.running is None else captured_tokens(one.ask, one.running)
            doubt = max(doubt, SEEN_ERROR_GIB + SLOPE_FACTOR * law.gib_per_token * abs(told - tokens))
        elif one.start.label == death:
            deaths.append((tokens, _needed(one.free_gib[before], one.start.evidence) - prefill))
    law = replace(law, points=(*law.points, *points), point_error_gib=doubt)
    if deaths:
        smallest = min(tokens for tokens, _ in deaths)
        law = replace(law, least_at=smallest, least_gib=max(gib for tokens, gib in deaths if tokens == smallest))
    return law


def _running(one: SeenStart) -> int:
    """By the same rule as for the next start, so that both count captured batches alike."""
    plan = _planned(one)
    return plan.running if plan else one.running or one.ask.running_per_rank or 1


def _needed(free_gib: float, evidence: str | None) -> float:
    """At least all that was free; by PyTorch's own words, what it had taken and what it wanted besides."""
    found = _TORCH_OOM.search(evidence or "")
    if found is None:
        return free_gib
    wanted = float(found["wanted"]) / (1 if found["wanted_unit"] == "G" else 1024)
    left = float(found["free"]) / (1 if found["free_unit"] == "G" else 1024)
    return max(free_gib, free_gib - left + wanted)
