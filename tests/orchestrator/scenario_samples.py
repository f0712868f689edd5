"""Small scenarios for tests."""

from __future__ import annotations

from typing import Any

from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import scenario_from_tree
from orchestrator.scenarios.yaml_tree import YamlTree

MINIMAL = """\
name: small
model:
  path: org/model
  bundled_draft: true
engine:
  kind: emulator
  settings:
    speculative_algorithm: NEXTN
sweep:
  axes:
    speculative_num_steps: [0, 1, 2]
slots:
  gpus: 1
  emulated_gpus: 2
workloads:
  - name: chat
    concurrency: [1, 4]
measure:
  duration_s: 5
objectives:
  - name: fast
    maximize: output_throughput_tok_s
    at: {concurrency: 1}
"""


def small_scenario(**changes: Any) -> Scenario:
    """The minimal scenario with top-level parts replaced."""
    tree: dict[str, Any] = {
        "name": "small",
        "model": {"path": "org/model", "bundled_draft": True},
        "engine": {"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}},
        "sweep": {"axes": {"speculative_num_steps": [0, 1, 2]}},
        "slots": {"gpus": 1, "emulated_gpus": 2},
        "workloads": [{"name": "chat", "concurrency": [1, 4]}],
        "measure": {"duration_s": 5},
        "objectives": [{"name": "fast", "maximize": "output_throughput_tok_s", "at": {"concurrency": 1}}],
    }
    return scenario_from_tree(YamlTree("test.yaml", {**tree, **changes}))
