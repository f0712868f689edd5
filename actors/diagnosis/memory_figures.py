"""Sizes that a message about memory holds, in whose words ever: the one place where they are read. Pure.

    read_memory_figures("CUDA out of memory. Tried to allocate 7.50 GiB. GPU 1 has a total capacity of ...").short_gib

All of it is GiB (2**30 bytes: torch's "GiB", SGLang's and MPS's "GB") of what the server computes on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_PER_UNIT = {"b": 1 / (1 << 30), "K": 1 / (1 << 20), "M": 1 / 1024, "G": 1.0}
# Drivers that do not know what a process holds say 2**64 bytes less something (WSL2): no GPU has that much.
_NO_GPU_HAS_GIB = float(1 << 20)


# What repeats is bounded, so that no line takes time that grows with its square.
def _size(name: str) -> str:
    return rf"(?P<{name}_gib>-?\d{{1,20}}(?:\.\d{{1,12}})?) ?(?P<{name}_unit>bytes|[KMG]i?B)"


# Each form gives what it names; what an earlier one gave stays.
_FORMS = tuple(
    re.compile(form, re.ASCII)
    for form in (
        # torch for CUDA, HIP, XPU, MUSA and NPU (with its workspaces), and its allocator on hosts.
        r"\b[Tt]ried to allocate " + _size("wanted"),
        # torch since 2.1 ("capacty" in 2.1 and 2.2), and before that, as MUSA and NPU say it still.
        rf"total capaci?ty of {_size('total')}(?: of which {_size('free')} is free)?",
        rf"{_size('total')} total capacity;(?:[^()]{{0,200}}?[; ])?{_size('free')} free\b",
        rf"\bMPS allocated: {_size('used')}, other allocations: {_size('others')}, max allowed: {_size('total')}",
        rf"\b{_size('free')} is free\b",
        # SGLang's pool of int8 states; vLLM's KV cache and its look at the GPU before it starts.
        rf"\bneeds ~{_size('wanted')} but only {_size('free')} HBM is free",
        rf"{_size('wanted')} KV cache is needed, which is larger than the available KV cache memory "
        rf"\({_size('free')}\)",
        rf"\((?P<free_gib>[\d.]+)/{_size('total')}\) on startup is less than desired GPU memory utilization "
        rf"\([\d.]+, {_size('wanted')}\)",
        # SGLang's look at the GPUs of a server before it loads: that with least free, and this one.
        r"\bpre_model_load_memory=(?P<least_free_gib>[\d.]*\d), local_gpu_memory=(?P<free_gib>[\d.]*\d)",
        # SGLang's budget for states: negative where the weights alone take more than the fraction allows.
        rf"\btotal_rest_memory={_size('state_rest')}, mamba_cache_per_req={_size('state_each')}",
    )
)
# A limit that torch was given for this process: what is free on the card is then not what was short.
_LIMITED = re.compile(r"\bis free\b.{0,400}?\d [KMG]iB allowed;")
_OTHERS = re.compile(r"\bProcess (?P<pid>\d+) has " + _size("held") + " memory in use")
_FRACTION = re.compile(r"(?:--mem-fraction-static=|mem_fraction_static=)(?P<fraction>\d?\.\d+)", re.ASCII)
# SGLang's own minimum: as it computed it, else (the message was cut) as it suggests it, 0.001 above.
_LEAST_FRACTION = (
    re.compile(r"minimum viable = 1 - available/pre = (?P<least>-?[\d.]*\d)", re.ASCII),
    re.compile(r"Raise --mem-fraction-static above (?P<least>-?[\d.]*\d)", re.ASCII),
)


@dataclass(frozen=True, slots=True)
class ProcessOnGpu:
    """Another process on the GPU that ran out, as torch saw it."""

    pid: int
    held_gib: float


@dataclass(frozen=True, slots=True)
class MemoryFigures:
    """What one message tells; None where it does not.

    `wanted_gib`, `free_gib`: the allocation that failed. `total_gib`: the card, or what MPS may take of the machine.
    `least_free_gib`: free on the GPU of the server that has least, where `free_gib` is of this one.
    `fraction`: mem_fraction_static in effect; `least_fraction`: the smallest that SGLang says can work.
    `state_rest_gib`: left for recurrent states and the KV cache; `state_each_gib`: the states of one request.
    """

    wanted_gib: float | None = None
    free_gib: float | None = None
    total_gib: float | None = None
    least_free_gib: float | None = None
    fraction: float | None = None
    least_fraction: float | None = None
    state_rest_gib: float | None = None
    state_each_gib: float | None = None
    others: tuple[ProcessOnGpu, ...] = ()

    @property
    def short_gib(self) -> float | None:
        return missing_gib(self.wanted_gib, self.free_gib)


def missing_gib(wanted_gib: float | None, free_gib: float | None) -> float | None:
    """What an allocation lacked; None where it is not known, also since as much was free, but not in one piece."""
    if wanted_gib is None or free_gib is None or wanted_gib <= free_gib:
        return None
    return wanted_gib - free_gib


def read_memory_figures(message: str) -> MemoryFigures:
    """Every size in one message (a line, or several joined)."""
    told: dict[str, float] = {}
    for form in _FORMS:
        if (found := form.search(message)) is not None:
            told = _sizes(found) | told
    if "used" in told:
        told["free"] = max(0.0, told["total"] - told["used"] - told["others"])
    if _LIMITED.search(message):
        told.pop("free", None)
    fraction = _FRACTION.search(message)
    least = next((found for form in _LEAST_FRACTION if (found := form.search(message))), None)
    return MemoryFigures(
        wanted_gib=told.get("wanted"),
        free_gib=told.get("free"),
        total_gib=told.get("total"),
        least_free_gib=told.get("least_free"),
        fraction=float(fraction["fraction"]) if fraction else None,
        least_fraction=float(least["least"]) if least else None,
        state_rest_gib=told.get("state_rest"),
        state_each_gib=told.get("state_each"),
        others=_others(message),
    )


def size_in_words(gib: float) -> str:
    """`5.20 GiB`; below a tenth of that in MiB, so that little does not read as nothing."""
    return f"{gib:.2f} GiB" if abs(gib) >= 0.1 else f"{gib * 1024:.1f} MiB"


def _sizes(found: re.Match[str]) -> dict[str, float]:
    """By name; a size without a unit of its own has that of the total beside it."""
    groups = found.groupdict()
    names = [name.removesuffix("_gib") for name, text in groups.items() if name.endswith("_gib") and text is not None]
    return {name: float(groups[f"{name}_gib"]) * _PER_UNIT[_unit(groups, name)] for name in names}


def _unit(groups: dict[str, str | None], name: str) -> str:
    return (groups.get(f"{name}_unit") or groups.get("total_unit") or "GiB")[0]


def _others(message: str) -> tuple[ProcessOnGpu, ...]:
    """In a container the server's own process may be among them, with no word that it is its own."""
    seen = [ProcessOnGpu(int(found["pid"]), _sizes(found)["held"]) for found in _OTHERS.finditer(message)]
    return tuple(other for other in seen if other.held_gib < _NO_GPU_HAS_GIB)
