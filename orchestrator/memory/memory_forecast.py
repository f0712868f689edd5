"""Predictions for a scenario: from the model's files or an emulator's profile, the GPU's size, and earlier starts."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.memory.gpu_memory import known_memory_gib
from orchestrator.memory.memory_budget import Prediction, predict
from orchestrator.memory.memory_calibration import ModelFor, SeenStart, calibrated, seen_starts
from orchestrator.memory.memory_model import GpuRoom, ModelFacts, memory_model
from orchestrator.memory.model_files import model_facts
from orchestrator.scenarios.scenario import Scenario
from orchestrator.starts.start_history import PastStart, past_starts

RUNS = Path("runs")


class NoForecast(Exception):
    """Why nothing can be predicted; its text is one line for people."""


class Forecast:
    """Predicts any settings of one model on one kind of GPU, and learns from starts. Thread-safe."""

    def __init__(self, model_for: ModelFor, version: str | None, starts: Iterable[PastStart] = ()) -> None:
        self._model_for = model_for
        self._version = version
        self._lock = threading.Lock()
        self._seen: tuple[SeenStart, ...] = ()
        told = tuple(starts)
        for start in sorted(told, key=lambda start: start.version is None):  # the newest that tells a release first
            self.learn(start)

    @property
    def starts(self) -> int:
        """Starts that it learnt from."""
        return len(self._seen)

    def of(self, settings: Mapping[str, Any]) -> Prediction:
        """The prediction for these settings, by today's names."""
        with self._lock:
            seen, version = self._seen, self._version
        return predict(calibrated(self._model_for(settings, version), seen))

    def learn(self, start: PastStart) -> None:
        """Take in a start. One that died tells no release: it had that of the others."""
        with self._lock:
            self._version = self._version or start.version
            version = self._version
        found = seen_starts((replace(start, version=start.version or version),), self._model_for)
        with self._lock:
            self._seen = (*self._seen, *found)


def scenario_forecast(scenario: Scenario, *, gpu_gib: float | None = None, runs: Path | None = None) -> Forecast:
    """The forecast for a scenario; NoForecast with the reason. `gpu_gib` is what the hosts themselves tell."""
    folder = runs or RUNS
    engine = scenario.engine
    if engine.kind not in {"sglang", "emulator"}:
        raise NoForecast(f"memory is not predicted for engine.kind `{engine.kind}`")
    if engine.settings.get("device") == "cpu" or scenario.slots.gpus == 0:
        raise NoForecast("memory is predicted for GPUs only")
    starts = past_starts(folder, model=scenario.model.path, engine=engine.kind) if folder.is_dir() else ()
    if engine.kind == "emulator":
        return Forecast(_emulated(scenario), None, starts)
    facts = model_facts(scenario.model.path, scenario.model.config, scenario.model.draft_path)
    if facts is None:
        raise NoForecast(
            f"no config.json of {scenario.model.path} is here (a folder or the hub's cache): give it as model.config"
        )
    size = scenario.slots.gpu_memory_gib or gpu_gib or _known_gib(scenario.slots.accelerators)
    if size is None:
        raise NoForecast("the size of the GPUs is not known: give slots.gpu_memory_gib or slots.accelerator")
    return Forecast(files_model(facts, GpuRoom(size)), engine.version, starts)


def _known_gib(products: Sequence[str]) -> float | None:
    """Of the smallest of these; None if one is not known."""
    sizes = [known_memory_gib(product) for product in products]
    known = [size for size in sizes if size is not None]
    return min(known) if known and len(known) == len(sizes) else None


def check_model_config(scenario: Scenario) -> None:
    """A `model.config` must be there, and be a language model's, before anything starts."""
    if scenario.model.config is not None:
        model_facts(scenario.model.path, scenario.model.config)


def files_model(facts: ModelFacts, room: GpuRoom) -> ModelFor:
    """Guesses any settings from the model's files."""
    return lambda settings, version: memory_model(facts, settings, room, version)


def _emulated(scenario: Scenario) -> ModelFor:
    from actors.emulator.profiles import profile_for
    from orchestrator.memory.emulated_memory import emulated_memory_model

    profile = profile_for(scenario.model.path, scenario.engine.profile)
    return lambda settings, version: emulated_memory_model(profile, settings, version)
