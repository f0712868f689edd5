"""What a run knows of server starts, to make budgets of: those of earlier runs beside it, and its own as they come."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orchestrator.happening import Happening, TrialEnded
from orchestrator.outcome import PhaseFact
from orchestrator.scenarios.scenario import Scenario, Timeouts
from orchestrator.server_start import PhaseBudget, ServerDied, ServerReady
from orchestrator.starts.phase_budget import SilenceLimits, phase_budgets
from orchestrator.starts.phase_history import PhaseHistory
from orchestrator.starts.start_history import PastStart, past_starts
from orchestrator.sweeps.sweep import Watcher
from orchestrator.trial import Trial


class StartMemory:
    """A Watcher that learns, in front of another. `budgets` may be asked from any thread."""

    def __init__(self, scenario: Scenario, past: Sequence[PastStart], watcher: Watcher) -> None:
        self._scenario = scenario
        self._past = PhaseHistory(past)
        self._watcher = watcher
        self._lock = threading.Lock()
        self._asked: dict[str, dict[str, Any]] = {}

    @classmethod
    def beside(cls, root: Path, scenario: Scenario, watcher: Watcher) -> StartMemory:
        """With what the runs in the folder of this run directory tell."""
        past = past_starts(root.parent, model=scenario.model.path, engine=scenario.engine.kind)
        return cls(scenario, past, watcher)

    def budgets(self, trial: Trial) -> tuple[PhaseBudget, ...]:
        """What the phases of this trial's server may take, by all that is known now; none for one that runs already."""
        kind = self._scenario.engine.kind
        if kind == "attach":
            return ()
        settings = trial.config.as_dict()
        with self._lock:
            self._asked[trial.trial_id] = settings
            return phase_budgets(
                self._past,
                settings,
                silence_limits(self._scenario.timeouts),
                gpu_count=self._scenario.slots.server_gpus,
                other_engine=kind == "command",
            )

    def saw(self, slot: str, happening: Happening) -> None:
        """A start has ended, well or not: what its phases took is known."""
        if isinstance(happening, ServerReady):
            self._learn(slot, happening.trial_id, happening.phases, "measured")
        elif isinstance(happening, TrialEnded) and isinstance(happening.server, ServerDied):
            self._learn(slot, happening.trial.trial_id, happening.server.phases, happening.outcome.kind)
        self._watcher.saw(slot, happening)

    def _learn(self, slot: str, trial_id: str, phases: tuple[PhaseFact, ...], outcome: str) -> None:
        with self._lock:
            settings = self._asked.pop(trial_id, {})
            gpus = self._scenario.slots.server_gpus
            self._past.add(PastStart(slot.rpartition("/")[0], gpus, None, settings, phases, outcome))


def silence_limits(timeouts: Timeouts) -> SilenceLimits:
    """What the user said about silence; a limit that has its default was not said."""
    default = Timeouts.model_fields["phase_s"].default
    return SilenceLimits(timeouts.silent_s, timeouts.phase_s if timeouts.phase_s != default else None)
