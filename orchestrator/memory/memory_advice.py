"""Which knob has the room: what to change so that a start fits, or what is left to use. Pure."""

from __future__ import annotations

from orchestrator.memory.estimate import GIB
from orchestrator.memory.memory_budget import Prediction
from orchestrator.outcome import Label, Phase

_GRAPHS = {Label.OOM_GRAPH_TARGET, Label.OOM_GRAPH_DRAFT, Label.OOM_KV_ALLOC}
# A server is left this much for what is not modelled before we call the rest room.
SPARE_GIB = 1.0


def advice(prediction: Prediction) -> tuple[str, ...]:
    """Sentences; none where a start fits and little is left."""
    check = prediction.limit
    if check.spare.gib >= check.spare.error_gib:
        return _room(prediction)
    if check.label is Label.OOM_WEIGHTS:
        return ("weights: more GPUs (tp_size) or a smaller number format; mem_fraction_static does not help",)
    if check.label in _GRAPHS:
        return _less_static(prediction)
    return _more_static(prediction)


def _less_static(prediction: Prediction) -> tuple[str, ...]:
    """Graphs come out of what the static fraction leaves: lower it, or capture less."""
    ask, wanted = prediction.model.ask, _wanted(prediction)
    lower = ask.fraction - wanted / prediction.model.pre.gib
    lines = []
    kept = prediction.pools.kv_tokens - int(wanted * GIB / prediction.model.pools.cell.total)
    if lower > 0 and kept > 0:
        sure = "" if prediction.limit.spare.gib < 0 else "to be sure: "
        told = f"leaves {wanted:.1f} GiB more for graphs and {kept:,} KV tokens"
        lines.append(f"{sure}mem_fraction_static {lower:.2f} {told}")
    elif prediction.limit.spare.gib < 0:
        lines.append("no mem_fraction_static fits: the KV cache would have nothing left")
    else:
        lines.append("too little is known of the graphs of this model: a start will tell")
    batch = _batch_that_fits(prediction)
    if batch and batch < prediction.captured_batch:
        lines.append(f"or cuda_graph_max_bs_decode {batch} (of {prediction.captured_batch}) by this guess")
    return tuple(lines)


def _batch_that_fits(prediction: Prediction) -> int | None:
    """The largest captured batch whose graphs fit with all errors against it; None if none does."""
    model, ask = prediction.model, prediction.model.ask
    pooled = prediction.free_after(Phase.KV_POOL)
    if pooled is None:
        return None
    width = ask.draft_tokens if ask.speculating else 1
    for batch in sorted(ask.decode_sizes, reverse=True):
        needed = model.target_graphs.at(batch * width) + model.prefill_graphs
        if ask.has_draft_model:
            needed = needed + model.draft_graphs.at(batch * width)
        left = pooled - needed
        if left.gib >= left.error_gib:
            return batch
    return None


def _more_static(prediction: Prediction) -> tuple[str, ...]:
    """Weights, states and cache share the static part: raise it, if graphs leave room for that."""
    ask, model = prediction.model.ask, prediction.model
    wanted = _wanted(prediction)
    higher = ask.fraction + wanted / model.pre.gib
    lines = []
    graphs = model.target_graphs.at(1).gib + model.prefill_graphs.gib
    left = model.pre.gib * (1 - higher)
    if higher < 1 and left > graphs:
        lines.append(f"mem_fraction_static above {higher:.3f}; graphs and activations then have {left:.1f} GiB")
    else:
        lines.append("no mem_fraction_static fits: fewer weights per GPU (tp_size, number format) or a smaller draft")
    if model.pools.state_bytes and ask.speculating:
        lines.append(
            "or lower max_running_requests or speculative_num_steps: each draft token of a request holds a state"
        )
    return tuple(lines)


def _wanted(prediction: Prediction) -> float:
    """GiB that would make the deciding check sure."""
    spare = prediction.limit.spare
    return max(0.0, -spare.gib) + spare.error_gib


def _room(prediction: Prediction) -> tuple[str, ...]:
    free, model = prediction.free, prediction.model
    room = free.gib - free.error_gib - model.activations.gib - SPARE_GIB
    if room <= 0.5:
        return ()
    tokens = int(room * GIB / model.pools.cell.total)
    higher = model.ask.fraction + room / model.pre.gib
    if higher >= 0.99 or prediction.pools.is_capped:
        return ()
    return (f"room: mem_fraction_static up to {higher:.2f} would give {tokens:,} more KV tokens",)
