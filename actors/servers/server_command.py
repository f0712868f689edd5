"""All that one server is started with on one host: words, environment, container, commands around it, private files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path

from actors.guards.guard import RUN_MARK, TRIAL_MARK, Guarded
from actors.guards.guard_orders import Container, Step, Surroundings
from actors.servers.container import ContainerCommand, Needs, container_name, containerised
from actors.servers.container_options import ContainerRefusal
from actors.servers.launch import redact, secret_values, server_argv, server_env
from actors.servers.private_flags import CONFIG_FLAG, config_text, split_secrets
from actors.servers.span_network import VARIABLES, span_env
from orchestrator.server_start import LaunchSpec, UserCommand

GPUS_VARIABLE = "SPECSWEEP_GPU_IDS"
PORT_VARIABLE = "SPECSWEEP_PORT"

_OURS = (RUN_MARK, TRIAL_MARK, "SPT_NOENV", "CUDA_DEVICE_ORDER", "CUDA_VISIBLE_DEVICES")


class LaunchRefused(Exception):
    """The server cannot be started like this on this slot."""


@dataclass(frozen=True, slots=True)
class ServerPlace:
    """Where a server runs: name of the host, the slot's GPUs, the address it binds to, and where its files go."""

    hostname: str
    gpu_ids: tuple[str, ...]
    host: str
    port: int
    log_path: Path


@dataclass(frozen=True, slots=True)
class ServerCommand:
    """`files` are written before the start, for the server's user only; `secrets` must reach no log."""

    argv: tuple[str, ...]
    env: dict[str, str]
    around: Surroundings
    files: dict[Path, str]
    secrets: frozenset[str]
    remarks: tuple[str, ...] = field(default=())


def on_host(spec: LaunchSpec, hostname: str) -> tuple[LaunchSpec, tuple[str, ...]]:
    """The spec with the paths of this host, and what to say about it in the log.

    The server goes on answering to the name that the scenario gives the model.
    """
    remarks: list[str] = []
    model = _mapped(spec.model_path_by_host, hostname)
    if model is not None and model != spec.model_path:
        remarks.append(f"model path on {hostname}: {model}")
        spec = _with_model(spec, model)
    draft = _mapped(spec.draft_path_by_host, hostname)
    if draft is not None and spec.draft_path is not None and draft != spec.draft_path:
        settings = tuple((name, draft if value == spec.draft_path else value) for name, value in spec.settings)
        if settings != spec.settings:
            remarks.append(f"draft model path on {hostname}: {draft}")
            spec = replace(spec, settings=settings)
    return spec, tuple(remarks)


def _with_model(spec: LaunchSpec, path: str) -> LaunchSpec:
    """A template has the path among its words; SGLang is given it as a flag, and its name besides."""
    if spec.engine == "command":
        words = tuple(word.replace(spec.model_path, path) for word in spec.command)
        return replace(spec, model_path=path, command=words)
    named = "served_model_name" in dict(spec.settings) or ":" in spec.model_path
    alias = () if named else ("--served-model-name", spec.model_path)
    return replace(spec, model_path=path, extra_args=(*alias, *spec.extra_args))


def _mapped(by_host: Sequence[tuple[str, str]], hostname: str) -> str | None:
    return next((path for pattern, path in by_host if fnmatchcase(hostname, pattern)), None)


def server_command(
    spec: LaunchSpec, place: ServerPlace, base: Mapping[str, str], version: str | None = None
) -> ServerCommand:
    """What is started for a spec on a host with this SGLang version (None: the newest).

    LaunchRefused if its container cannot be started, SettingsFault if the version cannot be told a setting.
    """
    if spec.network_key is not None:
        return _with_network_key(spec, spec.network_key, place, base, version)
    spec, remarks = on_host(spec, place.hostname)
    env = server_env(spec, place.gpu_ids, base)
    if spec.nnodes > 1:
        env |= span_env(place.host, env)
    config = place.log_path.with_name("flags.yaml")
    try:
        container = _container(spec, place, config)
    except ContainerRefusal as refusal:
        raise LaunchRefused(f"engine.command {refusal}") from None
    bind, begin = place.host, 0
    if container is not None:
        spec, begin = replace(spec, command=container.argv), container.inner_at
        bind = place.host if container.on_host_network else "0.0.0.0"
        env |= container.secrets
    argv = server_argv(spec, bind, place.port, version)
    commands = [word for c in (*spec.before_start, *spec.after_stop) for word in c.command]
    secrets = secret_values((*argv, *commands), env)
    files: dict[Path, str] = {}
    if container is None or container.takes_files:
        argv, flags = split_secrets(argv, begin)
        if flags:
            argv, files[config] = (*argv, CONFIG_FLAG, str(config)), config_text(flags)
    if container is not None and container.by_env_file:
        files[_env_file(place)] = _env_text(container, env)
    around = _surroundings(spec, place, container, files)
    return ServerCommand(argv, env, around, files, secrets, remarks)


