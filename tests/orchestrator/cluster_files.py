"""A cluster file for tests, and what is found in it after a change."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

from orchestrator.clusters.cluster_check import check_cluster
from orchestrator.clusters.cluster_file import read_cluster
from orchestrator.clusters.cluster_finding import Finding
from orchestrator.clusters.cluster_template import ClusterPlan, cluster_text
from orchestrator.scenarios.yaml_tree import parse_yaml

ROOT = Path(__file__).resolve().parent.parent.parent
RAY = "2.60.0"
PLAN = ClusterPlan(
    "10.0.0.1", ["10.0.0.2", "10.0.0.3"], "ray", "python3.11", {"ray[default]": RAY, "aiohttp": "3.14.5"}
)
GOOD = cluster_text(PLAN)


def pinned() -> dict[str, str]:
    """What Specsweep needs, with the versions of constraints.txt."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    pins = dict(re.findall(r"^(\S+)==(\S+)$", (ROOT / "constraints.txt").read_text().lower(), re.MULTILINE))
    names = [match[0] for word in needed if (match := re.match(r"[\w.-]+(\[\w+\])?", word))]
    return {name: pins[name.partition("[")[0]] for name in names}


def changed(old: str, new: str, count: int = -1) -> str:
    """GOOD with another text at a place that is there."""
    assert old in GOOD
    return GOOD.replace(old, new, count)


def found_in(text: str) -> list[Finding]:
    """Faults of the keys, or else what a benchmark lacks."""
    tree = parse_yaml(text.encode(), "c.yaml", "cluster file")
    cluster = read_cluster(tree)
    return cluster if isinstance(cluster, list) else check_cluster(cluster, tree, (3, 11), RAY)


def told(text: str) -> list[str]:
    """The same as a user reads it."""
    return [finding.told("c.yaml") for finding in found_in(text)]
