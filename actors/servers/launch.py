"""From a launch spec to the command line and environment of its server; what of both may be shown or stored."""

from __future__ import annotations

import re
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from actors.guards.guard import RUN_MARK, TRIAL_MARK
from orchestrator.errors import ClusterRefusal
from orchestrator.server_start import HOST_WORD, PORT_WORD, LaunchSpec
from orchestrator.sglang.dialect import canonical_setting, dialect_of, spell
from orchestrator.sglang.options import SettingValue
from orchestrator.trial import SECRET_NAME, without_passwords

MODULES = {"sglang": "sglang.launch_server", "emulator": "actors.emulator"}
HIDDEN = "***"
API_KEY_VARIABLE = "SPECSWEEP_API_KEY"

# What Ray or a debugger put into our own environment for themselves; a server must not inherit it.
_NOT_INHERITED = (
    "RAY_",
    "PYTHONBREAKPOINT",
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONPATH",
    "LD_PRELOAD",
    "OMP_NUM_THREADS",
)
# With attention-DP SGLang listens on these above its HTTP port.
_INTERNAL_PORTS = range(233, 240)
_WHO_LISTENS = "; `ss -ltnp` shows who listens there"
_SECRET_FLAG = re.compile(r"^--(?:[\w-]*-)?(?:api-key|access-key|token|secret|password|passwd)$")
_VARIABLE = re.compile(r"^(?:--env=|-e)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)$")
_SECRET_IN_TEXT = re.compile(
    r"(?P<name>\b(?:admin[-_])?api[-_]key['\"]?(?:\s*[:=]\s*|[\s,]+))(?P<quote>['\"]?)(?!None\b|null\b|-)"
    r"(?P<value>[^\s'\",)}\]]+)"
)


def server_argv(spec: LaunchSpec, host: str, port: int, version: str | None = None) -> tuple[str, ...]:
    """The server's command line, in the spelling of an SGLang version (None: the newest). `extra_args` win as the last.

    SettingsFault for a setting that this version cannot be told.
    """
    if spec.engine == "command":
        words = (word.replace(HOST_WORD, host).replace(PORT_WORD, str(port)) for word in spec.command)
        return (*words, *spec.extra_args)
    command = spec.command or (sys.executable, "-m", MODULES[spec.engine])
    flags = spell(_effective(spec), dialect_of(version))
    address = ("--host", host, "--port", str(port), "--enable-metrics", *_span_flags(spec))
    return (*command, "--model-path", spec.model_path, *flags, *address, *spec.extra_args)


def _span_flags(spec: LaunchSpec) -> tuple[str, ...]:
    """Which part of a server over several hosts this is, and where its parts meet."""
    if spec.nnodes == 1 or spec.dist_init_addr is None:
        return ()
    place = ("--nnodes", str(spec.nnodes), "--node-rank", str(spec.node_rank))
    return (*place, "--dist-init-addr", spec.dist_init_addr)


def _effective(spec: LaunchSpec) -> dict[str, SettingValue | tuple[SettingValue, ...]]:
    """Settings by their names of today; without those of speculation where its depth is 0."""
    told = (canonical_setting(name, value) for name, value in spec.settings)
    settings = {name: value for name, value in told if name != "enable_metrics" and value is not None}
    depth = settings.get("speculative_num_steps")
    if depth == 0 and not isinstance(depth, bool):
        return {name: value for name, value in settings.items() if not name.startswith("speculative_")}
    return settings


def server_env(spec: LaunchSpec, gpu_ids: Sequence[str], base: Mapping[str, str]) -> dict[str, str]:
    """The server's whole environment: ours without what is Ray's, the GPUs, the spec's, and our mark over all."""
    env = server_environment(base)
    env["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
    if gpu_ids:
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpu_ids)
    if spec.engine == "emulator":
        env["PYTHONPATH"] = str(Path(__file__).parent.parent.parent)
    env.update(spec.env)
    env[RUN_MARK] = spec.run_id
    env[TRIAL_MARK] = spec.trial_id
    # SGLang renames its processes; without this setproctitle overwrites /proc/PID/environ, and our mark in it.
    env["SPT_NOENV"] = "1"
    return env


def server_environment(base: Mapping[str, str]) -> dict[str, str]:
    """An environment without what Ray or a debugger put there for themselves."""
    return {name: value for name, value in base.items() if not name.startswith(_NOT_INHERITED)}


def free_port(slot_index: int, base: int = 20000, spacing: int = 320, skip: int = 0) -> int:
    """An HTTP port that is free now, as are the ports above it that SGLang takes with attention-DP.

    The search begins `skip` ports on, so that runs that know nothing of each other do not meet: a server binds its port
    long after it was chosen.

    Slots of one host look `spacing` apart, so that servers starting at the same time do not meet. The ports
    of 39 slots lie below Linux's ephemeral range (32768), where any connection may take one for itself.
    """
    first = base + slot_index * spacing
    own = range(first, min(first + spacing - _INTERNAL_PORTS[-1], 65535 - _INTERNAL_PORTS[-1]))
    order: list[int] = [*own[skip:], *own[:skip]]
    for port in order:
        if all(map(_is_free, (port, *(port + offset for offset in _INTERNAL_PORTS)))):
            return port
    raise ClusterRefusal(f"no free port for slot {slot_index} between {first} and {first + spacing}{_WHO_LISTENS}")


