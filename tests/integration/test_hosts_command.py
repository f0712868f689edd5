"""`specsweep hosts` on an embedded cluster of one machine."""

from __future__ import annotations

import json

import pytest

from tests.integration.programs import run

pytestmark = [pytest.mark.ray, pytest.mark.timeout(120)]


def test_hosts_lists_this_machine_with_its_resources_and_gpu_occupants() -> None:
    said = run("hosts", "--address", "local", "--json")

    assert said.returncode == 0, said.stderr
    (host,) = json.loads(said.stdout)
    assert host["cpus"] >= 1
    assert host["memory_gib"] > 0
    assert host["gpu_states"] is None or all("processes" in gpu for gpu in host["gpu_states"])


def test_a_wrong_address_is_bad_input() -> None:
    said = run("hosts", "--address", "somewhere")

    assert said.returncode == 2
    assert "--address somewhere: write auto, local or HOST:PORT" in said.stderr
