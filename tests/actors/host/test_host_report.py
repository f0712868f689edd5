"""What a host tells of itself."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

from actors.gpus.gpu_ledger import LEDGER_VARIABLE, GpuLedger
from actors.host.host_report import cpu_model, engine_version, host_report, memory_gib, model_present

Ask = Callable[[Sequence[str], Mapping[str, str]], str | None]
OTHER_PYTHON = "/opt/sglang/bin/python3"


def test_this_host_is_told_as_a_value_that_travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    GpuLedger.create(tmp_path, [96.0, 96.0])
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path))
    monkeypatch.setenv("RAY_worker_niceness", "0")
    monkeypatch.delenv("RAY_RAYLET_PID", raising=False)

    report = host_report()

    assert pickle.loads(pickle.dumps(report)) == report
    assert report.host_class == "2x Emulated GPU 96 GiB"
    assert ("RAY_worker_niceness", "0") in report.ray_settings
    assert report.python_version == sys.version.split()[0]
    assert report.cpus > 0
    assert report.memory_gib > 0
    assert report.open_files > 0
    assert report.scratch_free_gib > 0


def test_a_host_without_gpus_is_of_the_class_of_its_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.host.host_report.gpu_places", lambda: None)
    monkeypatch.setattr("actors.host.host_report.cpu_model", lambda: "AMD EPYC 9655")

    report = host_report()

    assert report.host_class == f"{report.cpus}x AMD EPYC 9655"


def test_the_model_is_looked_for_where_this_host_has_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.host.host_report.socket.gethostname", lambda: "gpu-07")
    (tmp_path / "config.json").write_text("{}")

    assert host_report((), "/models/x", (("gpu-*", str(tmp_path)),)).model_present is True
    assert host_report((), "/models/x", (("cpu-*", str(tmp_path)),)).model_present is False


def test_a_model_is_present_if_its_folder_has_a_config_or_it_is_one_file(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "config.json").write_text("{}")
    (tmp_path / "torn").mkdir()
    (tmp_path / "model.gguf").write_text("")

    assert model_present(str(tmp_path / "whole")) is True
    assert model_present(str(tmp_path / "torn")) is False
    assert model_present(str(tmp_path / "model.gguf")) is True
    assert model_present(str(tmp_path / "absent")) is False
    assert model_present(None) is None


def test_a_hub_name_is_present_if_cached_and_else_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    snapshot = tmp_path / "models--Qwen--Qwen3-8B" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")

    assert model_present("Qwen/Qwen3-8B") is True
    assert model_present("Qwen/Qwen3-32B") is None


def answering(text: str | None, asked: list[Sequence[str]]) -> Ask:
    def ask(probe: Sequence[str], _: Mapping[str, str]) -> str | None:
        asked.append(probe)
        return text

    return ask


@pytest.mark.parametrize(("printed", "told"), [("0.5.21\n", "0.5.21"), ("warning: x\n0.5.9", "0.5.9"), (None, None)])
def test_the_interpreter_of_the_command_tells_its_sglang(printed: str | None, told: str | None) -> None:
    asked: list[Sequence[str]] = []

    found = engine_version((OTHER_PYTHON, "-m", "sglang.launch_server"), {}, answering(printed, asked))

    assert found == told
    assert [probe[:2] for probe in asked] == [(OTHER_PYTHON, "-c")]


def test_no_container_is_started_to_tell_a_version() -> None:
    asked: list[Sequence[str]] = []
    command = ("docker", "run", "--gpus", "all", "IMAGE", "python3", "-m", "sglang.launch_server")

    assert engine_version(command, {}, answering("0.5.21", asked)) is None
    assert asked == []


def test_a_command_that_does_not_show_its_python_has_no_version() -> None:
    assert engine_version(("/opt/serve.sh",), {}) is None
    assert engine_version(("/nowhere/python3", "-m", "sglang.launch_server"), {}) is None


def test_the_cpu_is_told_by_its_model_and_else_by_its_architecture(tmp_path: Path) -> None:
    named, unnamed = tmp_path / "x86", tmp_path / "arm"
    named.write_text("processor\t: 0\nmodel name\t: AMD EPYC 9655 96-Core Processor\nmodel name\t: again\n")
    unnamed.write_text("processor\t: 0\nBogoMIPS\t: 2000.00\n")

    assert cpu_model(named) == "AMD EPYC 9655 96-Core Processor"
    assert cpu_model(unnamed) == cpu_model(tmp_path / "absent") != ""


def test_memory_is_that_of_the_container_where_it_has_a_limit(tmp_path: Path) -> None:
    limit, none = tmp_path / "limit", tmp_path / "max"
    limit.write_text(f"{2**30}\n")
    none.write_text("max\n")

    assert memory_gib((str(limit), str(none))) == 1.0
    assert memory_gib((str(none), str(tmp_path / "absent"))) > 1.0
