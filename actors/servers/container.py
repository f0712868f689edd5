"""A command prefix that runs the server in a container: what it lacks is added, what cannot work is refused. Pure.

The container is no descendant of the client that we start, so it is ended by its name, which therefore is always ours.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from actors.diagnosis import EVIDENCE_LENGTH
from actors.servers.container_options import ContainerRefusal, GivenOption, RunCommand, parse_run
from actors.servers.follower import Segment
from orchestrator.outcome import Label
from orchestrator.trial import SECRET_NAME, content_hash

RUN_LABEL = "specsweep.run"

_NAME_WIDTH = 60
_DEVICES = re.compile(r"device=(?P<ids>[^\"']*)")
# The runtime itself failed (125), the command cannot be called (126), or is not in the image (127).
_RUNTIME_CODES = frozenset({125, 126, 127})
_RUNTIME_SAID = re.compile(r"^(?:docker|podman|nerdctl): |^Error(?:\b|:)|^FATA|^time=\S+ level=(?:fatal|error)")
_MISSING = re.compile(
    r"executable file not found|no such file or directory|pull access denied|manifest unknown"
    r"|manifest for \S+ not found|repository does not exist|unable to find image|image not known|not found: ",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """A whole command prefix. `inner_at` is where the words begin that are run inside.

    `variables` go into the container, from the client's environment or from the file that was asked for;
    `secrets` are those whose values stood in the command.
    """

    argv: tuple[str, ...]
    inner_at: int
    runtime: tuple[str, ...]
    name: str
    on_host_network: bool = True
    takes_files: bool = True
    by_env_file: bool = False
    variables: tuple[str, ...] = ()
    secrets: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a server needs of its container.

    `variables` are passed by name, their values taken from the client's environment; `env_file` replaces them where
    the client does not see ours (`sudo`). `ulimits`: -1 is unlimited. `mounts` are files, read-only, at the same path.
    `defaults` are variables that the command itself may give instead.
    """

    run_id: str
    name: str
    port: int
    gpu_ids: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    env_file: Path = Path("env")
    ulimits: tuple[tuple[str, int], ...] = ()
    mounts: tuple[Path, ...] = ()
    defaults: tuple[str, ...] = ()


def container_name(run_id: str, slot: str, trial_id: str) -> str:
    """A name that Docker takes, the same for the same trial on the same slot of a run, and for nothing else."""
    readable = re.sub(r"[^a-zA-Z0-9_.-]+", "-", f"{run_id}-{slot}")[:_NAME_WIDTH]
    return f"specsweep-{readable}-{content_hash([run_id, slot, trial_id], 10)}"


def container_runtime(command: Sequence[str]) -> tuple[str, ...]:
    """The words that call the runtime, e.g. `sudo docker`; none if the command runs no container."""
    run = parse_run(command)
    return run.runtime if run is not None else ()


def containerised(command: Sequence[str], needs: Needs) -> ContainerCommand | None:
    """The command with all that a server needs; None if it runs no container, ContainerRefusal if it cannot work."""
    run = parse_run([_filled(word, needs) for word in command])
    if run is None:
        return None
    _refuse_what_cannot_work(run)
    on_host = _is_on_host_network(run, needs.port)
    added = ["--name", needs.name, "--label", f"{RUN_LABEL}={needs.run_id}"]
    added += [f"--{switch}" for switch in ("rm", "init") if run.last(switch) is None and not _own_pids(run, switch)]
    added += ["--network", "host"] if on_host and run.last("network") is None else []
    options, gpu_words = _with_gpus(run, needs.gpu_ids)
    secrets = dict(_secrets(options))
    given = {_variable(option) for option in options if option.name == "env"}
    defaults = [name for name in needs.defaults if name not in given]
    variables = _variables(run, (*needs.variables, *defaults, *secrets))
    options = [o for o in options if o.name != "env" or _variable(o) not in variables]
    added += [*gpu_words, *(word for name, limit in needs.ulimits for word in ("--ulimit", f"{name}={limit}"))]
    added += [word for path in needs.mounts for word in ("-v", f"{path}:{path}:{_mount_options(run)}")]
    if run.is_privileged_call:
        added += ["--env-file", str(needs.env_file)]
    else:
        added += [word for name in variables for word in ("-e", name)]
    words = [*run.start, *(word for option in options for word in option.words), *added, run.image]
    return ContainerCommand(
        argv=(*words, *run.inner),
        inner_at=len(words),
        runtime=run.runtime,
        name=needs.name,
        on_host_network=on_host,
        takes_files=_takes_files(run),
        by_env_file=run.is_privileged_call,
        variables=variables,
        secrets=secrets,
    )


def command_fault(command: Sequence[str]) -> str | None:
    """Why a command prefix cannot run a server in a container, as far as that can be told before there is a slot."""
    try:
        containerised(command, Needs("run", "name", 1))
    except ContainerRefusal as refusal:
        return str(refusal)
    return None


@dataclass(frozen=True, slots=True)
class RuntimeFault:
    """That the runtime itself failed, with the line that says so."""

    label: Label
    evidence: str
    line_number: int


def runtime_fault(exit_code: int | None, log: Iterable[Segment]) -> RuntimeFault | None:
    """What the container runtime says of itself, if the exit code is one of its own."""
    if exit_code not in _RUNTIME_CODES:
        return None
    said = None
    for segment in log:
        said = segment if _RUNTIME_SAID.search(segment.text) else said
    if said is None:
        return None
    missing = exit_code != 125 or _MISSING.search(said.text)
    label = Label.COMMAND_NOT_FOUND if missing else Label.UNKNOWN
    return RuntimeFault(label, said.text.strip()[:EVIDENCE_LENGTH], said.number)


