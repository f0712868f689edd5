"""One run on the rig of hosts, seen from outside: what it does on the host that is hit, and whether it was whole."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import psutil
import pyarrow.dataset as ds

from benchmarks.host_rig import HostRig
from benchmarks.rig_host import RigHost
from orchestrator.run_files.journal import read_events

SCENARIO = """\
name: losses
model: {path: example/small-model, bundled_draft: true}
engine:
  kind: emulator
  start_speedup: 50
  settings: {speculative_algorithm: NEXTN, max_running_requests: 16}
sweep:
  axes: {speculative_num_steps: [0, 1, 2, 3]}
slots: {gpus: 1, labels: {role: gpu}}
workloads:
  - {name: chat, input_tokens: 32, output_tokens: 32, concurrency: [1, 4]}
measure: {warmup_s: 0.2, duration_s: 3}
objectives:
  - {name: fast, maximize: output_throughput_tok_s, at: {concurrency: 1}}
"""
POINTS = 8


class Scene:
    """One run on the rig, and the host that is hit."""

    def __init__(self, rig: HostRig, victim: RigHost, scenario: Path, root: Path) -> None:
        self.rig, self.victim, self.root = rig, victim, root
        self._scenario = scenario
        self.others: list[subprocess.Popen[str]] = []
        self.driver = self.run()

    def run(self, *resume: str) -> subprocess.Popen[str]:
        words = resume or (str(self._scenario), "--run-dir", str(self.root))
        return self.rig.specsweep("run", *words, "--address", self.rig.address)

    def events(self, kind: str) -> list[dict[str, Any]]:
        return [e for e in read_events(self.root / "journal.jsonl") if e["event"] == kind]

    def trial_on_victim(self) -> dict[str, Any] | None:
        """The start on the victim whose server is ready and that has not ended."""
        ended = {(e["trial_id"], e["attempt"]) for e in self.events("trial_ended")}
        ready = {e["trial_id"] for e in self.events("server_ready")}
        for start in self.events("trial_started"):
            is_up = (start["trial_id"], start["attempt"]) not in ended and start["trial_id"] in ready
            if is_up and start["place"]["host"] == self.victim.name:
                return start
        return None

    def has_failed(self) -> bool:
        """Whether it is known that a trial was broken."""
        return any(e["outcome"] == "failed" for e in self.events("trial_ended"))

    def slot_actor(self) -> psutil.Process:
        return self.victim.actors("SlotActor")[0]

    def load_actor(self) -> psutil.Process:
        """The one that loads the victim's server: hosts for load are dealt to the slots in turn."""
        return self.rig.hosts[3].actors("LoadHost")[0]


def faults_of(scene: Scene) -> list[str]:
    """What a finished run lacks or has twice."""
    table = ds.dataset(scene.root / "dataset/requests").to_table(columns=["point_id", "warmup", "request_index"])
    rows = table.to_pylist()
    keys = {(r["point_id"], r["warmup"], r["request_index"]) for r in rows}
    points = {r["point_id"] for r in rows}
    done = [e["point_id"] for e in scene.events("point_done")]
    found = []
    if len(points) != POINTS:
        found.append(f"{len(points)} of {POINTS} points")
    if len(keys) != len(rows):
        found.append(f"{len(rows) - len(keys)} requests twice")
    if sorted(done) != sorted(points):
        found.append("the journal and the dataset differ")
    return found
