"""Kill anything of a running sweep at random moments, and count what is left of it 15 s later.

    python -m benchmarks.random_kills --kills 200 [--engine emulator|sglang] [--seed N]

Each run is killed in several places, one after the other. Kinds that a run survives (a scheduler child, the server,
its guard, a slot actor): within the limit every process of that server must be gone, and the memory that it held on the
emulated GPUs. Kinds that end it (the driver, Ctrl-C, `ray job stop`, the raylet): within the limit there must be no
process with the run's mark at all, and nothing in the ledger. Prints a table, and exits with 1 if anything was left.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil

from actors.gpus.gpu_ledger import GpuLedger
from benchmarks.kill_rig import KillRig, ServerTree, alive, marked, server_trees, told, unguarded

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 15.0
# Nothing may come up again either: gone means not seen for so long.
QUIET_S = 2.0
SURVIVED = ("scheduler child -9", "server -9", "guard -9", "slot actor -9")
ENDING = ("driver -9", "Ctrl-C", "ray job stop", "raylet -9")
# A run gets this many kills that it survives before the one that ends it.
KILLS_A_RUN = 5
GPUS = 3
# A kill comes within this time after a server is there: while it starts, or a little after.
MOMENT_S = {"emulator": 4.0, "sglang": 45.0}
SERVER_UP_S = {"emulator": 60.0, "sglang": 300.0}

EMULATED = """\
name: random-kills
model: {{path: example/small-model, bundled_draft: true}}
engine:
  kind: emulator
  start_speedup: 20
  settings: {{speculative_algorithm: NEXTN, max_running_requests: 16}}
sweep:
  axes: {{speculative_num_steps: [0, 1, 2, 3]}}
slots: {{gpus: 1, count: {slots}, labels: {{role: victim}}}}
workloads:
  - {{name: chat, input_tokens: 32, output_tokens: 32, concurrency: [1, 4]}}
measure: {{warmup_s: 0.5, duration_s: 3, repeats: 10}}
timeouts: {{cluster_s: 20}}  # so long a run waits for a host that may come back
objectives:
  - {{name: fast, maximize: output_throughput_tok_s, at: {{concurrency: 1}}}}
