"""Which starts are not worth a try: those that are sure to die, and why that is sure. Pure."""

from __future__ import annotations

from orchestrator.memory.memory_budget import Prediction
from orchestrator.outcome import PREDICTED, Diagnosis, Label, Phase
from orchestrator.recoveries.failed_start import FailedStart

# What must be learnt from starts before a death in this phase is sure.
_LEARNT = {Phase.GRAPH_TARGET: "graphs of the target", Phase.GRAPH_DRAFT: "graphs of the draft"}
_WORDS = {
    Label.OOM_WEIGHTS: "weights do not fit on the GPU",
    Label.KV_BUDGET: "nothing is left for the KV cache",
    Label.STATE_POOL: "the pool of recurrent states holds no request",
    Label.OOM_KV_ALLOC: "the KV cache does not fit on the GPU",
    Label.OOM_GRAPH_TARGET: "graphs of the target do not fit",
    Label.OOM_GRAPH_DRAFT: "graphs of the draft do not fit",
}


def hopeless(prediction: Prediction) -> Diagnosis | None:
    """The death that is sure, as a diagnosis whose evidence begins with `predicted:`; None where it is worth a try.

    Sure means: short by more than all errors together, and not by a guess. Sizes of weights count when they were read
    from the files or seen in a start; weights that exceed the whole GPU count by the config's arithmetic alone;
    scratch of graphs counts only when earlier starts of the model showed it.
    """
    if prediction.verdict != "does_not_fit" or prediction.label is None or not _is_grounded(prediction):
        return None
    return Diagnosis(prediction.label, prediction.limit.phase, evidence(prediction))


def predicted_failure(prediction: Prediction, death: Diagnosis) -> FailedStart:
    """The numbers of a death that was predicted, as a log would have told them: repairs go by them."""
    model, short_gib = prediction.model, -prediction.limit.spare.gib
    free = [prediction.free_after(phase) for phase in (Phase.WEIGHTS, Phase.DRAFT_WEIGHTS)]
    loaded_gib = min((left.gib for left in free if left is not None), default=None)
    least = None if loaded_gib is None else 1 - loaded_gib / model.pre.gib
    weights_alone = death.label is Label.KV_BUDGET and least is not None and least >= model.ask.fraction
    in_graphs = death.phase in _LEARNT
    is_allocation = in_graphs or death.label is Label.OOM_KV_ALLOC
    return FailedStart(
        label=death.label,
        phase=death.phase,
        evidence=death.evidence,
        fraction=model.ask.fraction,
        total_gib=model.total_gib,
        wanted_gib=short_gib if is_allocation else None,
        free_gib=0.0 if is_allocation else None,
        before_load_gib=model.pre.gib,
        loaded_gib=loaded_gib,
        graph_begin_gib=_free_before(prediction, death.phase) if in_graphs else None,
        captured_batch=prediction.captured_batch if in_graphs else None,
        least_fraction=least if weights_alone else None,
        resolved={"mem_fraction_static": model.ask.fraction, "chunked_prefill_size": model.ask.chunk_tokens},
        has_states=prediction.pools.state is not None,
    )


def _free_before(prediction: Prediction, phase: Phase) -> float | None:
    before = None
    for step in prediction.steps:
        if step.phase is phase:
            break
        before = step.free.gib
    return before


def evidence(prediction: Prediction) -> str:
    """One sentence: what is short, by how much at least, and on what grounds."""
    check, model = prediction.limit, prediction.model
    what = check.why or _WORDS.get(check.label, "not enough GPU memory")
    short = f"short by at least {-check.spare.gib - check.spare.error_gib:.1f} GiB"
    grounds = "learnt from earlier starts: " + ", ".join(sorted(model.learnt)) if model.learnt else "by arithmetic"
    return f"{PREDICTED} {what}; {short}; {grounds}"


def _is_grounded(prediction: Prediction) -> bool:
    model, check = prediction.model, prediction.limit
    needed = _LEARNT.get(check.phase)
    if needed is not None:
        return needed in model.learnt
    if model.unknown and "weights" not in model.learnt:
        return False
    if check.label is Label.OOM_WEIGHTS and model.weights.gib - model.weights.error_gib > model.total_gib:
        return True
    return model.from_files or "weights" in model.learnt
