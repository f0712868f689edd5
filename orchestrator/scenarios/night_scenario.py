"""From the scenario to what is run in a night: its two builds in pairs, deaths left as they are. Pure."""

from __future__ import annotations

from pathlib import Path

from orchestrator.errors import BadInput
from orchestrator.scenarios.engine_build import BUILDS, engine_of
from orchestrator.scenarios.scenario import Measure, Scenario, Timeouts
from orchestrator.scenarios.scenario_recovery import Recovery
from orchestrator.scenarios.scenario_search import SearchKeys

_SUFFIX = "-night"
_MOST_CHARACTERS = 64


def night_scenario(scenario: Scenario, *, self_test: bool = False, wait_s: float | None = None) -> Scenario:
    """An ordinary scenario whose search makes pairs. `self_test`: the candidate is the reference. BadInput where the
    scenario compares nothing.
    """
    if scenario.nightly is None:
        raise BadInput(
            f"scenario {scenario.name} has no `nightly`: give the key, which says what is compared (docs/nightly.md)"
        )
    nightly, measure = scenario.nightly, scenario.measure
    if self_test:
        same = nightly.reference.model_copy(update={"name": "the reference again"})
        nightly = nightly.model_copy(update={"candidate": same})
    elif is_self_test(scenario):
        raise BadInput(
            f"scenario {scenario.name}: nightly.candidate is nightly.reference; give another "
            "(--candidate-image, --set), or --self-test to see that no difference is found"
        )
    timeouts: Timeouts = scenario.timeouts
    if wait_s is not None:
        timeouts = timeouts.model_copy(update={"cluster_s": wait_s})
    measured: Measure = measure.model_copy(update={"repeats": 1, "reference": "off", "profile": None})
    return scenario.model_copy(
        update={
            "name": scenario.name[: _MOST_CHARACTERS - len(_SUFFIX)] + _SUFFIX,
            "nightly": nightly,
            "search": SearchKeys.model_validate({"method": "pairs"}),
            # A death is what is looked for: it is neither repaired nor foretold.
            "recovery": Recovery.model_validate({"mode": "off"}),
            "sweep": scenario.sweep.model_copy(update={"skip_hopeless": False}),
            "measure": measured,
            "timeouts": timeouts,
            "pareto": [],
        }
    )


def set_aside(scenario: Scenario) -> tuple[str, ...]:
    """The keys that a scenario gives for `specsweep run` and that a night does not heed: it decides them itself."""
    own: list[str] = [name for name in ("search", "recovery", "pareto") if name in scenario.model_fields_set]
    own += [f"measure.{n}" for n in ("repeats", "reference", "profile") if n in scenario.measure.model_fields_set]
    own += ["sweep.skip_hopeless"] if "skip_hopeless" in scenario.sweep.model_fields_set else []
    return tuple(name for name in own if name != "search" or scenario.search.method != "pairs")


def is_self_test(scenario: Scenario) -> bool:
    """Whether both builds are one."""
    assert scenario.nightly is not None, "checked with the scenario"
    reference, candidate = (engine_of(scenario, build).model_dump() for build in BUILDS)
    return bool(reference == candidate)


def is_night(scenario: Scenario) -> bool:
    """Whether a run with this scenario is that of a night: it ranks nothing, its two builds are judged."""
    return scenario.search.method == "pairs"


def resume_command(scenario: Scenario, root: Path) -> str:
    """What continues a run: a night is no run of `specsweep run`."""
    return (
        f"specsweep nightly --resume {root} --history DIR" if is_night(scenario) else f"specsweep run --resume {root}"
    )


def night_name(scenario: Scenario) -> str:
    """What the history calls the scenario that a night was made of."""
    return scenario.name.removesuffix(_SUFFIX)
