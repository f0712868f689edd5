"""The models of a scenario file: one question to a cluster, in YAML.

Unknown keys are errors, since a misspelt key that is ignored would drop a setting and still give a ranking.
Field descriptions here are the text of docs/scenario.md and of the JSON Schema for editors.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from orchestrator.key_types import Count, Name, Positive, Strict, off_as_written
from orchestrator.objectives.scenario_objective import Front, Objective
from orchestrator.plural import plural
from orchestrator.scenarios.scenario_engine import Activity, Condition, Engine, Model, Settings, Value
from orchestrator.scenarios.scenario_nightly import Nightly
from orchestrator.scenarios.scenario_recovery import Recovery
from orchestrator.scenarios.scenario_search import SearchKeys
from orchestrator.scenarios.scenario_workload import Workload
from orchestrator.scenarios.workload_traffic import preset_objective

# More often would be felt by the server.
LEAST_TELEMETRY_S = 0.2


class Sweep(Strict):
    """Which configs are tried: axes x zipped axes x explicit configs, less what is excluded, plus what is included."""

    axes: dict[str, list[Value]] = Field(
        default_factory=dict,
        description="Setting name to its values; all combinations are tried. `speculative_num_steps: 0` means no "
        "speculation. With topk 1 the draft tokens follow from the steps. Here and in `zip`, `configs` and `include` "
        "a name like `env.SGLANG_ENABLE_SPEC_V2` is a variable of the server's environment.",
    )
    zip: list[dict[str, list[Value]]] = Field(
        default_factory=list, description="Groups of axes that move together; lists of one group have equal length."
    )
    configs: list[Settings] = Field(
        default_factory=list, description="Explicit setting mappings, combined with every point of the axes."
    )
    include: list[Settings] = Field(
        default_factory=list, description="Configs tried besides the product: engine.settings plus these, as they are."
    )
    exclude: list[Condition] = Field(
        default_factory=list,
        description="Conditions; a config that meets all entries of one is left out. An entry is a value, a list of "
        'values, or a comparison such as ">= 8".',
    )
    skip_hopeless: bool | None = Field(
        None,
        description="Do not start a server that is sure to run out of GPU memory by arithmetic or by earlier starts "
        "(memory.md): it is listed as infeasible, its evidence begins with `predicted:`. Default: true for `sglang`, "
        "where such a start costs minutes; false for the emulator, which is there to show it.",
    )


class Slots(Strict):
    """Where servers run: one slot is `gpus` GPUs of each of `nnodes` hosts and holds one server at a time."""

    gpus: int = Field(
        1,
        ge=0,
        description="GPUs of a server on each of its hosts; 0: servers on CPU. Times nnodes it is tp x pp x dp size.",
    )
    nnodes: Count = Field(
        1,
        description="Hosts of a server, as SGLang's `--nnodes`; they are of one kind (`sglang` and `emulator` only; "
        "docs/operations.md).",
    )
    count: Count | None = Field(None, description="At most this many slots; default: all that the cluster has.")
    per_host: Count | None = Field(None, description="Slots per host when `gpus` is 0; default 1.")
    cpus: float = Field(1.0, ge=0, description="CPUs reserved with each slot.")
    labels: dict[str, str] = Field(
        default_factory=dict,
        description="Ray node labels that a host must have, e.g. `role: gpu`; `!x` means not x, `in(x,y)` one of them, "
        "`!in(x,y)` none.",
    )
    accelerator: str | list[str] | None = Field(
        None,
        description="Ray accelerator type, e.g. `RTX-PRO-6000` or `B200`, or a list of them. Hosts of different kinds "
        "are measured and ranked apart.",
    )
    gpu_memory_gib: Positive | None = Field(
        None,
        description="GiB of the smallest GPU as the driver counts them, for predicting memory; default: by "
        "`accelerator`, in a run by what the hosts tell.",
    )
    gpu_hour_cost: Positive | None = Field(
        None, description="What one GPU costs for an hour, for `cost_per_million_output_tokens`."
    )
    currency: str = Field("", max_length=16, description="Of `gpu_hour_cost`, to be shown: `USD`.")
    emulated_gpus: int = Field(
        0, ge=0, description="GPUs that an embedded Ray pretends to have (`emulator` on `--address local` only)."
    )

    @property
    def server_gpus(self) -> int:
        """GPUs of a whole server, on all its hosts."""
        return self.gpus * self.nnodes

    @property
    def size(self) -> str:
        """What a slot takes, in words."""
        return plural(self.gpus, "GPU") if self.nnodes == 1 else f"{self.nnodes} hosts x {plural(self.gpus, 'GPU')}"

    @property
    def accelerators(self) -> tuple[str, ...]:
        """The accelerator types that a host may have; none where any will do."""
        if self.accelerator is None:
            return ()
        return (self.accelerator,) if isinstance(self.accelerator, str) else tuple(self.accelerator)


class Profile(Strict):
    """SGLang's profiler (`/start_profile`), run under the point's load after its window: numbers stay clean."""

    output_dir: str = Field(min_length=1, description="Folder on the server's host; a folder per point is made in it.")
    duration_s: Positive = Field(3.0, description="Seconds of load that are profiled; traces grow with it.")
    activities: list[Activity] = Field(
        default_factory=lambda: list[Activity](["CPU", "GPU"]),
        min_length=1,
        description="What is traced, as SGLang names it.",
    )
    by_stage: bool = Field(False, description="Separate traces for prefill and decode (`profile_by_stage`).")
    with_stack: bool = Field(False, description="Python stacks in the trace.")
    record_shapes: bool = Field(False, description="Tensor shapes in the trace.")


def _unhurried(seconds: float) -> float:
    if 0 < seconds < LEAST_TELEMETRY_S:
        raise ValueError(f"at least {LEAST_TELEMETRY_S:g} seconds, or 0 for no telemetry")
    return seconds


class Measure(Strict):
    """How long each point is loaded. Give `duration_s` or `requests`."""

    warmup_s: float = Field(
        5.0, ge=0, allow_inf_nan=False, description="Load at the point's own level before the window opens, seconds."
    )
    warmup_requests: int = Field(1, ge=0, description="Finished warm-up requests before the window may open.")
    duration_s: Positive | None = Field(None, description="Length of the measured window in seconds.")
    requests: Count | None = Field(None, description="Or: number of measured requests.")
    repeats: Count = Field(1, description="Fresh server starts per config; the trial is the unit of replication.")
    reference: Annotated[Literal["auto", "off"] | Settings, BeforeValidator(off_as_written)] = Field(
        "auto",
        description="One config is measured on every host when its trials begin, and again when they end if that is "
        "more than 2 h later: it ties hosts together and shows drift (docs/statistics.md). `auto`: the first of the "
        "sweep, on two or more hosts of a class with four or more trials each. Settings as in `sweep.configs`: that "
        "config, always.",
    )
    profile: Profile | None = Field(None, description="Take a profile of the server at every point, after its window.")
    telemetry_s: Annotated[float, Field(ge=0, le=60, allow_inf_nan=False), AfterValidator(_unhurried)] = Field(
        1.0,
        description="Seconds between two looks at the server and its GPUs, from launch to stop (docs/telemetry.md); "
        "at least 0.2. 0: none.",
    )


class Timeouts(Strict):
    """Seconds after which we stop waiting."""

    start_s: Positive = Field(1800.0, description="Whole server start.")
    phase_s: Positive = Field(
        900.0, description="Without any sign of progress inside one phase of a start (not kind `command`)."
    )
    silent_s: Positive | None = Field(
        None,
        description="Without any sign of life in any phase of a start or while serving: no line in the log, no CPU "
        "time, disk traffic or GPU activity of the server (docs/lifecycle.md). Default: by phase, from earlier starts.",
    )
    request_s: Positive = Field(600.0, description="One request.")
    stop_s: Positive = Field(30.0, description="Grace between SIGTERM and SIGKILL.")
    cluster_s: Positive = Field(60.0, description="For the cluster to grant the slots.")


def _or_method(schema: dict[str, Any]) -> None:
    """`search: halving` is as good as the mapping."""
    methods = SearchKeys.model_json_schema()["properties"]["method"]["enum"]
    schema["anyOf"] = [{"$ref": schema.pop("$ref")}, {"type": "string", "enum": methods}]


class Scenario(Strict):
    """One question, asked of a cluster."""

    name: Name = Field(description="Name of the scenario; runs are called `<name>-<time>`.")
    description: str = Field("", description="What is asked and why.")
    model: Model = Field(description="What is served.")
    engine: Engine = Field(default_factory=lambda: Engine.model_validate({}), description="How it is served.")
    sweep: Sweep = Field(default_factory=lambda: Sweep.model_validate({}), description="Which configs are tried.")
    slots: Slots = Field(default_factory=lambda: Slots.model_validate({}), description="Where servers run.")
    workloads: list[Workload] = Field(min_length=1, description="What traffic is offered.")
    measure: Measure = Field(description="How long each point is loaded.")
    search: SearchKeys = Field(
        default_factory=lambda: SearchKeys.model_validate({}),
        description="Which of the configs are started, and how often.",
        json_schema_extra=_or_method,
    )
    seed: int = Field(1, ge=0, description="Seed of trial order, prompts and arrivals.")
    objectives: list[Objective] = Field(min_length=1, description="What is best.")
    pareto: list[Front] = Field(default_factory=list, description="Fronts over two or three aims, below the rankings.")
    timeouts: Timeouts = Field(default_factory=lambda: Timeouts.model_validate({}), description="When to give up.")
    recovery: Recovery = Field(
        default_factory=lambda: Recovery.model_validate({}), description="What is done about servers without memory."
    )
    nightly: Nightly | None = Field(None, description="Two builds that `specsweep nightly` measures beside each other.")

    @model_validator(mode="after")
    def _presets(self) -> Scenario:
        """Objectives by preset become ordinary ones; one that cannot stays as it is, and is refused by the checks."""
        if all(objective.preset is None for objective in self.objectives):
            return self
        resolved = [preset_objective(objective, self.workloads) for objective in self.objectives]
        return self.model_copy(update={"objectives": resolved})


def json_schema() -> dict[str, Any]:
    """JSON Schema of a scenario, for editors."""
    schema = Scenario.model_json_schema()
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    schema["title"] = "Specsweep scenario"
    return schema
