"""One server over two hosts of a real cluster: measured, and dead with any of its ranks; nothing is left on either."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest
import yaml

from benchmarks.host_rig import HostRig
from benchmarks.kill_rig import title
from orchestrator.diagnosing.log_diagnosis import diagnose_log
from orchestrator.outcome import Label
from tests.integration.programs import QUICK, at_work, held, started_hosts, wait_until

pytestmark = pytest.mark.timeout(900)


def scenario(folder: Path) -> Path:
    """The server of one of two configs is held inside its point, for ever."""
    told: dict[str, Any] = yaml.safe_load(held(folder, QUICK, "{node_rank: 0, mem_fraction_static: 0.7}").read_text())
    del told["engine"]["settings"]
    told["sweep"] = {"axes": {"mem_fraction_static": [0.8, 0.7]}}
    told["slots"] = {"gpus": 1, "nnodes": 2}
    told["workloads"] = [{"name": "chat", "input_tokens": 32, "output_tokens": 32, "concurrency": [1]}]
    told["measure"] = {"warmup_s": 0, "requests": 20}
    told["recovery"] = {"mode": "off"}
    (folder / "span.yaml").write_text(yaml.safe_dump(told))
    return folder / "span.yaml"


def fated_is_loaded(rig: HostRig, root: Path) -> bool:
    """Whether records have come of the point in which the server of one config is held."""
    fated = [p for p in rig.hosts[1].processes() if "--mem-fraction-static 0.7" in title(p)]
    return bool(fated and at_work(root))


def test_a_server_over_two_hosts_is_measured_and_one_whose_rank_is_killed_is_told_with_the_first_cause() -> None:
    with started_hosts([0, 1, 1]) as rig:
        root = rig.folder / "run"
        driver = rig.specsweep("run", str(scenario(rig.folder)), "--address", rig.address, "--run-dir", str(root))
        while driver.poll() is None:  # the trial is tried twice
            wait_until(lambda: fated_is_loaded(rig, root) or driver.poll() is not None, "the held server is loaded")
            for process in rig.hosts[2].processes():
                if "scheduler" in title(process):
                    process.kill()
        said, complained = driver.communicate(timeout=400)
        left = rig.marked()
        assert "on 1 slot;" in said, said + complained
        rows = {
            row["mem_fraction"]: row
            for row in (
                {**row, "mem_fraction": 0.8 if '"mem_fraction_static": 0.8' in row["settings_json"] else 0.7}
                for row in ds.dataset(root / "dataset/trials").to_table().to_pylist()
            )
        }
        assert rows[0.8]["outcome"] == "measured"
        assert (rows[0.8]["host"], rows[0.8]["slot"]) == ("h1+h2", "h1+h2/0")
        assert (rows[0.7]["outcome"], rows[0.7]["label"], rows[0.7]["phase"]) == ("failed", "host_oom", "serving")
        assert rows[0.7]["evidence"].startswith("rank 1 on h2: ")
        log = next((root / "logs").rglob(f"*{rows[0.7]['trial_id']}*/server.log.zst"))
        assert diagnose_log(log, exit_code=0).diagnosis.label is Label.HOST_OOM
        assert left == []
        assert [gpu.used_gib for host in rig.hosts[1:] if host.ledger for gpu in host.ledger.gpus()] == [0.0, 0.0]