def _filled(word: str, needs: Needs) -> str:
    return word.replace("{gpus}", ",".join(needs.gpu_ids)).replace("{port}", str(needs.port))


def _refuse_what_cannot_work(run: RunCommand) -> None:
    for name, why in (
        ("detach", "the server must stay in the foreground: leave -d/--detach out"),
        ("tty", "a server has no terminal: leave -t/--tty out"),
    ):
        option = run.last(name)
        if option is not None and option.is_on:
            raise ContainerRefusal(f"has `{option.words[0]}`: {why}")
    if run.last("name") is not None:
        raise ContainerRefusal("has `--name`: Specsweep names the container, since it ends it by name; leave it out")
    restart = run.last("restart")
    if restart is not None and restart.value != "no":
        raise ContainerRefusal("has `--restart`: a server that comes back by itself cannot be measured; leave it out")


def _is_on_host_network(run: RunCommand, port: int) -> bool:
    """Whether the server shares the host's network; if not, its port must be published under its own number."""
    network, published = run.last("network"), run.given("publish")
    if (network is not None and network.value == "host") or (network is None and not published):
        return True
    if network is not None and network.value == "none":
        raise ContainerRefusal("has `--network none`: the server could not be reached; leave it out")
    ports = [(option.value or "").removesuffix("/tcp").split(":")[-2:] for option in published]
    if [str(port), str(port)] not in ports:
        raise ContainerRefusal(
            "leaves the host's network: publish the server's own port with `-p {port}:{port}`, "
            "or leave --network and -p out (`--network host` is added)"
        )
    return False


def _own_pids(run: RunCommand, switch: str) -> bool:
    """With the host's PIDs the server is not PID 1, and an init would complain that it is not either."""
    pid = run.last("pid")
    return switch == "init" and pid is not None and pid.value == "host"


def _with_gpus(run: RunCommand, gpu_ids: tuple[str, ...]) -> tuple[list[GivenOption], list[str]]:
    """The options with the slot's GPUs in place of all, and the words to add where no option speaks of GPUs."""
    given = run.given("gpus")
    if not gpu_ids or (sees_all_gpus(run) and (given or run.given("device"))):
        return list(run.options), []
    if sees_all_gpus(run):
        return list(run.options), _gpu_words(run.program, ("all",))
    own = _gpu_words(run.program, gpu_ids)
    for option in given:
        named = _DEVICES.search(option.value or "")
        if named and named["ids"].split(",") != list(gpu_ids):
            raise ContainerRefusal(
                f"has `--gpus {option.value}`, but this slot has GPU {','.join(gpu_ids)}: leave --gpus out, "
                "or write {gpus} for the numbers"
            )
    if any(_DEVICES.search(option.value or "") for option in given) or _names_gpus(run):
        return list(run.options), []
    return [option for option in run.options if option.name != "gpus"], own


def _gpu_words(program: str, gpu_ids: tuple[str, ...]) -> list[str]:
    if program == "podman":
        return [word for gpu in gpu_ids for word in ("--device", f"nvidia.com/gpu={gpu}")]
    devices = "all" if gpu_ids == ("all",) else f"device={','.join(gpu_ids)}"
    # The value is read as CSV, so a comma inside needs quotes that reach the runtime.
    return ["--gpus", f'"{devices}"' if len(gpu_ids) > 1 else devices]


def sees_all_gpus(run: RunCommand) -> bool:
    """Whether the container sees the GPUs of its host under their own numbers, whatever `--gpus` says."""
    privileged = run.last("privileged")
    devices = [option.value or "" for option in run.given("device")]
    return (privileged is not None and privileged.is_on) or any(d.startswith(("/dev/kfd", "/dev/dri")) for d in devices)


def _names_gpus(run: RunCommand) -> bool:
    devices = [option.value or "" for option in run.given("device")]
    variables = [option.value or "" for option in run.given("env")]
    return any(d.startswith(("nvidia.com/", "/dev/nvidia")) for d in devices) or any(
        v.startswith("NVIDIA_VISIBLE_DEVICES=") for v in variables
    )


def _secrets(options: Sequence[GivenOption]) -> Iterator[tuple[str, str]]:
    """`-e HF_TOKEN=value`: passed by name instead, so that the process list shows no value."""
    for option in options:
        name, equals, value = (option.value or "").partition("=")
        if option.name == "env" and equals and SECRET_NAME.search(name):
            yield name, value


def _variable(option: GivenOption) -> str:
    return (option.value or "").partition("=")[0]


def _mount_options(run: RunCommand) -> str:
    return "ro,z" if run.program == "podman" else "ro"  # SELinux hosts label what a container may read


def _variables(run: RunCommand, names: Sequence[str]) -> tuple[str, ...]:
    """A container that was given some GPUs counts them from 0, so the host's numbers must not get in."""
    hidden = set() if sees_all_gpus(run) else {"CUDA_VISIBLE_DEVICES"}
    return tuple(name for name in dict.fromkeys(names) if name not in hidden)


def _takes_files(run: RunCommand) -> bool:
    """Whether a private file of this host can be read inside: by root, on this host."""
    elsewhere = {"-H", "--host", "--context", "-c", "--url", "--connection", "-r", "--remote"}
    called = {word.partition("=")[0] for word in run.runtime[run.program_at :]}
    return run.last("user") is None and run.last("userns") is None and not called & elsewhere
