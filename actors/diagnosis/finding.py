"""A line of a log that tells something of the death, and the places where memory runs out. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from actors.diagnosis.rule import Rule, Weight
from orchestrator.outcome import Label, Phase

# What ran out, by where the server was.
MEMORY_LABELS = {
    Phase.SPAWN: Label.GPU_OCCUPIED,  # nothing of ours is on the GPU yet
    Phase.DIST_INIT: Label.GPU_OCCUPIED,
    Phase.WEIGHTS: Label.OOM_WEIGHTS,
    Phase.DRAFT_WEIGHTS: Label.OOM_WEIGHTS,
    Phase.KV_POOL: Label.OOM_KV_ALLOC,
    Phase.STATE_POOL: Label.STATE_POOL,
    Phase.GRAPH_TARGET: Label.OOM_GRAPH_TARGET,
    Phase.GRAPH_DRAFT: Label.OOM_GRAPH_DRAFT,
    Phase.HTTP_BIND: Label.RUNTIME_OOM,
    Phase.WARMUP: Label.RUNTIME_OOM,
    Phase.READY: Label.RUNTIME_OOM,
    Phase.SERVING: Label.RUNTIME_OOM,
}
# Where a label has only one place, whatever the log shows of the start.
ONLY_PLACE = {
    Label.OOM_KV_ALLOC: Phase.KV_POOL,
    Label.STATE_POOL: Phase.STATE_POOL,
    Label.OOM_GRAPH_TARGET: Phase.GRAPH_TARGET,
    Label.OOM_GRAPH_DRAFT: Phase.GRAPH_DRAFT,
}


@dataclass(slots=True)
class Finding:
    """A line that tells something. `phase` is None where neither log nor traceback show where the server was.

    `fatal`: the server itself said that this exception ended one of its processes. `rest`: its wrapped lines.
    """

    label: Label
    phase: Phase | None
    evidence: str
    message: str
    number: int
    weight: Weight
    rule: Rule | None = None
    rank: str = ""
    stamp: str = ""
    fatal: bool = False
    rest: str = ""
    signs_of_life: int = 0

    @property
    def is_conclusive(self) -> bool:
        return self.weight is Weight.CAUSE or (self.fatal and self.label is not Label.UNKNOWN)
