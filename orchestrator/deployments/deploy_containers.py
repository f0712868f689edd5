"""A deployment as a Compose file, or as a Deployment and a Service of Kubernetes. Pure."""

from __future__ import annotations

import json
import math
import shlex
from typing import Any

import yaml

from orchestrator.deployments.deploy_text import commented
from orchestrator.deployments.deployment import MOST_FAILED_STARTS, Deployment
from orchestrator.scenarios.container_parts import Mount

_SECRETS_IN = "/run/secrets/flags.yaml"
_HUB = "/root/.cache/huggingface"
# The health path of SGLang makes a token; a server under load may answer only when its step is over.
_PROBE_S = 25


def as_compose(d: Deployment) -> str:
    """A Compose file with one service."""
    whole: dict[str, Any] = {"name": d.name, "services": {"server": _service(d)}}
    named = [m.source for m in d.parts.mounts if not m.source.startswith(("/", ".", "~"))] if d.container else []
    if named:  # by their own names, not with the project's before them
        whole["volumes"] = {name: {"external": True} for name in named}
    if d.secret_flags:
        whole["secrets"] = {"flags": {"file": f"./{d.name}.secret.yaml"}}
    return commented((*d.provenance, *_notes(d, f"./{d.name}.secret.yaml"))) + _yaml(whole)


def _service(d: Deployment) -> dict[str, Any]:
    program = d.program_in_image
    public, secret = _variables(d)
    health = ["CMD", "curl", "-fsS", "-o", "/dev/null", "-m", str(_PROBE_S), f"http://127.0.0.1:{d.port}{d.live_path}"]
    device = {"driver": "nvidia", "device_ids": list(d.gpu_ids), "capabilities": ["gpu"]}
    service: dict[str, Any] = {
        "image": d.image,
        "container_name": d.name,
        # As process 1 of its container SGLang ends with code 0 when it dies, which no restart policy would see.
        "init": True,
        # Whatever the image starts by itself.
        "entrypoint": [_escaped(program[0])],
        "command": [_escaped(word) for word in (*program[1:], *d.argv(_SECRETS_IN)[len(d.program) :])],
        "working_dir": d.parts.work_dir if d.container else d.work_dir,
        "ports": [f"{d.port}:{d.port}"],
        "ipc": "host",
        "ulimits": {"memlock": -1, "stack": 67108864, "nofile": 1048576},
        "environment": {name: _escaped(value) for name, value in public.items()}
        | {name: f"${{{name}:?a secret that no run keeps}}" for name in secret},
        "volumes": _compose_volumes(d),
        "secrets": [{"source": "flags", "target": "flags.yaml"}] if d.secret_flags else None,
        "deploy": {"resources": {"reservations": {"devices": [device]}}} if d.gpus else None,
        "healthcheck": {
            "test": health, "interval": "30s", "timeout": f"{_PROBE_S + 5}s", "retries": 3,
            "start_period": f"{d.start_limit_s}s",
        },
        "restart": f"on-failure:{MOST_FAILED_STARTS}",
        "stop_grace_period": f"{d.stop_limit_s}s",
        "logging": {"driver": "json-file", "options": {"max-size": "100m", "max-file": "5"}},
    }  # fmt: skip
    return {name: value for name, value in service.items() if value}


def _compose_volumes(d: Deployment) -> list[str]:
    if d.container:  # the run's container had all that the server needs
        return [f"{_escaped(m.source)}:{_escaped(m.target)}{':ro' * m.read_only}" for m in d.parts.mounts]
    return [f"{path}:{path}:ro" for path in d.local_models] or [f"${{HF_HOME:-~/.cache/huggingface}}:{_HUB}"]


def _variables(d: Deployment) -> tuple[dict[str, str], tuple[str, ...]]:
    """Variables with their values, and names of those that come from the outside."""
    public = dict(d.parts.variables if d.container else ()) | dict(d.variables)
    passed = d.parts.passed if d.container else ()
    return public, tuple(dict.fromkeys((*passed, *d.secret_variables)))


def as_manifests(d: Deployment) -> str:
    """A Deployment with one replica that is never two at once (GPUs are not there twice), and its Service."""
    labels = {"app.kubernetes.io/name": d.name, "app.kubernetes.io/managed-by": "specsweep"}
    pod: dict[str, Any] = {
        "terminationGracePeriodSeconds": d.stop_limit_s + _LEAVE_S,
        "containers": [_container(d)],
        "volumes": _volumes(d),
    }
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": d.name, "labels": labels},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "progressDeadlineSeconds": d.start_limit_s + 600,
            "selector": {"matchLabels": {"app.kubernetes.io/name": d.name}},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": d.name, "labels": labels},
        "spec": {
            "selector": {"app.kubernetes.io/name": d.name},
            "ports": [{"name": "http", "port": d.port, "targetPort": "http"}],
        },
    }
    notes = [*_notes(d, f"the key flags.yaml of the Secret {d.name}"), *_model_notes(d)]
    return commented((*d.provenance, *notes)) + _yaml(deployment) + "---\n" + _yaml(service)


# Until a Service sends nothing more to a pod that ends.
_LEAVE_S = 10


