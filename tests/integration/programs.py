"""Running specsweep as a user does, and looking for what it leaves behind."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from actors.gpus.gpu_ledger import GpuLedger
from benchmarks.host_rig import HostRig
from benchmarks.kill_rig import KillRig
from benchmarks.rig_network import why_impossible
from orchestrator.run_files.journal import read_events

ROOT = Path(__file__).resolve().parent.parent.parent

QUICK = """\
name: quick
model: {path: example/small-model, bundled_draft: true}
engine:
  kind: emulator
  start_speedup: 100
  settings: {speculative_algorithm: NEXTN, max_running_requests: 16}
sweep:
  axes: {speculative_num_steps: [0, 1, 2, 3]}
slots: {gpus: 1, emulated_gpus: 2}
workloads:
  - {name: chat, input_tokens: 32, output_tokens: 32, concurrency: [1, 4]}
measure: {warmup_s: 0.2, duration_s: 1}
objectives:
  - {name: fast, maximize: output_throughput_tok_s, at: {concurrency: 1}}
"""

# A server falls silent inside its second point until the file `go` is there, beside the script. By `IN_STEPS` a point
# has one request to warm up and eight that count; before all is the one by which the lengths of prompts are found.
HELD = "serving: {fault: stall, request: 17, until: go%s}\n"
IN_STEPS = "measure: {warmup_s: 0, requests: 8}\n"


def held(folder: Path, text: str, when: str = "") -> Path:
    """A scenario whose servers are held (those of which `when` is true), in a file."""
    (folder / "held.yaml").write_text(HELD % (f", when: {when}" if when else ""))
    engine = f"  faults: {folder / 'held.yaml'}\n  start_speedup"
    steps = "".join(IN_STEPS if line.startswith("measure: ") else line for line in text.splitlines(keepends=True))
    file = folder / "scenario.yaml"
    file.write_text(steps.replace("  start_speedup", engine) + "timeouts: {silent_s: 900}\n")
    return file


def let_go(folder: Path) -> None:
    """What is held goes on."""
    (folder / "go").touch()


def at_work(root: Path) -> list[Path]:
    """Points of which records have come, and which are not measured yet."""
    return list((root / "stream").glob("*.arrows"))


_started: list[subprocess.Popen[str]] = []


def start(*arguments: str, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
    """`python -m orchestrator ...` in the background, output captured. It lives no longer than its test."""
    program = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", *arguments],
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    _started.append(program)
    return program


def end_started(patience_s: float = 60) -> None:
    """What a test that failed has left running ends, in order if it can: its load would fail the tests that follow."""
    left = [program for program in _started if program.poll() is None]
    _started.clear()
    for program in left:
        program.terminate()
    for program in left:
        try:
            program.communicate(timeout=patience_s)
        except subprocess.TimeoutExpired:
            program.kill()
            program.wait()


def run(*arguments: str, timeout_s: float = 300) -> subprocess.CompletedProcess[str]:
    """`python -m orchestrator ...` to its end."""
    return subprocess.run(
        [sys.executable, "-m", "orchestrator", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=timeout_s,
        check=False,
    )


def marked_processes(run_id: str) -> list[str]:
    """Command lines of living processes that carry the mark of a run, which is named after its directory."""
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208 - names are all that is wanted
        if not entry.isdigit():
            continue
        try:
            environ = Path(f"/proc/{entry}/environ").read_bytes().split(b"\0")
            command = Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        marks = [e for e in environ if e.startswith(f"SPECSWEEP_RUN_ID={run_id}-".encode())]
        if marks and command:
            found.append(f"{entry} {command}")
    return found


def wait_until(
    condition: Callable[[], object], what: str, timeout_s: float = 300, of: subprocess.Popen[str] | None = None
) -> None:
    """Poll until a condition holds; AssertionError naming it if it never does. `of`: who is to bring it about; what it
    said is told where it has ended without.
    """
    deadline = time.monotonic() + timeout_s
    while not condition():
        if of is not None and of.poll() is not None and not condition():
            raise AssertionError(f"ended with {of.returncode} before {what}: {of.communicate()}")
        assert time.monotonic() < deadline, f"not within {timeout_s} s: {what}"
        time.sleep(0.02)


def events(root: Path, kind: str) -> list[dict[str, Any]]:
    """What the journal of a run holds of one kind."""
    return [e for e in read_events(root / "journal.jsonl") if e["event"] == kind]


def assert_whole(root: Path) -> None:
    """QUICK was measured whole: 4 configs x 2 levels, each point once, each request once; all four are ranked."""
    assert_each_once(root, 8)
    ranked = json.loads((root / "ranking.json").read_text())
    assert len(ranked["objectives"]["fast"]["ranking"]) == 4


def assert_each_once(root: Path, points: int) -> None:
    """So many points were measured, each once with each of its requests once, and the journal has the same ones."""
    rows = ds.dataset(root / "dataset/requests").to_table(columns=["point_id", "warmup", "request_index"]).to_pylist()
    keys = {(r["point_id"], r["warmup"], r["request_index"]) for r in rows}
    assert len({r["point_id"] for r in rows}) == points
    assert len(keys) == len(rows)
    assert sorted(e["point_id"] for e in events(root, "point_done")) == sorted({r["point_id"] for r in rows})


@contextlib.contextmanager
def started_rig(folder: Path, ledger: GpuLedger, *, with_jobs: bool) -> Iterator[KillRig]:
    """A head and a node with two GPUs of the ledger, up."""
    rig = KillRig(folder, 2, ledger.folder, with_jobs=with_jobs)
    try:
        rig.start()
        yield rig
    finally:
        rig.end()


@contextlib.contextmanager
def started_hosts(gpus: Sequence[int], *, with_jobs: bool = False) -> Iterator[HostRig]:
    """Hosts with so many GPUs each, the head first, in namespaces of their own; skips the test where none can be."""
    why = why_impossible()
    if why is not None:
        pytest.skip(why)
    rig = HostRig(gpus, with_jobs=with_jobs)
    try:
        rig.start()
        yield rig
    finally:
        rig.end()
