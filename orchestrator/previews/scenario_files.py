"""The files that a scenario names: each must be there, and hold what it is named for, before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from orchestrator.errors import BadInput, ScenarioError
from orchestrator.memory.memory_forecast import check_model_config
from orchestrator.planning.planner import DatasetFile, dataset_files
from orchestrator.scenarios.engine_build import BUILDS, build_of, of_build
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import read_tree
from orchestrator.scenarios.yaml_tree import Path as KeyPath
from orchestrator.scenarios.yaml_tree import dotted


def check_named_files(scenario: Scenario, file: Path | None) -> None:
    """ScenarioError with the line in `file` that names what cannot be used; BadInput where no file is at hand."""
    for path, check in _checks(scenario):
        try:
            check()
        except BadInput as error:
            if file is None:
                raise BadInput(f"{dotted(path)}: {error}") from None
            raise ScenarioError(str(file), read_tree(file).line_of(path), dotted(path), str(error)) from None


def _checks(scenario: Scenario) -> Iterator[tuple[KeyPath, Callable[[], None]]]:
    for file in dataset_files(scenario):
        yield file.key, partial(_check_dataset, file)
    if scenario.engine.faults is not None:
        yield ("engine", "faults"), partial(check_fault_script, scenario)
    if scenario.nightly is not None:
        for build in BUILDS:
            if (told := build_of(scenario, build)) is not None and told.faults is not None:
                yield ("nightly", build, "faults"), partial(check_fault_script, of_build(scenario, build))
    if scenario.model.config is not None:
        yield ("model", "config"), partial(check_model_config, scenario)


def _check_dataset(file: DatasetFile) -> None:
    from actors.workloads.dataset_file import read_conversations
    from actors.workloads.trace_file import read_trace

    path = Path(file.path)
    if path.is_dir():
        raise BadInput(f"file:{path}: is a folder; give a file of prompts, conversations or a trace")
    if not path.is_file():
        raise BadInput(f"file:{path}: no such file (paths are relative to the working directory)")
    (read_trace if file.traced else read_conversations)(path)


def check_fault_script(scenario: Scenario) -> None:
    """The fault script of emulated servers must be there, and be one."""
    if scenario.engine.faults is None:
        return
    from actors.emulator.fault_script import load_fault_script

    load_fault_script(Path(scenario.engine.faults))
