"""A deployment as a shell command, a systemd unit, or a `--config` file of SGLang. Pure."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Sequence

from orchestrator.deployments.deployment import (
    IDLE_GPU_MIB,
    MOST_FAILED_STARTS,
    RESTART_PAUSE_S,
    SECRETS_FOLDER,
    Deployment,
)
from orchestrator.sglang.dialect import dialect_of

_PLAIN = re.compile(r"^[A-Za-z0-9_@%+=:,./-]+$")
# What SGLang's parser of `--config` files takes in every release; other actions it refuses by name.
_IN_FILES = frozenset({"_StoreAction", "_StoreTrueAction"})


def commented(lines: Iterable[str]) -> str:
    """Lines as comments; none of them can end its comment."""
    return "".join(f"# {' '.join(line.split())}\n" for line in lines)


def as_command(deployment: Deployment) -> str:
    """A shell script: variables, then one command line, a flag a line."""
    lines = ["#!/bin/sh", commented(deployment.provenance).rstrip("\n")]
    lines += [f"# {_needed(name)}" for name in deployment.secret_variables]
    lines += [f"export {name}={shlex.quote(value)}" for name, value in deployment.variables]
    lines += [f': "${{{name}:?{name} must be set}}"' for name in deployment.secret_variables]
    if deployment.work_dir:
        lines.append(f"cd {shlex.quote(deployment.work_dir)} || exit 1")
    lines += [shlex.join(command) for command in deployment.before]
    words = [
        shlex.join((*host_words(deployment), *deployment.program)),
        *(shlex.join(flag) for flag in deployment.flags),
    ]
    if deployment.secret_flags:
        lines.insert(2, f"# {_secret_file_note(deployment, secrets_file(deployment))}")
        words.append(shlex.join(("--config", secrets_file(deployment))))
    if deployment.nnodes > 1:
        words += [f"--nnodes {deployment.nnodes}", *(f'{flag} "${{{name}:?}}"' for flag, name in _SPAN)]
    return "\n".join([*lines, "exec " + " \\\n  ".join(words)]) + "\n"


_SPAN = (("--node-rank", "NODE_RANK"), ("--dist-init-addr", "DIST_INIT_ADDR"))


def host_words(d: Deployment) -> tuple[str, ...]:
    """What runs the server in its container; the file with its secrets is mounted there."""
    if not d.container or not d.secret_flags:
        return d.container
    return (*d.container[:-1], "-v", f"{secrets_file(d)}:{secrets_file(d)}:ro", d.container[-1])


def secrets_file(deployment: Deployment) -> str:
    """Where flags that are secret are read from; the operator writes it, for the server's user only."""
    return f"{SECRETS_FOLDER}/{deployment.name}.secret.yaml"


def _secret_file_note(deployment: Deployment, file: str) -> str:
    keys = ", ".join(f"`{flag.removeprefix('--')}: ...`" for flag in deployment.secret_flags)
    return f"Write {file} (mode 600) with {keys}: secrets are in no run, and a command line can be read by all."


def _needed(name: str) -> str:
    return f"{name} is a secret that no run keeps: set it before."


def as_unit(deployment: Deployment) -> str:
    """A systemd unit: ready means that it answers, what dies three times stays dead, nothing of it is left behind."""
    d = deployment
    program, *rest = (*host_words(d), *d.argv(secrets_file(d)))
    gone = [f"-{_unit_command((*_absolute(d.runtime), 'rm', '-f', d.name))}"] if d.container else []
    words = _absolute((program, *rest))
    span = [f"--nnodes {d.nnodes}", *(f"{flag} ${{{name}}}" for flag, name in _SPAN)] if d.nnodes > 1 else []
    service = [
        "Type=exec",
        *(["WorkingDirectory=" + d.work_dir] if d.work_dir else []),
        *(f"Environment={_unit_word(f'{name}={value}', dollars=False)}" for name, value in d.variables),
        *([f"Environment=CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(d.gpu_ids)}"] if d.gpus else []),
        *([f"EnvironmentFile={SECRETS_FOLDER}/{d.name}.env"] if d.secret_variables or d.nnodes > 1 else []),
        *_gpus_are_free(d),
        *(f"ExecStartPre={command}" for command in gone),
        *(f"ExecStartPre={_unit_command(_absolute(command))}" for command in d.before),
        "ExecStart=" + " \\\n  ".join([*_wrapped(words), *span]),
        *_until_it_answers(d),
        *_container_stop(d),
        *(f"ExecStopPost={command}" for command in gone),
        *(f"ExecStopPost={_unit_command(_absolute(command))}" for command in d.after),
        f"TimeoutStartSec={d.start_limit_s}",
        f"TimeoutStopSec={d.stop_limit_s + (10 if d.container else 0)}",
        "KillMode=mixed",
        "Restart=on-failure",
        f"RestartSec={RESTART_PAUSE_S:g}",
        "RestartPreventExitStatus=2",
        "LimitNOFILE=1048576",
        "LimitMEMLOCK=infinity",
    ]
    unit = [
        f"Description={d.name}: {d.model_path}".replace("%", "%%"),
        "After=network-online.target nvidia-persistenced.service",
        "Wants=network-online.target",
        f"StartLimitIntervalSec={d.give_up_window_s}",
        f"StartLimitBurst={MOST_FAILED_STARTS}",
    ]
    head = commented((*d.provenance, *_unit_notes(d)))
    wanted = "\n[Install]\nWantedBy=multi-user.target\n"
    return head + "\n[Unit]\n" + "\n".join(unit) + "\n\n[Service]\n" + "\n".join(service) + "\n" + wanted


