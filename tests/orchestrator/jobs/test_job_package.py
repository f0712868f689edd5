"""What a job is sent: all that its run needs, and no secret."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

import pytest
import yaml

from orchestrator.errors import BadInput, ScenarioError
from orchestrator.jobs import job_package
from orchestrator.jobs.job_package import own_files, pack
from orchestrator.scenarios.scenario_file import load_scenario
from tests.orchestrator.scenario_samples import MINIMAL, small_scenario

ROOT = Path(__file__).resolve().parent.parent.parent.parent
PROMPTS = '{"prompt": "Why is the sky blue?"}\n'


def members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SPECSWEEP_API_KEY", raising=False)
    monkeypatch.setattr(job_package, "own_files", lambda: {"orchestrator/__init__.py": b""})
    (tmp_path / "data").mkdir()
    (tmp_path / "data/prompts.jsonl").write_text(PROMPTS)
    (tmp_path / "faults.yaml").write_text("faults: []\n")
    (tmp_path / "tokens").mkdir()
    (tmp_path / "tokens/tokenizer.json").write_text("{}")
    (tmp_path / "tokens/model.safetensors").write_text("not sent")
    named = MINIMAL.replace("  kind: emulator\n", "  kind: emulator\n  faults: faults.yaml\n").replace(
        "  - name: chat\n", "  - name: chat\n    dataset: file:data/prompts.jsonl\n    tokenizer: tokens\n"
    )
    (tmp_path / "small.yaml").write_text(named)
    return tmp_path


def test_both_packages_are_sent_whole_and_without_caches() -> None:
    sent = own_files()

    corpus = "actors/workloads/corpus/prose.txt.zst"
    assert {"orchestrator/sweeps/run_command.py", "actors/slot_actor.py", corpus} <= set(sent)
    assert [name for name in sent if "__pycache__" in name] == []
    assert {name.split("/")[0] for name in sent} == {"orchestrator", "actors"}
    assert sent["orchestrator/errors.py"] == (ROOT / "orchestrator/errors.py").read_bytes()


def test_files_that_the_scenario_names_go_with_it_by_what_is_in_them(folder: Path) -> None:
    package = pack(load_scenario(folder / "small.yaml"), folder / "small.yaml")

    sent = members(package.data)
    told = yaml.safe_load(sent["scenario.yaml"])
    dataset = told["workloads"][0]["dataset"]
    assert dataset.startswith("file:files/")
    assert sent[dataset.removeprefix("file:")] == PROMPTS.encode()
    assert sent[told["engine"]["faults"]] == b"faults: []\n"
    assert sent[told["workloads"][0]["tokenizer"] + "/tokenizer.json"] == b"{}"
    assert not package.is_secret
    assert [name for name in sent if "safetensors" in name] == []


def test_what_is_sent_is_the_same_scenario_but_for_the_places_of_its_files(folder: Path) -> None:
    given = load_scenario(folder / "small.yaml", ("measure.duration_s=0.00001", "seed=7"))
    (folder / "sent.yaml").write_bytes(members(pack(given, None).data)["scenario.yaml"])
    sent = load_scenario(folder / "sent.yaml")

    assert (sent.measure, sent.seed, sent.sweep, sent.objectives) == (
        given.measure, 7, given.sweep, given.objectives,
    )  # fmt: skip


def test_the_same_data_has_the_same_name_wherever_it_lies(folder: Path) -> None:
    first = pack(load_scenario(folder / "small.yaml"), None)
    (folder / "elsewhere").mkdir()
    (folder / "data/prompts.jsonl").rename(folder / "elsewhere/prompts.jsonl")
    moved = ("workloads.0.dataset=file:elsewhere/prompts.jsonl",)
    again = pack(load_scenario(folder / "small.yaml", moved), None)

    assert (first.name, first.data) == (again.name, again.data)
    (folder / "elsewhere/prompts.jsonl").write_text(PROMPTS * 2)
    assert pack(load_scenario(folder / "small.yaml", moved), None).name != first.name


@pytest.mark.parametrize(
    "secret",
    [
        'engine.env={"HF_TOKEN": "hf_verysecret"}',
        'engine.extra_args=["--api-key", "hf_verysecret"]',
        'engine.before_start=[{"command": ["login", "--token", "hf_verysecret"]}]',
    ],
)
def test_a_scenario_with_a_secret_is_in_no_package(folder: Path, secret: str) -> None:
    package = pack(load_scenario(folder / "small.yaml", (secret,)), None)

    assert package.is_secret
    assert "scenario.yaml" not in members(package.data)
    assert not any(b"hf_verysecret" in data for data in members(package.data).values())
    assert "hf_verysecret" not in repr(package)
    assert "hf_verysecret" in package.scenario_text


def test_a_key_of_this_machine_for_a_running_server_is_a_secret_too(monkeypatch: pytest.MonkeyPatch) -> None:
    running = {"kind": "attach", "url": "http://127.0.0.1:30000"}
    attached = small_scenario(engine=running, sweep={}, slots={"gpus": 0}, model={"path": "org/model"})
    assert not pack(attached, None).is_secret

    monkeypatch.setenv("SPECSWEEP_API_KEY", "k-1234567")
    assert pack(attached, None).is_secret


def test_more_than_a_dashboard_takes_is_refused_with_what_to_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_package, "MOST_MIB", 0)

    with pytest.raises(BadInput, match=r"prompts\.jsonl.*same absolute path on every host.*--on-hosts"):
        pack(load_scenario(folder / "small.yaml"), None)


def test_files_that_hosts_have_are_neither_read_nor_sent_and_must_be_named_alike_everywhere(folder: Path) -> None:
    with pytest.raises(ScenarioError, match=r"small\.yaml:\d+: workloads.*: data/prompts\.jsonl: with --on-hosts"):
        pack(load_scenario(folder / "small.yaml"), folder / "small.yaml", on_hosts=True)

    there = (
        "workloads.0.dataset=file:/data/none.jsonl", "engine.faults=/data/none.yaml", "workloads.0.tokenizer=/data/tok",
    )  # fmt: skip
    package = pack(load_scenario(folder / "small.yaml", there), None, on_hosts=True)
    assert set(members(package.data)) == {"orchestrator/__init__.py", "scenario.yaml"}
    assert json.loads(json.dumps(yaml.safe_load(package.scenario_text)))["engine"]["faults"] == "/data/none.yaml"
