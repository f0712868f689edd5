"""Where a profiled server's time went, by class of kernel, and what tuning a class can give at most. Pure.

The bound is Amdahl's: if a class takes the share p of the time, no kernel of that class, however fast, makes the whole
more than 1 / (1 - p) times as fast.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

# First match counts: a fused kernel is named after its main part, and communication kernels carry names of types.
# Names are those of CUDA libraries (cuBLAS, CUTLASS, NCCL, FlashInfer, Triton, DeepGEMM), of SGLang's own kernels and,
# for servers on CPU, of PyTorch's operators.
_NAMES: dict[str, tuple[str, ...]] = {
    "communication": (
        "nccl", "rccl", "all_?reduce", "all_?gather", "reduce_?scatter", "all_?to_?all", "cross_device_reduce",
        "nvshmem", "deep_?ep", "c10d", "broadcast_kernel", "send_?recv", "dispatch_kernel", "combine_kernel",
    ),
    "moe": ("moe", "expert", "gating", "grouped_?gemm", "group_gemm", "m_grouped", "fused_marlin"),
    "attention": (
        "attention", "attn", "flash_?(?:fwd|mla)", "fmha", "mla_", "_mla", "paged_?kv", "batch_?(?:decode|prefill)",
        "merge_?state", "_fwd_(?:grouped_)?kernel", "sparse_?(?:fwd|decode|prefill)", "indexer", "fast_topk",
        "topk_transform", "delta_rule", "selective_(?:scan|state)", "causal_conv1d",
    ),
    "draft": (r"\bdraft", "eagle", "build_(?:dynamic_)?tree", "verify_tree", "tree_spec", "ngram", "accept_index"),
    "sampling": (
        "sampl", "top_?k", "top_?p", "min_?p", "softmax_temperature", "multinomial", "argmax", "argsort",
        "sort_?by_?key", "radix_?sort", "bitonic",
    ),
    "gemm": (
        "gemm", "gemv", "cublas", "cutlass", "matmul", r"\bmm\b", "::addmm", "::bmm", "::linear", "nvjet", "xmma",
        "wgmma", "splitk", "_mm_kernel", "scaled_mm", "mkldnn_linear", "weight_packed_linear",
    ),
    "norm and activation": (
        "norm", "silu", "gelu", "swiglu", "act_and_mul", "rope", "rotary", "quant", "elementwise", "vectorized",
        "reduce_kernel", "softmax", "::(?:mul|add|div|pow|mean|sum|sub|rsqrt|neg)",
    ),
    "copy and layout": (
        "memcpy", "memset", "copy", r"::to\b", "clone", "contiguous", "index", "scatter", "gather", "::cat",
        "cat_array", "slice", "fill", "arange", "repeat_interleave", "embedding", "transpose", "as_strided", "select",
        "::empty", "view", "reshape", "expand", "squeeze", "narrow", "chunk", "split", "::item", "::t$", "flatten",
    ),
}  # fmt: skip
CLASSES = tuple((name, re.compile("|".join(parts), re.IGNORECASE)) for name, parts in _NAMES.items())
OTHER = "other"
# Events of a GPU in a torch profiler trace.
_ON_GPU = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})


@dataclass(frozen=True, slots=True)
class KernelShare:
    """`share` of the busy time, `bound`: the most that the whole can become faster by it (1.064 is 6.4 %)."""

    name: str
    seconds: float
    share: float
    largest: tuple[tuple[str, float], ...]

    @property
    def bound(self) -> float:
        return float("inf") if self.share >= 1 else 1 / (1 - self.share)


@dataclass(frozen=True, slots=True)
class TraceShares:
    """Largest class first. `device`: `gpu`, or `cpu` where the trace holds no kernels: operators' own time then.

    `busy_s` is the sum over all of them, of several traces and streams together; `span_s` what the traces cover.
    """

    device: str
    classes: tuple[KernelShare, ...]
    busy_s: float
    span_s: float


def kernel_class(name: str) -> str:
    """The class of a kernel or operator by its name."""
    return next((cls for cls, pattern in CLASSES if pattern.search(name)), OTHER)


def trace_shares(traces: Iterable[Iterable[Mapping[str, Any]]]) -> TraceShares | None:
    """Shares over the events of all traces (`traceEvents` of the torch profiler); None if they hold no work at all.

    GPU kernels count with their duration. Without any, operators on the CPU count with their own time: what the
    operators inside them took is not counted twice.
    """
    on_gpu: dict[str, float] = defaultdict(float)
    on_cpu: dict[str, float] = defaultdict(float)
    span_us = 0.0
    for events in traces:
        timed = [e for e in events if _is_timed(e)]
        kernels = [e for e in timed if e.get("cat") in _ON_GPU]
        for event in kernels:
            on_gpu[str(event["name"])] += float(event["dur"])
        operators = [e for e in timed if e.get("cat") == "cpu_op"]
        if not on_gpu:
            _add_own_time(operators, on_cpu)
        counted = kernels or operators
        if counted:
            span_us += max(e["ts"] + e["dur"] for e in counted) - min(e["ts"] for e in counted)
    times = on_gpu or on_cpu
    busy_us = sum(times.values())
    if busy_us <= 0:
        return None
    return TraceShares("gpu" if on_gpu else "cpu", _classes(times, busy_us), busy_us / 1e6, span_us / 1e6)


def _is_timed(event: Mapping[str, Any]) -> bool:
    """Whether it says what took how long and when: files are cut, and written by many programs."""
    numbers = (event.get("ts"), event.get("dur"))
    known = all(isinstance(n, int | float) and math.isfinite(n) for n in numbers)
    return event.get("ph") == "X" and "name" in event and known and float(event["dur"]) >= 0


def _classes(times: Mapping[str, float], busy_us: float) -> tuple[KernelShare, ...]:
    by_class: dict[str, dict[str, float]] = defaultdict(dict)
    for name, us in times.items():
        by_class[kernel_class(name)][name] = us
    found = []
    for cls, members in by_class.items():
        total = sum(members.values())
        largest = sorted(members.items(), key=lambda item: -item[1])[:3]
        shares = tuple((name, us / busy_us) for name, us in largest)
        found.append(KernelShare(cls, total / 1e6, total / busy_us, shares))
    return tuple(sorted(found, key=lambda share: (-share.seconds, share.name)))


def _add_own_time(operators: list[Mapping[str, Any]], into: dict[str, float]) -> None:
    """Add each operator's time without that of the operators inside it, thread by thread."""
    threads: dict[Any, list[Mapping[str, Any]]] = defaultdict(list)
    for event in operators:
        threads[event.get("pid"), event.get("tid")].append(event)
    for events in threads.values():
        events.sort(key=lambda e: (e["ts"], -e["dur"]))
        open_ones: list[tuple[float, str]] = []  # (end, name) of the operators around
        for event in events:
            begin, end = float(event["ts"]), float(event["ts"]) + float(event["dur"])
            while open_ones and open_ones[-1][0] <= begin:
                open_ones.pop()
            if open_ones:
                # Clocks are rounded: an inner operator may seem to end after the one around it.
                into[open_ones[-1][1]] -= min(end, open_ones[-1][0]) - begin
            into[str(event["name"])] += float(event["dur"])
            open_ones.append((end, str(event["name"])))


