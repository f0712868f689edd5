"""The part of a scenario that says what is served and how: model, engine, commands around it.

Field descriptions here are the text of docs/scenario.md and of the JSON Schema for editors.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from orchestrator.key_types import Positive, Strict

Value = bool | int | float | str
Settings = dict[str, Value | list[Value]]
Condition = dict[str, Value | list[Value]]
Activity = Literal["CPU", "GPU", "MEM", "CUDA_PROFILER"]


class Model(Strict):
    """What is served."""

    path: str = Field(min_length=1, description="Model path or hub name, as `--model-path` takes it.")
    draft_path: str | None = Field(None, description="Draft model of EAGLE, EAGLE3, STANDALONE or DFLASH.")
    bundled_draft: bool = Field(
        False, description="The model carries its own draft (MTP / NEXTN layer), so EAGLE needs no draft_path."
    )
    config: str | None = Field(
        None,
        min_length=1,
        description="The model's config.json (or its folder) on this machine, for predicting memory; default: `path` "
        "where it is a folder here, else the hub's cache.",
    )
    served_name: str | None = Field(
        None,
        min_length=1,
        description="Name of the model in requests to the OpenAI API. Default: `path`; for kind `command` what the "
        "server's `/v1/models` lists first.",
    )
    path_by_host: dict[str, str] = Field(
        default_factory=dict,
        description="Host name pattern (`gpu-a*`) to the path of the same model there; the first that fits counts, "
        "other hosts use `path`. Configs and results are the same; servers go on answering to the name `path`.",
    )
    draft_path_by_host: dict[str, str] = Field(
        default_factory=dict, description="The same for `draft_path`, wherever it stands in a config."
    )


class HostCommand(Strict):
    """A command that runs on the host of a server, before or after it."""

    command: list[str] = Field(min_length=1, description="The program and its arguments; no shell is involved.")
    timeout_s: Positive = Field(60.0, description="After this long its process group is killed, and it has failed.")


class Counters(Strict):
    """Counters in the server's `/metrics`, by their names there (kind `command`). Samples of all labels are added."""

    drafted: str | None = Field(None, min_length=1, description="Draft tokens proposed.")
    accepted: str | None = Field(None, min_length=1, description="Draft tokens accepted: accept_rate needs both.")
    verified: str | None = Field(
        None, min_length=1, description="Steps that verified a draft: accept_length = 1 + accepted / verified."
    )


Spread = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]


class Noise(Strict):
    """What makes measurements of one config differ, as factors on the time of every step, log-normal around 1. Each
    spread is the standard deviation of the factor's logarithm: 0.05 is about 5 %.
    """

    seed: int = Field(ge=0, description="Fixes all of them. No server shows it.")
    host: Spread = Field(0.05, description="Between hosts, by their names.")
    start: Spread = Field(0.015, description="Between server starts, by trial.")
    point: Spread = Field(0.02, description="Between points of one server; a point begins by flushing the cache.")


class Engine(Strict):
    """The server program and the settings that all configs share."""

    kind: Literal["sglang", "emulator", "attach", "command"] = Field(
        "sglang",
        description="`sglang` starts real servers; `emulator` starts stand-ins that need no GPU (never ranked beside "
        "real results); `attach` loads a server that already runs at `url` and never starts or stops it; `command` "
        "starts any server with an OpenAI API (see other-servers.md).",
    )
    command: list[str] = Field(
        default_factory=list,
        description="Command prefix before the flags. Default: `python -m sglang.launch_server`, the worker's Python. "
        "May run a container: `[docker, run, --ipc, host, IMAGE, python3, -m, sglang.launch_server]` (docker, podman, "
        "nerdctl, also by sudo; docs/operations.md says what is added). Kind `command`: the whole line, with `{port}` "
        "in it, and as needed `{host}`, `{model}`, `{draft}`, `{flags}` (else the flags come last) and names of "
        "settings.",
    )
    version: str | None = Field(
        None,
        description="SGLang version of the hosts. Each host is asked before its first launch; give it to have settings "
        "checked against that release before anything starts, or where the command hides it.",
    )
    flags: dict[str, str | list[str]] = Field(
        default_factory=dict,
        description="Kind `command`: setting name to what it adds to the command line: a flag, which the value "
        "follows, or a list of words with `{value}` in them (and names of other settings). `false` leaves them out.",
    )
    ready: str = Field(
        "/health", pattern=r"^/\S*$", description="Kind `command`: path that answers 200 once the server is up."
    )
    depth: str | list[str] | None = Field(
        None, description="Kind `command`: the settings that are a depth of speculation; 0 leaves their words out."
    )
    counters: Counters = Field(
        default_factory=lambda: Counters.model_validate({}), description="Kind `command`: how drafting is told."
    )
    url: str | None = Field(None, description="Base URL of the running server (`attach` only).")
    env: dict[str, str] = Field(default_factory=dict, description="Environment added for the server.")
    settings: Settings = Field(
        default_factory=dict,
        description="Server settings of every config, by SGLang option name with underscores; kind `command`: by the "
        "names in `flags`.",
    )
    allow_faked: list[str] = Field(
        default_factory=list,
        description="Environment variables that may make up results (e.g. `SGLANG_SIMULATE_ACC_LEN`); any other such "
        "variable is refused, wherever it is set. The ranking says so.",
    )
    extra_args: list[str] = Field(
        default_factory=list, description="Arguments passed as they are, for flags that Specsweep does not know."
    )
    work_dir: str | None = Field(None, description="Working directory of the server on its host.")
    address_space_limit_gib: Positive | None = Field(
        None, description="`ulimit -v` of the server tree in GiB; for servers on CPU, whose KV pool is host memory."
    )
    ulimits: dict[str, int | str] = Field(
        default_factory=dict,
        description="Soft limits of the server: `nofile`, `nproc` (numbers), `memlock`, `stack`, `core` (bytes), or "
        "`unlimited`. In a container they become `--ulimit`.",
    )
    before_start: list[HostCommand] = Field(
        default_factory=list,
        description="Commands run on the slot's host before its server, with the server's environment; the first that "
        "fails keeps the server from being started.",
    )
    after_stop: list[HostCommand] = Field(
        default_factory=list,
        description="Commands run once the server is gone, however it went, also if it never started. A failure is "
        "noted and costs no measurement.",
    )
    profile: str | None = Field(None, description="Emulated model and GPU (`emulator` only); default by model path.")
    start_speedup: Positive = Field(
        1.0, description="How much faster than real the emulator starts (`emulator` only); tokens are never faster."
    )
    noise: Noise | None = Field(
        None, description="Hidden differences between hosts, starts and points (`emulator` only); default: none."
    )
    faults: str | None = Field(
        None,
        min_length=1,
        description="Fault script of the emulated servers (`emulator` only; docs/emulator-faults.md), relative to the "
        "working directory. Every host must have it at the same place.",
    )
