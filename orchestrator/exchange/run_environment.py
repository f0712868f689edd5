"""Where two runs differ besides their results: programs, hosts, and keys of their scenarios. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orchestrator.run_files.engine_software import TITLES, software_facts, software_unknown

# Parts of a scenario that decide how a server computes or what it is sent; the others say what is done with results.
_DECIDING = ("engine", "model", "slots", "workloads", "measure", "seed")
# Told by the configs themselves, or by nothing that was measured.
_ELSEWHERE = ("engine.settings.", "name", "description", "sweep.")
_LEVELS = ("concurrency", "rates", "trace", "max_rate")


@dataclass(frozen=True, slots=True)
class Difference:
    """`first` and `second` as text, "-" where one has nothing. `deciding`: it may move results."""

    name: str
    first: str
    second: str
    deciding: bool = True

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "first": self.first, "second": self.second, "deciding": self.deciding}


_NOT_KNOWN = "not known"
# As `hosts.json` has them, and what they are called here.
_OF_HOSTS = {"driver": "NVIDIA driver", "gpu": "GPU", "cpu": "CPU", "kernel": "kernel"}


def run_facts(
    manifest: Mapping[str, Any],
    trials: Iterable[Mapping[str, Any]],
    hosts: Mapping[str, Mapping[str, str]] | None = None,
) -> dict[str, str]:
    """What measured a run: programs and hosts, as one text each. `hosts`: facts by the name of the host."""
    trials, starts = list(trials), manifest.get("starts") or [{}]
    told: dict[str, Iterable[Any]] = {
        "engine": [manifest.get("engine")],
        "version of the server": (t.get("engine_version") for t in trials),
        **{f"{TITLES[name]} of the server": [text] for name, text in _software(manifest.get("engine"), trials).items()},
        "hosts (class)": (t.get("host_class") for t in trials) if trials else manifest.get("host_classes", ()),
        "hosts": (t.get("host") for t in trials),
        "GPUs used": (len(t.get("gpu_ids") or ()) for t in trials),
        "platform of the driver": (s.get("platform") for s in starts),
        "Python of the driver": (s.get("python") for s in starts),
    }
    serving = {t.get("host") for t in trials}
    for name, called in _OF_HOSTS.items():
        told[called] = [of.get(name) for host, of in (hosts or {}).items() if host in serving]
    for start in starts:
        for name, version in (start.get("versions") or {}).items():
            told[f"{name} of the driver"] = [*told.get(f"{name} of the driver", ()), version]
    found = {name: sorted({str(v) for v in values if v not in (None, "")}) for name, values in told.items()}
    return {name: ", ".join(values) for name, values in found.items() if values}


def _software(engine: Any, trials: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Besides the release, which servers tell themselves."""
    why = software_unknown(trials) if engine == "sglang" else ""
    known = {name: text for name, text in software_facts(trials).items() if name != "sglang"}
    return {"torch": f"{_NOT_KNOWN} ({why})"} | known if why else known


def fact_differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    """In the order of the facts. Names of hosts and the driver's machine decide nothing by themselves."""
    names = list(dict.fromkeys([*first, *second]))
    return [
        Difference(name, first.get(name, "-"), second.get(name, "-"), not name.endswith("of the driver"))
        for name in names
        if first.get(name) != second.get(name) and (_is_known(first.get(name)) or _is_known(second.get(name)))
    ]


def _is_known(text: str | None) -> bool:
    return text is not None and not text.startswith(_NOT_KNOWN)


def scenario_differences(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Difference]:
    """Keys with other values, those first that may move results. Workloads go by name, load levels are matched."""
    a, b = _flat(first), _flat(second)
    names = [name for name in dict.fromkeys([*a, *b]) if a.get(name, _NONE) != b.get(name, _NONE)]
    is_night = "pairs" in (a.get("search.method"), b.get("search.method"))
    found = [
        Difference(name, a.get(name, "-"), b.get(name, "-"), _decides(name, is_night))
        for name in names
        if not name.startswith(_ELSEWHERE)
    ]
    return sorted(found, key=lambda d: not d.deciding)


def _decides(name: str, is_night: bool) -> bool:
    """The two builds of `nightly` are the engines of a night, and nothing in any other run."""
    part, _, key = name.partition(".")
    of_builds = part == "nightly" and key.startswith(("reference.", "candidate.")) and not key.endswith(".name")
    return part in _DECIDING or (is_night and of_builds)


_NONE = object()


def _flat(scenario: Mapping[str, Any]) -> dict[str, str]:
    parts = {name: value for name, value in scenario.items() if name != "workloads"}
    flat = dict(_leaves(parts, ""))
    for workload in scenario.get("workloads") or ():
        flat |= dict(_leaves(workload_definition(workload), f"workloads.{workload.get('name')}."))
    return flat


def _leaves(tree: Mapping[str, Any], prefix: str) -> Iterable[tuple[str, str]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{name}.")
        elif value not in (None, "", [], {}):
            yield f"{prefix}{name}", value if isinstance(value, str) else json.dumps(value)


def workload_definition(workload: Mapping[str, Any]) -> dict[str, Any]:
    """All that decides what is sent but how much at a time; its name and its limits decide nothing."""
    return {name: value for name, value in workload.items() if name not in (*_LEVELS, "name", "slo")}


def workload_pairs(
    first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]
) -> tuple[dict[str, str], list[str]]:
    """(name in the first -> name in the second, why others are not compared). By what is sent, first under one name."""
    pairs, reasons = {}, []
    by_name = {w["name"]: w for w in second}
    free = dict(by_name)
    for workload in first:
        same = free.get(workload["name"])
        if same is not None and workload_definition(same) == workload_definition(workload):
            pairs[workload["name"]] = same["name"]
            del free[same["name"]]
    for workload in first:
        name = workload["name"]
        if name in pairs:
            continue
        alike = next((w for w in free.values() if workload_definition(w) == workload_definition(workload)), None)
        if alike is not None:
            pairs[name] = alike["name"]
            del free[alike["name"]]
        elif name in by_name:
            keys = _other_keys(workload, by_name[name])
            reasons.append(f"workload {name} is not the same in both: {keys}; its points are not compared")
    return pairs, reasons


def _other_keys(first: Mapping[str, Any], second: Mapping[str, Any]) -> str:
    a, b = workload_definition(first), workload_definition(second)
    return ", ".join(f"{n} {a.get(n)} / {b.get(n)}" for n in dict.fromkeys([*a, *b]) if a.get(n) != b.get(n))