def share_lines(shares: TraceShares) -> list[str]:
    """One line a class, and what it means."""
    kind = "GPU kernels" if shares.device == "gpu" else "CPU operators, without those inside them"
    lines = [f"Profile: {shares.busy_s:.3g} s of {kind} in {shares.span_s:.3g} s of trace."]
    for cls in shares.classes:
        gain = "any" if cls.bound == float("inf") else f"at most {cls.bound - 1:.1%}"
        top = ", ".join(f"{_short(name)} {share:.1%}" for name, share in cls.largest)
        lines.append(f"  {cls.name}: {cls.share:.1%} of the time; tuning it gives {gain} ({top})")
    if shares.device == "cpu":
        lines.append("  A CPU's shares say nothing about a GPU's.")
    return lines


def _short(name: str) -> str:
    name = re.sub(r"<.*", "", name.removeprefix("void "))
    return name if len(name) <= 60 else f"{name[:57]}..."


def shares_json(shares: TraceShares) -> dict[str, Any]:
    """The documented form for machines."""
    return {
        "device": shares.device,
        "busy_s": shares.busy_s,
        "span_s": shares.span_s,
        "classes": [
            {
                "name": cls.name,
                "share": cls.share,
                "seconds": cls.seconds,
                "speedup_bound": None if cls.bound == float("inf") else cls.bound,
                "largest": [{"name": name, "share": share} for name, share in cls.largest],
            }
            for cls in shares.classes
        ],
    }
