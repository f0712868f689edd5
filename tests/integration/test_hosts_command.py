"""`specsweep hosts` on an embedded cluster of one machine."""

from __future__ import annotations

import json

import pytest

from tests.integration.programs import run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(240)]


def test_hosts_lists_this_machine_with_its_resources_and_gpu_occupants() -> None:
    said = run("hosts", "--address", "local", "--json")

    assert said.returncode == 0, said.stderr
    told = json.loads(said.stdout)
    (host,) = told["hosts"]
    assert host["cpus"] >= 1
    assert host["memory_gib"] > 0
    assert host["gpu_states"] is None or all("holders" in gpu for gpu in host["gpu_states"])
    # How an embedded Ray is started is ours to say: it has a token, and servers run at the user's own priority.
    report = host["report"]
    assert (report["niceness"], report["oom_score_adj"]) == (0, 0)
    assert ["RAY_AUTH_MODE", "token"] in report["ray_settings"]
    assert ["RAY_worker_niceness", "0"] in report["gcs_settings"]
    assert report["dashboard_host"] is None
    assert not [w for w in told["warnings"] if "open" not in w["what"] and "GiB are free" not in w["what"]]


def test_a_wrong_address_is_bad_input() -> None:
    said = run("hosts", "--address", "somewhere")

    assert said.returncode == 2
    assert "--address somewhere: write auto, local or HOST:PORT" in said.stderr