"""


@dataclass(frozen=True)
class Kill:
    """One kill: what was killed, how many processes it concerned, seconds until they were gone, what was left."""

    kind: str
    engine: str
    processes: int
    seconds: float
    left: tuple[str, ...]


@dataclass
class Victim:
    """A run on the rig: its driver, or the job that holds it."""

    run_id: str
    driver: subprocess.Popen[bytes] | None
    job: str | None


class Killer:
    """Starts runs on the rig and kills them until there were enough kills. `haste`: how much sooner than usual a kill
    comes after the one before. `limit_s`: what is there after so long is left.
    """

    def __init__(
        self, rig: KillRig, folder: Path, engine: str, seed: int, ledger: GpuLedger, *, haste: float = 1.0,
        limit_s: float = LIMIT_S,
    ) -> None:  # fmt: skip
        self._endings: tuple[str, ...] = ENDING
        self._limit_s = limit_s
        self._rig, self._folder, self._engine, self._ledger = rig, folder, engine, ledger
        self._rng, self._haste = random.Random(seed), haste
        self._runs = 0
        self.kills: list[Kill] = []

    def run(self, kills: int, kills_a_run: int = KILLS_A_RUN) -> None:
        """Runs with kills in them, each kind about as often as the others."""
        while len(self.kills) < kills:
            self._runs += 1
            ending = self._endings[self._runs % len(self._endings)]
            victim = self._start(ending)
            try:
                self._kill_inside(victim, min(kills_a_run - 1, kills - len(self.kills) - 1))
                self._kill_all(victim, ending)
            finally:
                self._let_go(victim, waits=ending != "raylet -9")
            self._rig.revive()

    def _start(self, ending: str) -> Victim:
        run_id = f"kills-{self._engine}-{os.getpid()}-{self._runs}"
        words = [sys.executable, "-m", "orchestrator", "run", str(self._scenario()), "--address", self._rig.address]
        words += ["--run-dir", str(self._folder / run_id)]
        if ending == "ray job stop":
            from ray.job_submission import JobSubmissionClient

            line = f"cd {ROOT} && exec {' '.join(words)}"
            environment = {"env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": "60"}}
            client = JobSubmissionClient(self._rig.jobs)
            return Victim(run_id, None, client.submit_job(entrypoint=line, runtime_env=environment))
        with (self._folder / f"{run_id}.log").open("wb") as log:
            driver = subprocess.Popen(words, cwd=ROOT, stdout=log, stderr=log, start_new_session=True)
        return Victim(run_id, driver, None)

    def _scenario(self) -> Path:
        path = self._folder / f"{self._engine}.yaml"
        text = EMULATED.format(slots=self._rig.gpus) if self._engine == "emulator" else real_scenario()
        path.write_text(text, encoding="utf-8")
        return path

    def _kill_inside(self, victim: Victim, count: int) -> None:
        """Kills that the run survives; a slot actor at most twice, since its slot is lost with it."""
        slots_left = self._rig.gpus if self._engine == "emulator" else 1
        for _ in range(count):
            kinds = [k for k in SURVIVED if k != "slot actor -9" or slots_left > 1]
            fewest = min(sum(x.kind == k for x in self.kills) for k in kinds)
            kind = self._rng.choice([k for k in kinds if sum(x.kind == k for x in self.kills) <= fewest + 1])
            trees = self._servers(victim)
            if not trees:
                return
            time.sleep(self._rng.uniform(0.0, MOMENT_S[self._engine]) / self._haste)
            if self._kill_one(victim, kind):
                slots_left -= kind == "slot actor -9"

    def _servers(self, victim: Victim) -> list[ServerTree]:
        """The servers of the run as soon as there are any; none if the run ended before."""
        deadline = time.monotonic() + SERVER_UP_S[self._engine]
        while time.monotonic() < deadline:
            if trees := server_trees(victim.run_id):
                return trees
            if victim.driver is not None and victim.driver.poll() is not None:
                return []
            time.sleep(0.1)
        return []

    def _kill_one(self, victim: Victim, kind: str) -> bool:
        """One kill in a server that is up; False if there was nothing of the kind at that moment."""
        trees = server_trees(victim.run_id)
        self._rng.shuffle(trees)
        for tree in trees:
            if kind == "scheduler child -9":
                target = self._rng.choice(tree.schedulers) if tree.schedulers else None
            elif kind == "slot actor -9":
                target = self._rig.slot_actor_of(tree)
            else:
                target = tree.guard if kind == "guard -9" else tree.server
            if target is not None and alive(target):
                target.kill()
                pids = [p.pid for p in tree.members]
                self._judge(kind, len(pids), partial(_rest_of, tree, victim.run_id), pids)
                return True
        return False

    def _kill_all(self, victim: Victim, ending: str) -> None:
        """The kill that ends the run, at any moment of it, also while it connects."""
        time.sleep(self._rng.uniform(0.0, 6.0) / self._haste)
        processes = marked(victim.run_id)
        if ending == "raylet -9":
            self._rig.raylet().kill()
        elif ending == "ray job stop":
            from ray.job_submission import JobSubmissionClient

            JobSubmissionClient(self._rig.jobs).stop_job(victim.job or "")
        elif victim.driver is not None:
            victim.driver.send_signal(signal.SIGINT if ending == "Ctrl-C" else signal.SIGKILL)
        self._judge(ending, len(processes), lambda: marked(victim.run_id), None)

    def _judge(
        self, kind: str, count: int, left: Callable[[], Sequence[psutil.Process]], pids: list[int] | None
    ) -> None:
        """Wait until all is gone, at most until the limit, and write down what is left then."""
        began = time.monotonic()
        last_seen_s, quiet_s = 0.0, 0.0
        still: list[str] = []
        while last_seen_s < self._limit_s and quiet_s < QUIET_S:
            still = [*map(told, left()), *self._held(pids)]
            now_s = time.monotonic() - began
            last_seen_s = now_s if still else last_seen_s
            quiet_s = now_s - last_seen_s
            time.sleep(0.05)
        self.kills.append(Kill(kind, self._engine, count, last_seen_s, tuple(still)))
        line = f"{len(self.kills):4d} {kind:20s} {count:3d} processes, gone after {self.kills[-1].seconds:5.2f} s"
        print(line, *still, flush=True)  # noqa: T201

    def _held(self, pids: list[int] | None) -> list[str]:
        """What the emulated GPUs still count as held, by these processes or by any."""
        return [
            f"GPU {gpu.index}: {gpu.used_gib:.1f} GiB held"
            for gpu in self._ledger.gpus()
            if (gpu.used_gib if pids is None else sum(gpu.holders.get(pid, 0.0) for pid in pids)) > 0
        ]

    def _let_go(self, victim: Victim, *, waits: bool) -> None:
        """The run is over, one way or the other; whoever survived our limit is counted already and goes now. A driver
        that only waits for another host need not be waited for.
        """
        if victim.driver is not None and victim.driver.poll() is None:
            try:
                victim.driver.wait(60 if waits else 0)
            except subprocess.TimeoutExpired:
                victim.driver.kill()
        for process in marked(victim.run_id):
            process.kill()


def _rest_of(tree: ServerTree, run_id: str) -> list[psutil.Process]:
    """What still lives of a server, and what of its run has no guard any more."""
    return [*tree.left(), *unguarded(run_id)]


def real_scenario() -> str:
    """The scenario of the real SGLang on CPU, on the node of the rig, with trials enough."""
    text = (ROOT / "scenarios/real-sglang-cpu.yaml").read_text(encoding="utf-8")
    text = text.replace("  per_host: 1\n", "  per_host: 1\n  labels: {role: victim}\n")
    return text.replace("  duration_s: 15\n", "  duration_s: 15\n  repeats: 5\n").replace(
        ".sglang-cpu", f"{ROOT}/.sglang-cpu"
    )


def table(kills: list[Kill]) -> str:
    """One row a kind: how often, how many processes it concerned, seconds until they were gone, what was left."""
    lines = [
        "| engine | killed | kills | processes | median s | worst s | left behind |",
        "|---|---|---|---|---|---|---|",
    ]
    for engine in sorted({k.engine for k in kills}):
        for kind in (*SURVIVED, *ENDING):
            of_kind = [k for k in kills if (k.engine, k.kind) == (engine, kind)]
            if of_kind:
                seconds = [k.seconds for k in of_kind]
                lines.append(
                    f"| {engine} | {kind} | {len(of_kind)} | {sum(k.processes for k in of_kind)} | "
                    f"{statistics.median(seconds):.2f} | {max(seconds):.2f} | {sum(bool(k.left) for k in of_kind)} |"
                )
    return "\n".join(lines)


def main() -> None:
    """Kill, print the table, exit with 1 if anything was left."""
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--kills", type=int, default=200)
    arguments.add_argument("--engine", choices=("emulator", "sglang"), default="emulator")
    arguments.add_argument("--seed", type=int, default=1)
    arguments.add_argument("--json", type=Path, help="append the kills, one JSON line each")
    asked = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="specsweep-kills-") as name:
        folder = Path(name)
        ledger = GpuLedger.create(folder / "ledger", [96.0] * GPUS)
        rig = KillRig(folder, GPUS, ledger.folder)
        killer = Killer(rig, folder, asked.engine, asked.seed, ledger)
        try:
            rig.start()
            killer.run(asked.kills)
        finally:
            rig.end()
    if asked.json:
        with asked.json.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(vars(k)) + "\n" for k in killer.kills)
    print(table(killer.kills))  # noqa: T201
    sys.exit(1 if any(k.left for k in killer.kills) else 0)


if __name__ == "__main__":
    main()
