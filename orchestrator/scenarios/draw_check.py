"""What a draw of lengths, turns or gaps must be before anything is drawn from it. Pure."""

from __future__ import annotations

import math
from typing import get_args, get_type_hints

from orchestrator.errors import BadInput
from orchestrator.traffic import Draw

KINDS: tuple[str, ...] = get_args(get_type_hints(Draw)["kind"])
_OF_MEAN = ("fixed", "normal", "lognormal", "exponential")
_OF_STD = ("normal", "lognormal")


def check_draw(draw: Draw, what: str) -> None:
    """Raise BadInput, begun with `what` (such as `workload chat: input_tokens`), for a draw that cannot be meant.

    Refused: an unknown kind; numbers that are negative, infinite or none; low above high; a mean beyond low and high,
    which clipping would never meet; a std or bins that the kind does not use; a kind without the fields that it needs.
    """
    fault = _fault(draw)
    if fault:
        raise BadInput(f"{what}: {fault}")


def _fault(draw: Draw) -> str:
    if draw.kind not in KINDS:
        return f"kind is {draw.kind!r}; it is one of {', '.join(KINDS)}"
    return _fault_of_numbers(draw) or _fault_of_limits(draw) or _fault_of_bins(draw) or _fault_of_kind(draw)


def _fault_of_numbers(draw: Draw) -> str:
    for name, value in (("mean", draw.mean), ("std", draw.std), ("low", draw.low), ("high", draw.high)):
        if value is not None and not (math.isfinite(value) and value >= 0):
            return f"{name} is {value}; it is a finite number of 0 or more"
    return ""


def _fault_of_limits(draw: Draw) -> str:
    if draw.high is not None and draw.low > draw.high:
        return f"low {draw.low:g} is above high {draw.high:g}"
    if draw.kind not in _OF_MEAN:
        return ""
    if draw.mean < draw.low:
        return f"mean {draw.mean:g} is below low {draw.low:g}, to which every draw is clipped"
    if draw.high is not None and draw.mean > draw.high:
        return f"mean {draw.mean:g} is above high {draw.high:g}, to which every draw is clipped"
    return ""


def _fault_of_bins(draw: Draw) -> str:
    if draw.kind != "histogram":
        return f"bins are for kind histogram, and kind is {draw.kind}" if draw.bins else ""
    if not draw.bins:
        return "kind histogram needs bins, pairs of (value, weight)"
    for value, weight in draw.bins:
        if not all(math.isfinite(number) and number >= 0 for number in (value, weight)):
            return f"bin ({value}, {weight}): value and weight are finite numbers of 0 or more"
    if not sum(weight for _, weight in draw.bins) > 0:
        return "the weights of all bins are 0; at least one is above 0"
    if not any(draw.low <= value <= (math.inf if draw.high is None else draw.high) for value, w in draw.bins if w > 0):
        return f"no bin with a weight lies between low {draw.low:g} and high {draw.high}"
    return ""


def _fault_of_kind(draw: Draw) -> str:
    if draw.std and draw.kind not in _OF_STD:
        return f"std {draw.std:g} has no effect with kind {draw.kind}; use kind normal or lognormal"
    if draw.kind in {"lognormal", "exponential"} and not draw.mean > 0:
        return f"kind {draw.kind} needs a mean above 0"
    if draw.kind == "uniform" and draw.high is None:
        return "kind uniform needs high"
    return ""
