"""What telemetry costs: a slot's host per sample, the driver per sample stored, a report of a whole run.

    python -m benchmarks.telemetry_cost [--trials 500] [--seconds 600] [--gpus 8]

The server is an emulated one in a process of its own. NVML is not asked: its calls take the driver of the GPUs, not us.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from actors.gpus.gpu_sample import SlotGpuLook
from actors.samples.slot_telemetry import SlotTelemetry, Watched
from actors.servers.endpoint import Endpoint
from actors.servers.launch import free_port
from benchmarks.rank_speed import say
from orchestrator.paths import RunPaths
from orchestrator.reports.telemetry_series import telemetry_of
from orchestrator.run_files.run_telemetry import RunTelemetry
from orchestrator.telemetry import GpuSample, Sample, ServerSample


def sample(at_s: float, gpus: int) -> Sample:
    """Plausible values that change, as compression has to meet them."""
    wave = math.sin(at_s / 7)
    of_gpus = tuple(
        GpuSample(str(i), round(70.5 + i / 8 + wave / 50, 3), 79.647, round(520 + 130 * wave + i, 1), 700.0,
                  1755 - 15 * (int(at_s) % 4), 58 + int(4 * wave), 95 + int(4 * wave), ("power_cap",), 0)
        for i in range(gpus)
    )  # fmt: skip
    server = ServerSample(
        31 + int(wave), 2, 0, 45_000 + int(900 * wave), round(0.4 + wave / 20, 3), round(2100 + 95 * wave, 2), 0.12,
        round(2.6 + wave / 10, 4), 22, 61.2, round(9 + wave, 3),
    )  # fmt: skip
    return Sample(at_s, 1.8e9 + at_s, at_s - 2, server, of_gpus)


def host_cost(count: int = 300) -> None:
    """CPU time of a sample on the slot's host, in our process and in the server's."""
    port = free_port(60)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "actors.emulator", "--model-path", "org/model", "--port", str(port)]
    server = subprocess.Popen(
        [*command, "--emulator-start-speedup", "300"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while True:
            try:
                urllib.request.urlopen(f"{url}/health", timeout=1).read()
                break
            except OSError:
                time.sleep(0.1)
        watched = Watched(server.pid, 1.0, is_ready=True, endpoint=Endpoint(url))
        telemetry = SlotTelemetry(SlotGpuLook(()), lambda: watched, 1.0, time.monotonic())

        async def look() -> None:
            for _ in range(count):
                await telemetry.sample()

        before, began = _cpu_s(server.pid), time.process_time()
        asyncio.run(look())
        own_ms = (time.process_time() - began) / count * 1e3
        served_ms = (_cpu_s(server.pid) - before) / count * 1e3
        taken = telemetry.after(0).samples
        assert all(one.server.running_requests == 0 for one in taken)
        say(f"host: {own_ms:.2f} ms CPU a sample in the slot, {served_ms:.2f} ms in an emulated server")
    finally:
        server.terminate()
        server.wait()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def run_cost(root: Path, trials: int, seconds: int, gpus: int) -> None:
    """CPU time of the driver, size of the tables, time of a report."""
    paths = RunPaths(root)
    telemetry = RunTelemetry(paths, {"run_id": "run-123456", "engine": "sglang"})
    samples = [sample(float(at), gpus) for at in range(seconds)]
    began = time.process_time()
    for number in range(trials):
        ids = {"trial_id": f"{number:012x}-r0", "config_id": f"{number:012x}", "attempt": 1}
        for first in range(0, seconds, 2):
            telemetry.append({**ids, "slot": "gpu-host-1/0", "host": "gpu-host-1"}, samples[first : first + 2])
        telemetry.end(f"{number:012x}-r0", 1)
    per_sample_ms = (time.process_time() - began) / (trials * seconds) * 1e3
    sizes = {t: sum(f.stat().st_size for f in paths.table(t).iterdir()) for t in ("telemetry_gpu", "telemetry_server")}
    began = time.process_time()
    found = telemetry_of(root)
    read_s = time.process_time() - began
    buckets = sum(len(series.buckets) for one in found.values() for series in one.series)
    told = {table: f"{size / 2**20:.1f} MiB" for table, size in sizes.items()}
    say(f"driver: {per_sample_ms:.3f} ms CPU a sample of {gpus} GPUs, fetched every 2 s and stored")
    say(f"run of {trials} trials x {seconds} s x {gpus} GPUs: {json.dumps(told)}")
    say(f"report: {read_s:.1f} s CPU for {buckets} buckets of {len(found)} trials")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=500)
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--gpus", type=int, default=8)
    asked = parser.parse_args()
    host_cost()
    with tempfile.TemporaryDirectory() as folder:
        run_cost(Path(folder), asked.trials, asked.seconds, asked.gpus)


if __name__ == "__main__":
    main()