def free_ports(slot_index: int, count: int, base: int = 20000, spacing: int = 320, skip: int = 0) -> int:
    """The first of `count` ports in a row that are free now, at the end of a slot's own: `free_port` has the others."""
    last = base + (slot_index + 1) * spacing
    for port in range(last - count - skip, last - spacing, -1):
        if all(map(_is_free, range(port, port + count))):
            return port
    told = f"no {count} free ports in a row for slot {slot_index} between {last - spacing} and {last}"
    raise ClusterRefusal(f"{told}{_WHO_LISTENS}")


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the server binds: closing ones do not count
        try:
            probe.bind(("", port))
            probe.listen(1)
        except OSError:
            return False
    return True


def is_secret_flag(word: str) -> bool:
    """Whether a flag such as `--api-key` is named like a secret."""
    return _SECRET_FLAG.match(word) is not None


def redact(argv: Sequence[str]) -> tuple[str, ...]:
    """A command line with the values of secret flags and variables (`-e HF_TOKEN=...`) hidden."""
    shown: list[str] = []
    hide_next = False
    for word in argv:
        name, equals, _ = word.partition("=")
        if name == "--env" and equals:
            name, equals, _ = word.removeprefix("--env=").partition("=")
            name = f"--env={name}"
        variable = _VARIABLE.match(name)
        is_secret = is_secret_flag(name) or bool(equals and variable and SECRET_NAME.search(variable["name"]))
        shown.append(HIDDEN if hide_next else f"{name}={HIDDEN}" if is_secret and equals else word)
        hide_next = is_secret and not equals
    return tuple(shown)


def shown_command(command: str) -> str:
    """A command line in one line, the values of secret flags hidden."""
    return " ".join(redact(command.split()))


def secret_values(argv: Sequence[str], env: Mapping[str, str]) -> frozenset[str]:
    """Every value that must not reach a log or a dataset: of secret flags, and of variables named like secrets."""
    values = {value for name, value in env.items() if SECRET_NAME.search(name)}
    values.update(value for name, value in _given(argv) if is_secret_flag(name))
    # Shorter ones are switches and numbers, and occur everywhere.
    return frozenset(value for value in values if len(value) >= 6)


def api_key(argv: Sequence[str]) -> str | None:
    """The key that a server started like this wants to see in requests."""
    return dict(_given(argv)).get("--api-key")


def request_key(extra_args: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The key for our own requests to a server: of its command line, else `SPECSWEEP_API_KEY` of the environment."""
    return api_key(extra_args) or env.get(API_KEY_VARIABLE) or None


def key_for(spec: LaunchSpec, environ: Mapping[str, str]) -> str | None:
    """The key for our own requests to the server of a spec."""
    env = {**environ, **dict(spec.env)}
    return request_key((*spec.command, *spec.extra_args), env) or spec.network_key


def _given(argv: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Words with the value that is theirs if they are flags: `--name value` or `--name=value`."""
    for word, following in pairwise((*argv, "")):
        name, equals, value = word.partition("=")
        yield (name, value if equals else following)


def conceal(text: str, secrets: frozenset[str] = frozenset()) -> str:
    """Text without the given secrets, without API keys in the ways that SGLang prints them, and without names and
    passwords in addresses.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return _SECRET_IN_TEXT.sub(rf"\g<name>\g<quote>{HIDDEN}", without_passwords(text))


def scrub(info: Mapping[str, Any]) -> dict[str, Any]:
    """A server's account of itself without secrets, also where they are repeated inside other texts."""
    secrets = frozenset(_secrets_in(info))
    return {name: _scrubbed(name, value, secrets) for name, value in info.items()}


def _secrets_in(value: Any, name: str = "") -> list[str]:
    if isinstance(value, Mapping):
        return [secret for key, item in value.items() for secret in _secrets_in(item, str(key))]
    if isinstance(value, list | tuple):
        return [secret for item in value for secret in _secrets_in(item)]
    return [value] if isinstance(value, str) and len(value) >= 6 and SECRET_NAME.search(name) else []


def _scrubbed(name: str, value: Any, secrets: frozenset[str]) -> Any:
    if isinstance(value, Mapping):
        return {key: _scrubbed(str(key), item, secrets) for key, item in value.items()}
    if isinstance(value, list | tuple):
        words = [_scrubbed("", item, secrets) for item in value]
        return list(redact(words)) if all(isinstance(word, str) for word in words) else words
    if not isinstance(value, str):
        return value
    return HIDDEN if value and SECRET_NAME.search(name) else conceal(value, secrets)
