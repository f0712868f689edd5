"""Which schedulers of a server run on this node of it, as SGLang deals them out. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class LocalRanks:
    """`count` tensor-parallel ranks from `first` on, of `total`; this is node `node` of `nodes`."""

    first: int = 0
    count: int = 1
    total: int = 1
    node: int = 0
    nodes: int = 1

    @property
    def serves(self) -> bool:
        """Whether this node has the HTTP server, the tokenizer and the detokenizer."""
        return self.node == 0

    def titles(self) -> list[str]:
        """Process titles of the schedulers."""
        return [f"sglang::scheduler{self.tag(local, '_')}" for local in range(self.count)]

    def tag(self, local: int, before: str = " ") -> str:
        """What marks a scheduler in titles and log lines; nothing where there is only one."""
        return f"{before}TP{self.first + local}" if self.total > 1 else ""


def local_ranks(args: Mapping[str, Any]) -> LocalRanks:
    """By the resolved arguments. Stages of a pipeline take whole nodes before ranks of one stage share them."""
    total, stages = args["tp_size"], args["pp_size"]
    nodes, node = args["nnodes"], args["node_rank"]
    nodes_per_stage = max(nodes // stages, 1)
    count = total // nodes_per_stage
    return LocalRanks(count * (node % nodes_per_stage), count, total, node, nodes)
