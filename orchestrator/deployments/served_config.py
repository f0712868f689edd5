"""What is deployed: a config as its servers really ran, and what is told of where it comes from. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from actors.servers.container_options import RunCommand, parse_run
from actors.servers.launch import HIDDEN, is_secret_flag, server_argv
from orchestrator.deployments.deployment import IMAGE_PROGRAM as PROGRAM
from orchestrator.deployments.deployment import Deployment, flag_groups, service_name
from orchestrator.errors import BadInput
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.scenarios.config_env import split_environment
from orchestrator.scenarios.container_parts import OURS, ContainerParts, container_parts
from orchestrator.scenarios.scenario import Scenario
from orchestrator.server_start import LaunchSpec
from orchestrator.sglang.dialect import dialect_of, is_since, release_numbers, spell
from orchestrator.sglang.options import SettingsFault, known_options
from orchestrator.sglang.resolved_settings import TELLING, told_value
from orchestrator.trial import EngineConfig, Trial, freeze_settings, is_secret_variable

# With `/ready` a release tells that it serves without making a token for the question.
_READY_SINCE = "0.5.21"


@dataclass(frozen=True, slots=True)
class ServedConfig:
    """A config of a run and what its measured servers told: settings and environment as they served, their accounts,
    seconds of each start, the longest request in seconds, the SGLang version (None: not told).
    """

    settings: Mapping[str, Any]
    accounts: tuple[Mapping[str, Any], ...] = ()
    starts_s: tuple[float, ...] = ()
    request_s: float | None = None
    version: str | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """What the user wants besides; None for what follows from the run."""

    host: str = "0.0.0.0"
    port: int = 30000
    image: str | None = None
    program: tuple[str, ...] | None = None
    name: str | None = None


def deployment_of(
    scenario: Scenario, served: ServedConfig, objective: str, provenance: Sequence[str], wish: Wish
) -> Deployment:
    """BadInput for what Specsweep did not start, or whose command line holds a secret that cannot be left out."""
    engine = scenario.engine
    if engine.kind == "attach":
        raise BadInput(
            "the run loaded a server of yours (engine.kind attach): you know its flags: deploy it as you started it"
        )
    pinned = {} if engine.kind == "command" else pinned_settings(served)
    spec = _spec(scenario, served, pinned)
    run = parse_run(spec.command)
    inner = replace(spec, command=run.inner or PROGRAM) if run else spec
    if wish.program and engine.kind != "command":
        inner = replace(inner, command=wish.program)
    words = server_argv(inner, wish.host, wish.port, served.version)
    begin = 1 if engine.kind == "command" else len(inner.command)
    flags, secret_flags = _without_secrets(flag_groups(words[begin:]), engine.kind)
    env = split_environment(dict(served.settings))[1]
    told = {**engine.env, **env}.items()
    hidden = tuple(sorted(name for name, value in told if is_secret_variable(name, value)))
    version = served.version or engine.version or ""
    name = wish.name or service_name(scenario.name, objective)
    public = tuple(sorted((n, v) for n, v in env.items() if n not in hidden))
    container = _container_words(run, name, scenario.slots.gpus, wish, public, hidden) if run else ()
    is_sglang = engine.kind != "command"
    live = "/health" if is_sglang else engine.ready
    return Deployment(
        name=name,
        program=words[:begin],
        flags=flags,
        port=wish.port,
        gpus=scenario.slots.gpus,
        image=wish.image or _image(run, version, is_sglang),
        model_path=scenario.model.path,
        provenance=(*provenance, *_remarks(scenario, words[:begin], wish.host, secret_flags), *_pins(pinned)),
        start_s=max(served.starts_s, default=None),
        request_s=served.request_s,
        variables=public,
        secret_variables=tuple(dict.fromkeys(hidden)),
        secret_flags=secret_flags,
        draft_path=scenario.model.draft_path,
        work_dir=engine.work_dir,
        ready_path="/ready" if is_sglang and is_since(version, _READY_SINCE) else live,
        live_path=live,
        before=tuple(tuple(c.command) for c in engine.before_start),
        after=tuple(tuple(c.command) for c in engine.after_stop),
        nnodes=scenario.slots.nnodes,
        is_sglang=is_sglang,
        release=version,
        container=container,
        runtime=run.runtime if run else (),
        program_wished=wish.program is not None,
        parts=container_parts(run) if run else ContainerParts(),
    )


def _pins(pinned: Mapping[str, Any]) -> list[str]:
    return [f"pinned, since SGLang chose it: {name}: {value}" for name, value in pinned.items()]


def _remarks(scenario: Scenario, program: Sequence[str], host: str, secret_flags: Sequence[str]) -> list[str]:
    """What may go wrong elsewhere."""
    remarks = _relative(scenario, program)
    if host not in {"127.0.0.1", "::1", "localhost"} and "--api-key" not in secret_flags:
        remarks.append(
            f"it listens on {host} and asks for no key: whoever reaches the port may use it (--host, --api-key)"
        )
    return remarks


def _relative(scenario: Scenario, program: Sequence[str]) -> list[str]:
    """A service starts in another folder than the run did."""
    model = scenario.model
    paths = (program[0] if "/" in program[0] and program[0][0] not in "/$" else "", model.path, model.draft_path or "")
    named = [path for i, path in enumerate(paths) if path and (i == 0 or path.startswith((".", "~")))]
    if not named or scenario.engine.work_dir:
        return []
    return [
        f"paths of the folder in which the run was started, to be written in full: {', '.join(dict.fromkeys(named))}"
    ]


def _spec(scenario: Scenario, served: ServedConfig, pinned: Mapping[str, Any]) -> LaunchSpec:
    """What is started; for an emulated server the real one, with the same settings."""
    settings, variables = split_environment(dict(served.settings))
    config = EngineConfig(freeze_settings({**settings, **pinned}), tuple(sorted(variables.items())))
    spec = launch_spec(scenario, "", Trial("", config, 0, (), 0.0))
    if scenario.engine.kind == "command":
        return spec
    extra = tuple(scenario.engine.extra_args)
    return replace(spec, engine="sglang", command=spec.command or PROGRAM, extra_args=extra, nnodes=1)


def pinned_settings(served: ServedConfig) -> dict[str, Any]:
    """Settings that were left open and that SGLang chose by what it found: given explicitly, so that another host, or
    the same with other memory free, runs what was measured. Only what all servers chose alike, other than the parser's
    own default, and what the measured release can be told.
    """
    dialect, pinned = dialect_of(served.version), dict[str, Any]()
    for name in TELLING:
        if served.settings.get(name) not in (None, "auto"):
            continue
        chosen = [told_value(name, account) for account in served.accounts]
        if not chosen or any(value != chosen[0] for value in chosen) or chosen[0] in (None, "auto", False):
            continue
        option = known_options().get(name)
        if option is not None and option.default == chosen[0]:
            continue
        try:
            if spell({name: chosen[0]}, dialect):
                pinned[name] = chosen[0]
        except SettingsFault:  # an account may hold words that the parser does not take
            continue
    return pinned


def _without_secrets(
    flags: tuple[tuple[str, ...], ...], kind: str
) -> tuple[tuple[tuple[str, ...], ...], tuple[str, ...]]:
    """The flags that may be shown, and the names of those whose values no run keeps."""
    kept, secret = [], []
    for flag in flags:
        name = flag[0].partition("=")[0]
        if any(HIDDEN in word for word in flag) and (kind == "command" or not is_secret_flag(name)):
            raise BadInput(
                f"the command line has a secret ({name}), which no run keeps: give it to the server by a variable of "
                "its environment (engine.env), or write this part by hand"
            )
        if is_secret_flag(name):
            secret.append(name)
        else:
            kept.append(flag)
    return tuple(kept), tuple(dict.fromkeys(secret))


def _container_words(
    run: RunCommand, name: str, gpus: int, wish: Wish, variables: Sequence[tuple[str, str]], secret: Sequence[str]
) -> tuple[str, ...]:
    """`docker run ...` up to the image, as the scenario has it, under the deployment's name, with its GPUs and
    variables; nothing where the user named another program.
    """
    if wish.program:
        return ()
    options: list[str] = []
    for option in run.options:
        if option.name in OURS:
            continue
        if option.value is not None and HIDDEN in option.value and option.name == "env":
            options += ["-e", option.value.partition("=")[0]]  # its value comes from the environment
        else:
            options += option.words
    ids = ",".join(str(n) for n in range(gpus))
    options += [] if run.last("network") else ["--network", "host"]
    options += ["--gpus", f'"device={ids}"'] if gpus else []
    options += [word for n, value in variables for word in ("-e", f"{n}={value}")]
    options += [word for n in secret for word in ("-e", n)]
    return (*run.start, *options, "--rm", "--init", "--name", name, wish.image or run.image)


def _image(run: RunCommand | None, version: str, is_sglang: bool) -> str:
    if run is not None:
        return run.image
    if not is_sglang:
        return "IMAGE"
    return f"lmsysorg/sglang:v{version}" if release_numbers(version) else "lmsysorg/sglang:latest"
