"""A start of a server, phase by phase: what each takes, what stays free, whether it fits, what it would die of. Pure.

All GiB are of one GPU: the fullest rank, as SGLang's own "avail mem" lines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from orchestrator.memory.estimate import GIB, ZERO, Estimate
from orchestrator.memory.graph_budget import captured_batch, captured_tokens
from orchestrator.memory.memory_model import MemoryModel
from orchestrator.memory.pool_budget import PoolPlan, plan_pools
from orchestrator.outcome import Label, Phase

Verdict = Literal["fits", "does_not_fit", "unsure"]
# Fragments, pages and small tables that no formula has: up to 0.3 GiB in six logs.
ROUNDING_GIB = 0.3


@dataclass(frozen=True, slots=True)
class Step:
    """One phase of a start: what it takes and what is free after it."""

    phase: Phase
    name: str
    takes: Estimate
    free: Estimate


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that a start can die of: GiB to spare (negative: short), and the label of that death."""

    phase: Phase
    label: Label
    spare: Estimate
    why: str = ""

    @property
    def verdict(self) -> Verdict:
        if self.spare.gib < 0 and -self.spare.gib > self.spare.error_gib:
            return "does_not_fit"
        return "fits" if self.spare.gib >= 0 and self.spare.gib >= self.spare.error_gib else "unsure"


