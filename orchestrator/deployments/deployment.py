"""A config that is to serve for good: what is started, how long start and stop may take, where it comes from. Pure.

Secrets are in none of it: variables named like secrets by their names, flags like `--api-key` as words of a file that
the operator writes.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field

from orchestrator.scenarios.container_parts import ContainerParts

# Nothing of a real server is up sooner than this, whatever was measured.
LEAST_START_S = 180.0
LEAST_STOP_S = 60.0
# SGLang looks for the end of its drain every 5 s, and gives its schedulers 15 s more (0.5.23).
DRAIN_OVERHEAD_S = 25.0
# As many starts in a row may fail; what dies three times dies a fourth time, and holds GPU memory in between.
MOST_FAILED_STARTS = 3
RESTART_PAUSE_S = 15.0
# MiB on a GPU that no process uses: driver and display.
IDLE_GPU_MIB = 1024
# What starts SGLang where it is installed for the system, as in its images.
IMAGE_PROGRAM = ("python3", "-m", "sglang.launch_server")
# Where the operator puts what is secret, by the deployment's name.
SECRETS_FOLDER = "/etc/sglang"


@dataclass(frozen=True, slots=True)
class Deployment:
    """One server. `program` are the words before the flags; `flags` each with its values, address included.

    `start_s`: the longest measured start, `request_s` the longest measured request (None: not known). `secret_flags`
    and `secret_variables` are names without values. `provenance`: lines that say where it comes from.
    `container`: the words that run `program` in a container, where the run did so, called by `runtime`.
    `program_wished`: the user named the program.
    `live_path` answers by generating a token, `ready_path` at once where the release can. `is_sglang`: its flags may
    come from a `--config` file. `parts`: what that container had besides its image, for forms without `runtime`.
    """

    name: str
    program: tuple[str, ...]
    flags: tuple[tuple[str, ...], ...]
    port: int
    gpus: int
    image: str
    model_path: str
    provenance: tuple[str, ...]
    start_s: float | None = None
    request_s: float | None = None
    variables: tuple[tuple[str, str], ...] = ()
    secret_variables: tuple[str, ...] = ()
    secret_flags: tuple[str, ...] = ()
    draft_path: str | None = None
    work_dir: str | None = None
    ready_path: str = "/health"
    live_path: str = "/health"
    before: tuple[tuple[str, ...], ...] = ()
    after: tuple[tuple[str, ...], ...] = ()
    nnodes: int = 1
    is_sglang: bool = True
    release: str = ""
    container: tuple[str, ...] = ()
    runtime: tuple[str, ...] = ()
    program_wished: bool = False
    parts: ContainerParts = field(default_factory=ContainerParts)

    @property
    def gpu_ids(self) -> tuple[str, ...]:
        return tuple(str(n) for n in range(self.gpus))

    @property
    def start_limit_s(self) -> int:
        """Three times the longest measured start: weights may come from a cold disk, kernels be compiled anew."""
        return _tens(max(LEAST_START_S, 3 * (self.start_s or 0.0)))

    @property
    def stop_limit_s(self) -> int:
        """SGLang drains without a limit of its own: twice the longest request that was measured, and its own end."""
        return _tens(max(LEAST_STOP_S, 2 * (self.request_s or 0.0) + DRAIN_OVERHEAD_S))

    @property
    def give_up_window_s(self) -> int:
        """In which MOST_FAILED_STARTS are too many: longer than they take, or a slow crash loop would never end."""
        return _tens(MOST_FAILED_STARTS * (self.start_limit_s + self.stop_limit_s + RESTART_PAUSE_S))

    @property
    def local_models(self) -> tuple[str, ...]:
        """Models that are folders of the host, not names of a hub."""
        paths = (self.model_path, self.draft_path or "")
        return tuple(dict.fromkeys(path for path in paths if path.startswith("/")))

    @property
    def program_in_image(self) -> tuple[str, ...]:
        """The words before the flags in an image: a path of the run's host is not there."""
        on_host = "/" in self.program[0] and not self.container and not self.program_wished
        return IMAGE_PROGRAM if self.is_sglang and on_host else self.program

    def argv(self, secrets_file: str | None = None) -> tuple[str, ...]:
        """The whole command line; secret flags come from a file of the operator's."""
        secret = ("--config", secrets_file) if self.secret_flags and secrets_file else ()
        return (*self.program, *(word for flag in self.flags for word in flag), *secret)


def flag_groups(words: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """The words of a command line, each flag with what follows it."""
    groups: list[list[str]] = []
    for word in words:
        if word.startswith("--") or not groups:
            groups.append([])
        groups[-1].append(word)
    return tuple(map(tuple, groups))


def service_name(*parts: str) -> str:
    """A name that systemd, Compose and Kubernetes all take: lower case, at most 50 letters, no dots."""
    name = re.sub(r"[^a-z0-9]+", "-", "-".join(parts).lower()).strip("-")
    return (name if name[:1].isalpha() else f"s-{name}")[:50].rstrip("-")


def _tens(seconds: float) -> int:
    return math.ceil(seconds / 10) * 10
