"""`specsweep memory`: the memory of one start, predicted, for a config of a scenario or for a model by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from orchestrator.errors import BadInput
from orchestrator.memory.memory_budget import Prediction
from orchestrator.memory.memory_forecast import Forecast, NoForecast, files_model, scenario_forecast
from orchestrator.memory.memory_model import GpuRoom
from orchestrator.memory.memory_view import Load, print_waterfall
from orchestrator.memory.model_files import model_facts
from orchestrator.memory.model_shape import ModelShape
from orchestrator.scenarios.config_label import config_labels
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario
from orchestrator.scenarios.settings import canonical_settings
from orchestrator.scenarios.sweep_space import expand
from orchestrator.scenarios.workload_traffic import longest_request
from orchestrator.sglang.options import SettingsFault
from orchestrator.sglang.rule_terms import attention_dp
from orchestrator.sglang.sglang_rules import broken_rule
from orchestrator.terminal import print_json
from orchestrator.trial import EngineConfig

# Digits from this length on may be the beginning of a config's id (12 hex digits); fewer are a number.
SHORTEST_ID = 6
_NOT_THERE = "no config.json there, and no such model in the hub's cache; give its folder or its config.json"


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
    _check_request(request)
    if request.scenario is not None:
        title, prediction, loads, starts = _of_scenario(request, request.scenario)
    else:
        title, prediction, loads, starts = _of_model(request, str(request.model))
    if request.as_json:
        told = {"config": title, "earlier_starts": starts, **prediction.as_json()}
        told["requests_that_fit"] = {load.name: prediction.requests_of(load.tokens) for load in loads}
        print_json(told, console)
    else:
        print_waterfall(title, prediction, loads, starts, console)


def _check_request(request: MemoryRequest) -> None:
    """BadInput for arguments that do not go together: none of them may be dropped without a word."""
    if (request.scenario is None) == (request.model is None):
        raise BadInput("give a scenario, or --model with --gpu-gib")
    if request.gpu_gib is not None and not math.isfinite(request.gpu_gib):
        raise BadInput(f"--gpu-gib {request.gpu_gib}: give the GiB of one GPU as the driver counts them, e.g. 95.6")
    if request.scenario is not None:
        alone = {"--gpu-gib": request.gpu_gib, "--draft": request.draft, "--sglang": request.version}
        given = next((name for name, value in alone.items() if value is not None), None)
        if given:
            key = {"--gpu-gib": "slots.gpu_memory_gib", "--draft": "model.draft_path", "--sglang": "engine.version"}[
                given
            ]
            raise BadInput(f"{given} goes with --model; a scenario says it by {key} (--set {key}=...)")
    elif request.config is not None:
        raise BadInput("--config chooses among the configs of a scenario; with --model give settings by --set")


def loads_of(scenario: Scenario) -> list[Load]:
    """The requests of the scenario's workloads."""
    return [Load(w.name, longest_request(w)) for w in scenario.workloads]


def _of_scenario(request: MemoryRequest, path: Path) -> tuple[str, Prediction, list[Load], int]:
    scenario = load_scenario(path, request.overrides)
    configs = tuple(expand(scenario))
    labels = config_labels({c.config_id: c.as_dict() for c in configs})
    config = _chosen(configs, labels, request.config)
    try:
        forecast = scenario_forecast(scenario)
    except NoForecast as why:
        raise BadInput(f"{path}: {why}") from None
    title = f"{scenario.name}: {labels[config.config_id]} ({config.config_id})"
    return title, forecast.of(config.as_dict()), loads_of(scenario), forecast.starts


def _chosen(configs: tuple[EngineConfig, ...], labels: dict[str, str], wanted: str | None) -> EngineConfig:
    """The config of a number (from 1), an id or its beginning; the only one if there is only one."""
    if wanted is None and len(configs) == 1:
        return configs[0]
    number = int(wanted) if wanted is not None and wanted.isdecimal() and len(wanted) < SHORTEST_ID else None
    if number is not None and 1 <= number <= len(configs):
        return configs[number - 1]
    # Few digits are a number: one that is too large must not find an id that happens to begin like it.
    found = [c for c in configs if wanted and number is None and c.config_id.startswith(wanted)]
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
        raise BadInput(f"--model {model}: {_NOT_THERE}")
    settings = parsed_settings(request.overrides, request.version)
    if request.draft is not None and facts.draft_shape is None:
        raise BadInput(f"--draft {request.draft}: {_NOT_THERE}")
    drafts_with = {} if request.draft is None else {"speculative_draft_model_path": request.draft}
    broken = broken_rule({**drafts_with, **settings}, version=request.version)
    if broken is not None:
        raise BadInput(f"--set {broken.setting}: {broken.reason}")
    _check_heads(facts.shape, settings)
    forecast = Forecast(files_model(facts, GpuRoom(request.gpu_gib)), request.version)
    return f"{model} on GPUs of {request.gpu_gib:g} GiB", forecast.of(settings), [], 0


def _check_heads(shape: ModelShape, settings: dict[str, Any]) -> None:
    """SGLang shares the attention heads evenly, or asserts: a prediction of such a start would be one of no start."""
    told = shape.attention or shape.latent or shape.compressed
    tensor = settings.get("tp_size", 1)
    ranks = tensor // attention_dp(settings)
    if told is not None and ranks > 1 and told.heads % ranks:
        raise BadInput(
            f"--set tp_size: is {tensor}; {ranks} ranks do not divide the model's {told.heads} attention heads"
        )


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
