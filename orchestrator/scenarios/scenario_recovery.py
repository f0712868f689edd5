"""The keys of `recovery`: what is done about a config whose server dies for want of memory, and what may be changed.

Field descriptions here are the text of docs/scenario.md and of the JSON Schema for editors.
"""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import BeforeValidator, Field

from orchestrator.key_types import Strict, off_as_written

Knob = Literal[
    "mem_fraction_static",
    "cuda_graph_max_bs_decode",
    "max_running_requests",
    "max_total_tokens",
    "chunked_prefill_size",
    "context_length",
    "max_mamba_cache_size",
    "mamba_full_memory_ratio",
    "swa_full_tokens_ratio",
]
KNOBS: tuple[Knob, ...] = get_args(Knob)
"""Every setting that a repair may change. None of them decides how a server speculates."""


class Recovery(Strict):
    """What is done about a config whose server dies for want of memory (docs/recovery.md)."""

    mode: Annotated[Literal["apply", "suggest", "off"], BeforeValidator(off_as_written)] = Field(
        "apply",
        description="`apply`: memory settings are changed and the server is started again, as a config of its own that "
        "is linked to the one that was asked; `suggest`: the change is told and not made; `off`: neither.",
    )
    tries: Annotated[int, Field(ge=1, le=10)] = Field(3, description="Most repairs of one config.")
    may_change: list[Knob] = Field(
        default_factory=lambda: list(KNOBS),
        description="Settings that a repair may change: those last that the sweep varies. How it speculates never is.",
    )
