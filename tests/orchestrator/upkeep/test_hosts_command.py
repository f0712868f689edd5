"""`specsweep hosts` on scripted hosts."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from actors.host.host_report import host_report
from orchestrator.errors import BadInput
from orchestrator.hosts.host_match import HostFacts
from orchestrator.upkeep.host_survey import clock_off
from orchestrator.upkeep.hosts_command import show_hosts
from tests.orchestrator.cluster_files import ROOT
from tests.orchestrator.upkeep.test_host_warnings import GOOD, HEAD

ACCELERATOR = {"ray.io/accelerator-type": "B200"}
HOSTS = [
    HostFacts("n0", "10.0.0.1", "h0", 0, 8.0, 32.0, {"role": "head"}),
    HostFacts("n1", "10.0.0.2", "h1", 8, 64.0, 900.0, {"role": "gpu", **ACCELERATOR}),
    HostFacts("n2", "10.0.0.3", "h2", 8, 64.0, 900.0, {"role": "gpu", **ACCELERATOR}),
]
REPORTS: dict[str, Any] = {"h0": HEAD, "h1": GOOD, "h2": replace(GOOD, model_present=False)}


class ScriptedCluster:
    """Answers for its hosts; an exception is what a host that does not answer leaves."""

    def __init__(self, reports: dict[str, Any]) -> None:
        self.reports = reports

    def ask_each(self, task: Callable[..., Any], *_: Any, nodes: set[str] | None = None) -> list[tuple[HostFacts, Any]]:
        asked = [host for host in HOSTS if nodes is None or host.node_id in nodes]
        return [(host, self.reports[host.hostname] if task is host_report else task()) for host in asked]

    def gpu_states(self, _: HostFacts) -> list[dict[str, Any]]:
        holder = {
            "pid": 7, "user": "bob", "gib": 60.0, "gpus": [0], "command": "serve.py", "unit": "s.service",
            "stop": "systemctl stop s.service", "restart": "always", "permitted": True, "run_id": None,
        }  # fmt: skip
        return [{"index": 0, "name": "NVIDIA B200", "used_gib": 90.5, "total_gib": 180.0, "holders": [holder],
                 "hidden_gib": 30.5, "where_to_look": "look on the container host"}]  # fmt: skip

    def close(self) -> None:
        pass


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    def show(
        *,
        reports: dict[str, Any] = REPORTS,
        scenario: Path | None = None,
        as_json: bool = False,
        overrides: tuple[str, ...] = (),
    ) -> str:
        monkeypatch.setattr("orchestrator.upkeep.hosts_command.connect", lambda *_: ScriptedCluster(reports))
        said = io.StringIO()
        show_hosts(
            "10.0.0.1:6379", scenario, overrides=overrides, as_json=as_json, console=Console(file=said, width=200)
        )
        return said.getvalue()

    return show


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "s.yaml"
    text = (ROOT / "scenarios/quickstart.yaml").read_text(encoding="utf-8")
    for old, new in (
        ("name: quickstart", "name: two-gpus"),
        ("example/small-model", "/models/x"),
        ("  gpus: 1\n  emulated_gpus: 2      # emulator only", "  gpus: 2\n  labels: {role: gpu}"),
        ("    speculative_algorithm: NEXTN\n", "    speculative_algorithm: NEXTN\n    tp_size: 2\n"),
    ):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return path


def test_hosts_are_listed_with_class_accelerator_software_and_labels(told: Callable[..., str]) -> None:
    lines = told().splitlines()

    assert lines[0].split() == [
        "host", "address", "class", "GPUs", "accelerator", "CPUs", "memory", "GiB", "driver", "SGLang", "labels"
    ]  # fmt: skip
    h1 = next(line for line in lines if line.startswith("h1 "))
    for cell in ("10.0.0.2", "8x NVIDIA B200 180 GiB", "B200", "2048", "580.95.05", "0.5.21", "role=gpu"):
        assert cell in h1


def test_who_holds_a_gpu_is_told_and_what_nobody_that_can_be_seen_explains(told: Callable[..., str]) -> None:
    said = [line for line in told().splitlines() if line.startswith("h1:")]

    assert said == [
        "h1: GPU 0 NVIDIA B200: 90.5 of 180.0 GiB used",
        "h1:   GPU 0: pid 7 of bob, 60.0 GiB: serve.py [s.service, Restart=always; stop it with: systemctl stop "
        "s.service]",
        "h1:   30.5 GiB held by no process that can be seen: look on the container host",
        "h1:     s.service restarts it (Restart=always), also in the middle of a run: systemctl stop s.service, before "
        "a run on this GPU",
    ]


def test_a_scenario_shows_its_slots_and_where_its_model_is_missing(told: Callable[..., str], scenario: Path) -> None:
    said = told(scenario=scenario)

    assert "two-gpus: 8 slots on 2 hosts" in said
    assert "warning: h2: the model /models/x is not there. Copy it there" in said
    assert [line.split()[-2:] for line in said.splitlines()[1:4]] == [
        ["known", "0"],
        ["present", "4"],
        ["missing", "4"],
    ]


def test_a_scenario_that_does_not_fit_is_told_with_what_it_wants(told: Callable[..., str], scenario: Path) -> None:
    scenario.write_text(scenario.read_text().replace("gpus: 2", "gpus: 16").replace("tp_size: 2", "tp_size: 16"))

    assert "Wanted: at least one slot of 16 GPUs on hosts with role=gpu. Available: 0 slots." in told(scenario=scenario)


def test_a_host_that_does_not_answer_is_told_and_the_others_are_shown(told: Callable[..., str]) -> None:
    said = told(reports={**REPORTS, "h2": TimeoutError("h2 is gone")})

    assert "h2 does not answer: h2 is gone" in said
    assert "8x NVIDIA B200 180 GiB" in said


def test_machines_get_hosts_reports_and_warnings(told: Callable[..., str], scenario: Path) -> None:
    got = json.loads(told(scenario=scenario, as_json=True))

    assert [(host["hostname"], host["slots"], host["host_class"]) for host in got["hosts"]] == [
        ("h0", 0, "192x AMD EPYC 9655"),
        ("h1", 4, "8x NVIDIA B200 180 GiB"),
        ("h2", 4, "8x NVIDIA B200 180 GiB"),
    ]
    assert got["hosts"][1]["report"]["driver_version"] == "580.95.05"
    assert [(w["hosts"], w["what"]) for w in got["warnings"]] == [(["h2"], "the model /models/x is not there")]
    assert got["scenario"] == {"name": "two-gpus", "total": 8, "slots": {"n1": 4, "n2": 4}, "refusal": None}


def clock(*moments: float) -> Callable[[], float]:
    ticking: Iterator[float] = iter(moments)
    return lambda: next(ticking)


def test_a_clock_is_compared_with_the_middle_of_question_and_answer() -> None:
    assert clock_off(lambda: 105.0, clock(100.0, 101.0), rounds=1) == (4.5, 0.5)


def test_the_quickest_answer_counts() -> None:
    assert clock_off(clock(110.0, 210.25, 310.0), clock(100.0, 108.0, 200.0, 200.5, 300.0, 304.0)) == (10.0, 0.25)


def test_a_host_without_an_answer_has_no_clock() -> None:
    assert clock_off(lambda: None, clock(*range(6))) == (None, 0.0)


def test_a_slot_over_two_hosts_is_one_slot_and_is_shown_at_both(told: Callable[..., str], scenario: Path) -> None:
    over_two = ("slots.nnodes=2", "slots.gpus=8", "engine.settings.tp_size=16")
    said = told(scenario=scenario, overrides=over_two)
    fits = json.loads(told(scenario=scenario, overrides=over_two, as_json=True))["scenario"]

    assert "two-gpus: 1 slot on 2 hosts" in said
    assert (fits["total"], fits["slots"]) == (1, {"n1": 1, "n2": 1})


def test_an_override_without_a_scenario_is_refused(told: Callable[..., str]) -> None:
    with pytest.raises(BadInput, match="--set changes a scenario"):
        told(overrides=("slots.gpus=1",))
