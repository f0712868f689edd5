"""`specsweep memory`: the memory of one start, predicted, for a config of a scenario or for a model by itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from orchestrator.config_label import config_labels
from orchestrator.errors import BadInput
from orchestrator.memory_budget import Prediction
from orchestrator.memory_forecast import Forecast, NoForecast, files_model, scenario_forecast
from orchestrator.memory_model import GpuRoom
from orchestrator.memory_view import Load, print_waterfall
from orchestrator.model_files import model_facts
from orchestrator.options import SettingsFault
from orchestrator.scenario import Scenario
from orchestrator.scenario_file import load_scenario
from orchestrator.settings import canonical_settings
from orchestrator.sweep_space import expand
from orchestrator.trial import EngineConfig


@dataclass(frozen=True)
class MemoryRequest:
    """The arguments of `memory`, parsed. Either `scenario`, or `model` and `gpu_gib`."""

    scenario: Path | None = None
    overrides: tuple[str, ...] = ()
    config: str | None = None
    model: str | None = None
    draft: str | None = None
    gpu_gib: float | None = None
    version: str | None = None
    as_json: bool = False


def show_memory(request: MemoryRequest, console: Console) -> None:
    """Print the prediction."""
    if (request.scenario is None) == (request.model is None):
        raise BadInput("give a scenario, or --model with --gpu-gib")
    if request.scenario is not None:
        title, prediction, loads, starts = _of_scenario(request, request.scenario)
    else:
        title, prediction, loads, starts = _of_model(request, str(request.model))
    if request.as_json:
        told = {"config": title, "earlier_starts": starts, **prediction.as_json()}
        told["requests_that_fit"] = {load.name: prediction.requests_of(load.tokens) for load in loads}
        console.file.write(json.dumps(told, indent=1) + "\n")
    else:
        print_waterfall(title, prediction, loads, starts, console)


def loads_of(scenario: Scenario) -> list[Load]:
    """The requests of the scenario's workloads."""
    return [Load(w.name, w.input_tokens + w.output_tokens) for w in scenario.workloads]


def _of_scenario(request: MemoryRequest, path: Path) -> tuple[str, Prediction, list[Load], int]:
    scenario = load_scenario(path, request.overrides)
    configs = tuple(expand(scenario))
    labels = config_labels({c.config_id: c.as_dict() for c in configs})
    config = _chosen(configs, labels, request.config)
    try:
        forecast = scenario_forecast(scenario, gpu_gib=request.gpu_gib)
    except NoForecast as why:
        raise BadInput(f"{path}: {why}") from None
    title = f"{scenario.name}: {labels[config.config_id]} ({config.config_id})"
    return title, forecast.of(config.as_dict()), loads_of(scenario), forecast.starts


def _chosen(configs: tuple[EngineConfig, ...], labels: dict[str, str], wanted: str | None) -> EngineConfig:
    """The config of a number (from 1), an id or its beginning; the only one if there is only one."""
    if wanted is None and len(configs) == 1:
        return configs[0]
    if wanted is not None and wanted.isdigit() and 1 <= int(wanted) <= len(configs):
        return configs[int(wanted) - 1]
    found = [c for c in configs if wanted and c.config_id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    listed = "\n".join(f"  {i}: {c.config_id} {labels[c.config_id]}" for i, c in enumerate(configs[:20], 1))
    more = f"\n  ... {len(configs) - 20} more" if len(configs) > 20 else ""
    problem = "which config? Give --config N or its id" if wanted is None else f"--config {wanted}: there is none such"
    raise BadInput(f"{problem}:\n{listed}{more}")


def _of_model(request: MemoryRequest, model: str) -> tuple[str, Prediction, list[Load], int]:
    if request.gpu_gib is None:
        raise BadInput("--model needs --gpu-gib: the GiB of one GPU as the driver counts them, e.g. 95.6")
    is_file = Path(model).suffix == ".json"
    facts = model_facts(model, config=model if is_file else None, draft=request.draft)
    if facts is None:
        raise BadInput(f"--model {model}: no config.json there, and no such model in the hub's cache")
    settings = parsed_settings(request.overrides, request.version)
    forecast = Forecast(files_model(facts, GpuRoom(request.gpu_gib)), request.version)
    return f"{model} on GPUs of {request.gpu_gib:g} GiB", forecast.of(settings), [], 0


def parsed_settings(pairs: tuple[str, ...], version: str | None) -> dict[str, Any]:
    """`NAME=VALUE` pairs as settings by today's names; BadInput for what no release takes."""
    given: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise BadInput(f"--set {pair}: write NAME=VALUE, e.g. tp_size=4")
        given[name] = yaml.safe_load(value)
    try:
        return canonical_settings(given, version)
    except SettingsFault as fault:
        raise BadInput(f"--set {fault.name}: {fault.message}") from None