def _with_network_key(
    spec: LaunchSpec, key: str, place: ServerPlace, base: Mapping[str, str], version: str | None
) -> ServerCommand:
    """With our key, unless that could only be told on the command line, which everybody on the host can read."""
    open_spec = replace(spec, network_key=None)
    keyed = replace(open_spec, extra_args=(*spec.extra_args, "--api-key", key))
    command = server_command(keyed, place, base, version)
    if key not in command.argv:
        return command
    command = server_command(open_spec, place, base, version)
    remark = "the server has no API key: here one could only be given on its command line, for all to read"
    return replace(command, remarks=(*command.remarks, remark))


def _container(spec: LaunchSpec, place: ServerPlace, config: Path) -> ContainerCommand | None:
    needs = Needs(
        run_id=spec.run_id,
        name=container_name(spec.run_id, str(place.port), spec.trial_id),
        port=place.port,
        gpu_ids=place.gpu_ids,
        variables=(
            *(name for name, _ in spec.env),
            *(n for n in _OURS if place.gpu_ids or n != _OURS[-1]),
        ),
        defaults=VARIABLES if spec.nnodes > 1 else (),
        env_file=_env_file(place),
        ulimits=spec.ulimits,
    )
    container = containerised(spec.command, needs)
    if container is None or not container.takes_files:
        return container
    inner = (*container.argv[container.inner_at :], *spec.extra_args)
    return containerised(spec.command, replace(needs, mounts=(config,))) if split_secrets(inner)[1] else container


def _env_file(place: ServerPlace) -> Path:
    return place.log_path.with_name("variables.env")


def _env_text(container: ContainerCommand, env: Mapping[str, str]) -> str:
    given = {name: env[name] for name in container.variables if name in env}
    if broken := [name for name, value in given.items() if "\n" in value]:
        raise LaunchRefused(
            f"the value of {broken[0]} has several lines, which cannot be passed through sudo: write it in one line, "
            "or run the container without sudo"
        )
    return "".join(f"{name}={value}\n" for name, value in given.items())


def _surroundings(
    spec: LaunchSpec, place: ServerPlace, container: ContainerCommand | None, files: Mapping[Path, str]
) -> Surroundings:
    return Surroundings(
        container=Container(container.runtime, container.name) if container is not None else None,
        before=tuple(map(_step, spec.before_start)),
        after=tuple(map(_step, spec.after_stop)),
        step_env={GPUS_VARIABLE: ",".join(place.gpu_ids), PORT_VARIABLE: str(place.port)},
        limits={} if container is not None else dict(spec.ulimits),
        private_files=tuple(files),
    )


def _step(command: UserCommand) -> Step:
    return Step(command.command, redact(command.command), command.timeout_s)


def boot(command: ServerCommand, spec: LaunchSpec, log_path: Path, grace_s: float) -> Guarded:
    """Write the private files and hand the server to a guard; OSError if that cannot be done."""
    for path, text in command.files.items():
        path.unlink(missing_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    if command.remarks:
        with log_path.open("a", encoding="utf-8") as log:
            log.writelines(f"[specsweep] {remark}\n" for remark in command.remarks)
    in_container = command.around.container is not None
    return Guarded.boot(
        command.argv,
        env=command.env,
        log_path=log_path,
        cwd=spec.work_dir,
        grace_s=grace_s,
        address_space_gib=None if in_container else spec.address_space_limit_gib,
        around=command.around,
    )
