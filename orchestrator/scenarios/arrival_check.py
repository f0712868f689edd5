"""Whether requests can be made due in some way at some load level: asked of scenarios, and again where load is made."""

from __future__ import annotations

import math

from orchestrator.errors import BadInput
from orchestrator.traffic import Arrival
from orchestrator.trial import LoadLevel


def check_arrival(arrival: Arrival, level: LoadLevel) -> None:
    """BadInput that names what is wrong and what is allowed, if no requests can be made due in this way."""
    _check_level(level)
    if arrival.kind == "gamma":
        if not _positive(arrival.burstiness):
            raise BadInput(
                f"burstiness is {arrival.burstiness:g}; allowed: a finite number above 0, the shape of gamma gaps "
                "(1 is Poisson, less is burstier)"
            )
    elif arrival.burstiness != 1.0:
        raise BadInput(f"burstiness is for arrival gamma, but arrival is {arrival.kind}; leave it out or use gamma")
    if not (math.isfinite(arrival.ramp_s) and arrival.ramp_s >= 0):
        raise BadInput(f"ramp_s is {arrival.ramp_s:g}; allowed: a finite number of seconds, 0 for none")
    for seconds, share in arrival.steps:
        if not _positive(seconds):
            raise BadInput(f"steps have one of {seconds:g} seconds; allowed: finite numbers above 0")
        if not _positive(share):
            raise BadInput(f"steps have one of {share:g} times the rate; allowed: finite numbers above 0")
    _check_fit(arrival, level)


def _check_level(level: LoadLevel) -> None:
    value = level.value
    if level.kind == "concurrency":
        if not (_positive(value) and value == int(value)):
            raise BadInput(f"concurrency is {value:g}; a closed loop needs a whole number of requests from 1")
    elif not _positive(value):
        what = "requests per second" if level.kind == "rate" else "times the speed of its recording"
        raise BadInput(f"{level.kind} is {value:g}; an open loop needs a finite number of {what} above 0")


def _check_fit(arrival: Arrival, level: LoadLevel) -> None:
    """The default arrival fits every level."""
    if level.kind == "concurrency" and (arrival.kind != "poisson" or arrival.steps):
        what = "steps are" if arrival.kind == "poisson" else f"arrival {arrival.kind} is"
        raise BadInput(f"{what} for an open loop; in a closed loop (concurrency) only ramp_s has a meaning")
    if level.kind == "rate" and arrival.kind == "trace":
        raise BadInput("arrival trace needs a level of kind trace; with a rate: poisson, constant or gamma")
    if level.kind == "trace":
        if arrival.kind not in {"poisson", "trace"}:
            raise BadInput(f"arrival {arrival.kind} is for a rate; a trace has its own times")
        if arrival.steps or arrival.ramp_s:
            raise BadInput("steps and ramp_s are for a rate or a concurrency; a trace has its own times")


def _positive(value: float) -> bool:
    return math.isfinite(value) and value > 0
