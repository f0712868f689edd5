"""Between sweep and forecast: starts that are sure to die end before they begin, the others are learnt from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from orchestrator.happening import Happening, TrialBegan, TrialEnded
from orchestrator.memory.hopeless import hopeless, predicted_failure
from orchestrator.memory.memory_forecast import Forecast, NoForecast, scenario_forecast
from orchestrator.outcome import Diagnosis, Failed, Infeasible, Measured
from orchestrator.provenance import utc_now
from orchestrator.recoveries.failed_start import FailedStart
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import ServerReady
from orchestrator.slots.slot_port import SlotFacts
from orchestrator.starts.start_history import PastStart
from orchestrator.trial import Trial


@dataclass(frozen=True)
class PredictedDeath:
    """Stands for a TrialRun that is not run: the same happenings, without a server."""

    trial: Trial
    attempt: int
    diagnosis: Diagnosis
    failed: FailedStart
    lost: bool = False
    refused: str | None = None
    rest: Trial | None = None

    def run(self) -> Iterator[Happening]:
        """Begin and end at once."""
        began_at = utc_now()
        yield TrialBegan(self.trial, self.attempt, began_at)
        outcome = Infeasible(self.diagnosis)
        yield TrialEnded(self.trial, self.attempt, outcome, None, began_at, b"", failed=self.failed)


class Foresight:
    """Asked by every slot before a start, told of every end. Thread-safe.

    `by_class`: forecasts of a run on hosts of several classes, whose GPUs differ. `first_only`: further starts of a
    config are made whatever is predicted, as those that verify a ceiling.
    """

    def __init__(
        self, forecast: Forecast, by_class: Mapping[str, Forecast] | None = None, *, first_only: bool = False
    ) -> None:
        self._forecast, self._first_only = forecast, first_only
        self._by_class = by_class or {}

    def death_of(self, trial: Trial, attempt: int) -> PredictedDeath | None:
        """The end of a trial whose server is sure to die; None where it is worth a start."""
        if self._first_only and trial.repeat > 0:
            return None
        prediction = self._by_class.get(trial.host_class, self._forecast).of(trial.config.as_dict())
        death = hopeless(prediction)
        if death is None:
            return None
        return PredictedDeath(trial, attempt, death, predicted_failure(prediction, death))

    def saw(self, slot: SlotFacts, happening: Happening) -> None:
        """Learn from a trial that ended after a start."""
        if isinstance(happening, TrialEnded) and happening.server is not None:
            forecast = self._by_class.get(happening.trial.host_class, self._forecast)
            forecast.learn(_past_start(slot, happening))


def _past_start(slot: SlotFacts, ended: TrialEnded) -> PastStart:
    outcome, server = ended.outcome, ended.server
    assert server is not None
    diagnosis = outcome.diagnosis if isinstance(outcome, Infeasible | Failed) else None
    return PastStart(
        host=slot.host,
        gpu_count=len(slot.gpu_ids),
        version=server.told_version if isinstance(server, ServerReady) else None,
        settings=ended.trial.config.as_dict(),
        phases=server.phases,
        outcome="measured" if isinstance(outcome, Measured) else outcome.kind,
        label=diagnosis.label if diagnosis else None,
        evidence=diagnosis.evidence if diagnosis else None,
    )


def run_foresight(
    scenario: Scenario,
    gpu_gib: Callable[[str], float | None],
    say: Callable[[str], None],
    classes: Sequence[str] = ("",),
) -> Foresight | None:
    """The foresight of a run, None if it is off or nothing can be predicted (which is said).

    `classes` of the run's hosts; `gpu_gib` asks those of one (empty: all) for the size of their smallest GPU.
    """
    wanted = scenario.sweep.skip_hopeless
    if not (scenario.engine.kind == "sglang" if wanted is None else wanted):
        return None
    try:
        known = scenario.engine.kind == "emulator" or scenario.slots.gpu_memory_gib is not None
        forecasts = {c: scenario_forecast(scenario, gpu_gib=None if known else gpu_gib(c)) for c in classes}
    except NoForecast as reason:
        say(f"Hopeless starts are not skipped: {reason}")
        return None
    is_ceiling = scenario.search.method == "ceiling"
    return Foresight(next(iter(forecasts.values())), forecasts, first_only=is_ceiling)