def _container(d: Deployment) -> dict[str, Any]:
    gpus = {"nvidia.com/gpu": d.gpus} if d.gpus else {}
    program = d.program_in_image
    public, outside = _variables(d)
    secret = [{"name": n, "valueFrom": {"secretKeyRef": {"name": d.name, "key": n}}} for n in outside]
    container: dict[str, Any] = {
        "name": "server",
        "image": d.image,
        "command": [program[0].replace("$(", "$$(")],
        "args": [w.replace("$(", "$$(") for w in (*program[1:], *d.argv(_SECRETS_IN)[len(d.program) :])],
        "ports": [{"name": "http", "containerPort": d.port}],
        "env": [*({"name": n, "value": v.replace("$(", "$$(")} for n, v in public.items()), *secret],
        # Requests follow limits for extended resources; both are said, for readers.
        "resources": {"requests": gpus, "limits": gpus},
        "startupProbe": {
            **_probe(d.ready_path), "periodSeconds": 10, "failureThreshold": math.ceil(d.start_limit_s / 10),
        },
        "readinessProbe": {**_probe(d.ready_path), "periodSeconds": 10, "failureThreshold": 3},
        "livenessProbe": {**_probe(d.live_path), "periodSeconds": 60, "failureThreshold": 3},
        "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(_LEAVE_S)]}}},
        "volumeMounts": _mounts(d),
    }  # fmt: skip
    if work_dir := d.parts.work_dir if d.container else d.work_dir:
        container["workingDir"] = work_dir
    if not d.gpus:
        del container["resources"]
    return {name: value for name, value in container.items() if value != []}


def _probe(path: str) -> dict[str, Any]:
    return {"httpGet": {"path": path, "port": "http"}, "timeoutSeconds": _PROBE_S}


def _mounts(d: Deployment) -> list[dict[str, Any]]:
    models = [{"name": f"model-{i}", "mountPath": p, "readOnly": True} for i, p in enumerate(d.local_models)]
    if d.container:
        models = [
            {"name": f"mount-{i}", "mountPath": m.target, "readOnly": m.read_only} for i, m in enumerate(d.parts.mounts)
        ]
    hub = [] if models or d.container else [{"name": "hub", "mountPath": _HUB}]
    secret = [{"name": "secret", "mountPath": "/run/secrets", "readOnly": True}] if d.secret_flags else []
    return [{"name": "shm", "mountPath": "/dev/shm"}, *models, *hub, *secret]


def _volumes(d: Deployment) -> list[dict[str, Any]]:
    models = [
        {"name": f"model-{i}", "hostPath": {"path": path, "type": "Directory"}} for i, path in enumerate(d.local_models)
    ]
    if d.container:
        models = [_pod_volume(i, m) for i, m in enumerate(d.parts.mounts)]
    hub: list[dict[str, Any]] = [] if models or d.container else [{"name": "hub", "emptyDir": {}}]
    secret = [{"name": "secret", "secret": {"secretName": d.name}}] if d.secret_flags else []
    return [{"name": "shm", "emptyDir": {"medium": "Memory"}}, *models, *hub, *secret]


def _pod_volume(place: int, mount: Mount) -> dict[str, Any]:
    """A folder or file of the node; a named volume of a runtime is not there, and begins empty."""
    at = {"hostPath": {"path": mount.source}} if mount.source.startswith("/") else {"emptyDir": dict[str, Any]()}
    return {"name": f"mount-{place}", **at}


def _model_notes(d: Deployment) -> list[str]:
    if d.container:
        named = [m.source for m in d.parts.mounts if not m.source.startswith("/")]
        empty = f" Begin empty at every start, give them volumes that stay: {', '.join(named)}." if named else ""
        return [f"Mounts are those of the run's container, taken from the node (hostPath).{empty}"]
    if d.local_models:
        return ["The model is taken from the node (hostPath); a PersistentVolumeClaim may take its place."]
    return ["The model comes from the hub into an emptyDir at every start; give it a volume that stays."]


def _notes(d: Deployment, secrets: str) -> list[str]:
    notes = [f"A stop drains for at most {d.stop_limit_s} s; a start may take {d.start_limit_s} s."]
    if d.program_in_image != d.program:
        notes.append(
            f"The run started {shlex.join(d.program)} on its host; the image has {d.program_in_image[0]} "
            "(--program for another). Variables with paths of that host want the same care."
        )
    if d.container and d.parts.left_out:
        notes.append(f"Options of the run's container that are not said here: {shlex.join(d.parts.left_out)}.")
    if d.secret_flags:
        keys = ", ".join(f"`{flag.removeprefix('--')}: ...`" for flag in d.secret_flags)
        notes.append(f"Write {secrets} with {keys}: secrets are in no run.")
    if d.secret_variables:
        notes.append(f"Secrets that no run keeps come from the outside: {', '.join(d.secret_variables)}.")
    if d.before or d.after:
        notes.append(
            "The run had commands before a start or after a stop (engine.before_start, after_stop): see there."
        )
    return notes


def _escaped(word: str) -> str:
    """Compose replaces `$NAME` in every value."""
    return word.replace("$", "$$")


def _yaml(value: dict[str, Any]) -> str:
    plain = json.loads(json.dumps(value))  # nothing occurs twice in it, which YAML would abbreviate
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)
