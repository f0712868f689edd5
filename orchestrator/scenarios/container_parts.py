"""What the container of a run gives to its server besides the image: for forms that do not call its runtime. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from actors.servers.container_options import GivenOption, RunCommand
from actors.servers.launch import HIDDEN

# What is the deployment's own, or is said by it, whatever calls the runtime.
OURS = frozenset({"name", "gpus", "rm", "init", "detach", "restart", "cidfile"})
# Said by every form in its own way, or of no use without a terminal.
_SAID = OURS | {
    "network", "publish", "ipc", "shm-size", "ulimit", "interactive", "tty", "label", "pull", "env", "volume",
    "workdir", "runtime",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the host (or a named volume) and its place in the container."""

    source: str
    target: str
    read_only: bool


@dataclass(frozen=True, slots=True)
class ContainerParts:
    """`variables` by name, `passed` names whose values come from the outside, `left_out` options that need a hand."""

    mounts: tuple[Mount, ...] = ()
    variables: tuple[tuple[str, str], ...] = ()
    passed: tuple[str, ...] = ()
    work_dir: str | None = None
    left_out: tuple[str, ...] = ()


def container_parts(run: RunCommand) -> ContainerParts:
    """The parts of `docker run ...` that a Compose file or a pod has to say in its own words."""
    mounts, left_out = [], []
    variables: dict[str, str | None] = {}
    for option in run.options:
        value = option.value or ""
        if mount := _READ[option.name](value) if option.name in _READ else None:
            mounts.append(mount)
        elif option.name == "env":
            name, given, text = value.partition("=")
            variables[name] = text if given and HIDDEN not in text else None
        elif option.name not in _SAID:
            left_out.append(_shown(option))
    work_dir = run.last("workdir")
    return ContainerParts(
        tuple(mounts),
        tuple((name, text) for name, text in variables.items() if text is not None),
        tuple(name for name, text in variables.items() if text is None),
        work_dir.value if work_dir else None,
        tuple(dict.fromkeys(left_out)),
    )


def _shown(option: GivenOption) -> str:
    return " ".join(option.words)


def _volume(value: str) -> Mount | None:
    source, _, rest = value.partition(":")
    target, _, options = rest.partition(":")
    return Mount(source, target, "ro" in options.split(",")) if target else None


def _mount(value: str) -> Mount | None:
    keys = dict(part.partition("=")[::2] for part in value.split(","))
    source = keys.get("source") or keys.get("src")
    target = keys.get("target") or keys.get("destination") or keys.get("dst")
    if keys.get("type", "volume") not in {"bind", "volume"} or not source or not target:
        return None
    return Mount(source, target, keys.get("readonly", keys.get("ro", "false")) in {"", "true", "1"})


_READ = {"volume": _volume, "mount": _mount}