def _unit_notes(d: Deployment) -> list[str]:
    notes = [
        f"Install as /etc/systemd/system/{d.name}.service and set User= as you need.",
        f"{MOST_FAILED_STARTS} failed starts within {d.give_up_window_s} s end it (then: systemctl reset-failed "
        f"{d.name}); an exit code 2 (flags) at once. A stop drains for at most {d.stop_limit_s} s.",
    ]
    if not d.container and "/" not in d.program[0]:
        notes.append(f"{d.program[0]} is looked for in systemd's own PATH; --program names another, by its whole path.")
    if d.secret_flags:
        notes.append(_secret_file_note(d, secrets_file(d)))
    names = [*d.secret_variables, *(name for _, name in _SPAN if d.nnodes > 1)]
    if names:
        notes.append(f"Write {SECRETS_FOLDER}/{d.name}.env (mode 600) with {', '.join(f'{n}=...' for n in names)}.")
    return notes


def _gpus_are_free(d: Deployment) -> list[str]:
    """A dead start may hold GPU memory for a while; a server that starts meanwhile dies for another reason."""
    if not d.gpus:
        return []
    used = f"nvidia-smi -i {','.join(d.gpu_ids)} --query-gpu=memory.used --format=csv,noheader,nounits"
    script = (
        f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do m=$({used} | sort -n | tail -n 1); "
        f'[ "$m" -lt {IDLE_GPU_MIB} ] && exit 0; sleep 5; done; '
        "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv; exit 1"
    )
    return ["ExecStartPre=" + _unit_command(("/bin/sh", "-c", script))]


def _container_stop(d: Deployment) -> list[str]:
    """A container is no child of the unit: it is ended by its name."""
    if not d.container:
        return []
    return ["ExecStop=" + _unit_command((*_absolute(d.runtime), "stop", "-t", str(d.stop_limit_s), d.name))]


def _absolute(words: Sequence[str]) -> list[str]:
    """systemd's own search path is not the user's."""
    return [*words] if words[0].startswith("/") else ["/usr/bin/env", *words]


def _until_it_answers(d: Deployment) -> list[str]:
    """The unit is started when the server answers, so that whatever waits for the unit finds it serving."""
    url = f"http://127.0.0.1:{d.port}{d.ready_path}"
    script = f'until curl -fsS -o /dev/null -m 25 {url}; do kill -0 "$MAINPID" || exit 1; sleep 2; done'
    return ["ExecStartPost=" + _unit_command(("/bin/sh", "-c", script))] if d.nnodes == 1 else []


def _unit_command(words: Iterable[str]) -> str:
    return " ".join(map(_unit_word, words))


def _wrapped(words: Sequence[str]) -> list[str]:
    """A flag with its values a line."""
    lines: list[str] = []
    for word in words:
        if word.startswith("--") or not lines:
            lines.append(_unit_word(word))
        else:
            lines[-1] += " " + _unit_word(word)
    return lines


def _unit_word(word: str, *, dollars: bool = True) -> str:
    """A word as systemd reads it: `%` is doubled, in commands `$` as well; in double quotes where it is not plain."""
    kept = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")
    kept = kept.replace("$", "$$") if dollars else kept
    return kept if _PLAIN.match(word) else f'"{kept}"'


def as_config_file(deployment: Deployment) -> str:
    """A file for SGLang's `--config`: one key a flag, in the words of the release; switches are `true`.

    What the parser of such files does not take (it knows plain values and switches only) stands in a comment, to be
    given on the command line.
    """
    options = {spelling: o for o in dialect_of(deployment.release or None).options.values() for spelling in o.spellings}
    lines, outside = [], []
    for flag, *values in deployment.flags:
        option = options.get(flag)
        if option is None or option.action not in _IN_FILES or any(value.startswith("-") for value in values[1:]):
            outside.append(shlex.join((flag, *values)))
        else:
            lines.append(f"{flag.removeprefix('--')}: {_yaml_value(values, many=option.takes == 'many')}")
    notes = [f"Start it: {shlex.join((*deployment.program, '--config', f'{deployment.name}.yaml'))}"]
    notes += [f"and with these words, which SGLang takes from no file: {words}" for words in outside]
    notes += [f"{flag.removeprefix('--')}: ...  (a secret, which no run keeps)" for flag in deployment.secret_flags]
    names = (*(f"{n}={v}" for n, v in deployment.variables), *(f"{n}=..." for n in deployment.secret_variables))
    notes += [f"Environment: {' '.join(names)}"] if names else []
    return commented((*deployment.provenance, *notes)) + "\n".join(lines) + "\n"


def _yaml_value(values: list[str], *, many: bool) -> str:
    if not values:
        return "true"
    shown = [json.dumps(value, ensure_ascii=True) for value in values]
    return f"[{', '.join(shown)}]" if many else shown[0]