@dataclass(frozen=True, slots=True)
class Prediction:
    """What is expected of one start. `limit` decides the verdict: the death, or the check with the least to spare."""

    model: MemoryModel
    pools: PoolPlan
    steps: tuple[Step, ...]
    limit: Check
    verdict: Verdict
    kv_tokens_error: int

    @property
    def label(self) -> Label | None:
        """What it would die of; None if it is expected to start."""
        return self.limit.label if self.limit.spare.gib < 0 else None

    @property
    def free(self) -> Estimate:
        """Free when the server is ready."""
        return self.steps[-1].free

    @property
    def captured_batch(self) -> int:
        """Largest batch with a graph."""
        return captured_batch(self.model.ask, self.pools.running)

    def free_after(self, phase: Phase) -> Estimate | None:
        """Free GiB after a phase; None if the start does not have it."""
        return next((step.free for step in self.steps if step.phase is phase), None)

    def requests_of(self, tokens: int) -> int:
        """How many requests of so many tokens (prompt and output) fit at once."""
        return min(self.pools.kv_tokens // tokens, self.pools.running) if tokens else self.pools.running

    def as_json(self) -> dict[str, Any]:
        """For machines."""
        pools, ask = self.pools, self.model.ask
        return {
            "verdict": self.verdict, "label": self.label, "phase": self.limit.phase, "why": self.limit.why,
            "margin_gib": round(self.limit.spare.gib, 2),
            "margin_error_gib": round(self.limit.spare.error_gib, 2),
            "steps": [
                {"phase": s.phase, "name": s.name,
                 "gib": round(s.takes.gib, 2), "error_gib": round(s.takes.error_gib, 2),
                 "free_gib": round(s.free.gib, 2), "free_error_gib": round(s.free.error_gib, 2)}
                for s in self.steps
            ],
            "kv_tokens": pools.kv_tokens, "kv_tokens_error": self.kv_tokens_error, "kv_gib": round(pools.kv_gib, 2),
            "draft_kv_gib": round(pools.draft_kv_gib, 2), "window_tokens": pools.window_tokens,
            "window_gib": round(pools.window_gib, 2),
            "state_slots": pools.state.slots if pools.state else 0,
            "state_gib": round(pools.state.total_gib, 2) if pools.state else 0.0,
            "running_requests": pools.running, "captured_batch": self.captured_batch,
            "mem_fraction_static": ask.fraction, "chunked_prefill_size": ask.chunk_tokens,
            "activations_gib": round(self.model.activations.gib, 2), "release": ask.release,
            "learnt": sorted(self.model.learnt), "unknown": list(self.model.unknown),
        }  # fmt: skip


def predict(model: MemoryModel) -> Prediction:
    """One start, from the driver's total down to the last graph."""
    ask = model.ask
    loaded_first = ask.since("0.5.15")  # older releases load the draft when the target has its graphs
    draft = model.draft if ask.has_draft_model else ZERO
    before = model.pre - model.weights - draft if loaded_first else model.pre - model.weights
    pools = plan_pools(model.pre.gib, before.gib, ask, model.pools)
    steps = [
        Step(Phase.DIST_INIT, "context and driver", Estimate(model.total_gib) - model.pre, model.pre),
        Step(Phase.WEIGHTS, "weights", model.weights, model.pre - model.weights),
    ]
    if ask.has_draft_model and loaded_first:
        steps.append(Step(Phase.DRAFT_WEIGHTS, "draft weights", draft, before))
    steps.append(_pool_step(model, pools, before))
    tokens = captured_tokens(ask, pools.running)
    target = (model.target_graphs.at(tokens) if tokens else ZERO) + model.prefill_graphs
    steps.append(Step(Phase.GRAPH_TARGET, "graphs of the target", target, steps[-1].free - target))
    if ask.has_draft_model and not loaded_first:
        taken = draft + Estimate(pools.kv_tokens * model.pools.cell.draft / GIB)
        steps.append(Step(Phase.DRAFT_WEIGHTS, "draft weights and cache", taken, steps[-1].free - taken))
    if ask.has_draft_model and tokens:
        scratch = model.draft_graphs.at(tokens)
        steps.append(Step(Phase.GRAPH_DRAFT, "graphs of the draft", scratch, steps[-1].free - scratch))
    limit, verdict = _judge(_checks(model, pools, steps, before))
    rest_error = before.error_gib + model.pre.error_gib * (1 - ask.fraction) + ROUNDING_GIB
    error = int(rest_error * GIB / model.pools.cell.total)
    error += int(model.pools.cell.error * pools.kv_tokens)
    if verdict == "does_not_fit":  # nothing comes after a death
        steps = steps[: 1 + next(i for i, step in enumerate(steps) if step.phase is limit.phase)]
    return Prediction(model, pools, tuple(steps), limit, verdict, 0 if pools.is_capped else error)


def _pool_step(model: MemoryModel, pools: PoolPlan, before: Estimate) -> Step:
    """What is left after the pools is what the fraction keeps back, whatever the weights are, unless a cap holds."""
    takes = pools.total_gib + model.after_pools_gib
    if pools.is_capped:
        error = before.error_gib + model.pools.cell.error * pools.kv_gib + ROUNDING_GIB
    else:
        error = model.pre.error_gib * (1 - model.ask.fraction) + ROUNDING_GIB
    return Step(Phase.KV_POOL, "KV cache and states", Estimate(takes, before.error_gib),
                Estimate(before.gib - takes, error))  # fmt: skip


def _checks(model: MemoryModel, pools: PoolPlan, steps: list[Step], before: Estimate) -> tuple[Check, ...]:
    found = [
        Check(s.phase, Label.OOM_WEIGHTS, s.free) for s in steps if s.phase in {Phase.WEIGHTS, Phase.DRAFT_WEIGHTS}
    ]
    rest_error = before.error_gib + model.pre.error_gib * (1 - model.ask.fraction)
    if pools.refusal is not None:
        refusal = pools.refusal
        return (*found, Check(Phase.KV_POOL, refusal.label, Estimate(-refusal.short_gib, rest_error), refusal.why))
    found.append(Check(Phase.KV_POOL, Label.KV_BUDGET, Estimate(_kv_spare(pools), rest_error)))
    labels = {
        Phase.KV_POOL: Label.OOM_KV_ALLOC,
        Phase.GRAPH_TARGET: Label.OOM_GRAPH_TARGET,
        Phase.GRAPH_DRAFT: Label.OOM_GRAPH_DRAFT,
    }
    found += [Check(step.phase, labels[step.phase], step.free) for step in steps if step.phase in labels]
    return tuple(sorted(found, key=lambda check: [step.phase for step in steps].index(check.phase)))


def _kv_spare(pools: PoolPlan) -> float:
    """GiB that could be lost before SGLang finds nothing left for the cache."""
    between = pools.state.between_gib if pools.state else 0.0
    return max(pools.kv_gib + pools.draft_kv_gib, pools.rest_gib - between) if between else pools.rest_gib


def _judge(checks: tuple[Check, ...]) -> tuple[Check, Verdict]:
    """The first sure death; else the most doubtful check; else the one with the least to spare."""
    deaths = [check for check in checks if check.verdict == "does_not_fit"]
    if deaths:
        return deaths[0], "does_not_fit"
    doubtful = [check for check in checks if check.verdict == "unsure"]
    if doubtful:
        return min(doubtful, key=lambda check: check.spare.gib / max(check.spare.error_gib, 0.01)), "unsure"
    return min(checks, key=lambda check: check.spare.gib), "fits"
