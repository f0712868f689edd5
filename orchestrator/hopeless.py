"""Which starts are not worth a try: those that are sure to die, and why that is sure. Pure."""

from __future__ import annotations

from orchestrator.memory_budget import Prediction
from orchestrator.outcome import Diagnosis, Label, Phase

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


def evidence(prediction: Prediction) -> str:
    """One sentence: what is short, by how much at least, and on what grounds."""
    check, model = prediction.limit, prediction.model
    what = check.why or _WORDS.get(check.label, "not enough GPU memory")
    short = f"short by at least {-check.spare.gib - check.spare.error_gib:.1f} GiB"
    grounds = "learnt from earlier starts: " + ", ".join(sorted(model.learnt)) if model.learnt else "by arithmetic"
    return f"predicted: {what}; {short}; {grounds}"


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
