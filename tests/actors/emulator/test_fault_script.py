"""Fault scripts: what is refused and how it is told, which servers and requests are struck."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from actors.emulator.fault import applies
from actors.emulator.fault_script import FaultScript, load_fault_script
from actors.emulator.last_words import SERVING_WORDS, WORDS
from actors.emulator.phase_stream import PhaseStream
from actors.emulator.trigger import EndpointTrigger, Trigger
from orchestrator.errors import BadInput
from tests.actors.emulator.planning import QWEN, chain
from tests.actors.emulator.running import emulator

WRONG = [
    ("start: {lable: kv_budget}", ":1: start: wants one of the keys label, replay, exit, hang, slow, flood"),
    ("start: {label: kv_buget}", ":1: start.label: is 'kv_buget', allowed: 'benign', 'stop_requested'"),
    ("start: {hang: weight}", ":1: start.hang: is 'weight', allowed: 'launch', 'args'"),
    ("start: {exit: args}", ":1: start.exit_code: is missing"),
    ("serving:\n  - fault: cutt", ":2: serving[0]: wants `fault:` with one of stall, hang"),
    ("serving:\n  - fault: cut\n    tokne: 3", ":3: serving[0].tokne: is not a key here; did you mean 'token'?"),
    ("serving: {fault: cut, token: -1}", ":1: serving.token: input should be greater than or equal to 0, not -1"),
    ("serving: {fault: cut, probability: 2}", ":1: serving.probability: input should be less than or equal to 1"),
    ("serving: {fault: cut, when: {speculative_num_step: 1}}", "is no setting of a server; did you mean"),
    ("serving: {fault: endpoint, path: metrics}", ":1: serving.path: String should match pattern '^/'"),
    ("start: {slow: weights}", ":1: start: wants either `seconds` or `until`"),
    ("serving: {fault: stall, seconds: 1, until: go}", ":1: serving: wants either `seconds` or `until`"),
    ("start: {replay: none.log, exit_code: 1}", "none.log: no such file (paths are relative to the script)"),
    ("seed: 1", "has no fault; give `start` or `serving`"),
    ("- fault: cut", ":1: must be a mapping of keys, not a list"),
    ("", "is empty"),
]


@pytest.mark.parametrize(("text", "told"), WRONG, ids=[text[:30] for text, _ in WRONG])
def test_a_wrong_script_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "faults.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput) as refused:
        load_fault_script(file)
    assert str(file) in str(refused.value)
    assert told in str(refused.value)


def test_the_emulator_refuses_a_wrong_script_like_a_wrong_flag(tmp_path: Path) -> None:
    with emulator(tmp_path, f"--model-path m --emulator-faults {tmp_path / 'none.yaml'}") as running:
        assert running.process.wait(60) == 2
        assert running.log == f"{tmp_path / 'none.yaml'}: the fault script cannot be read: No such file or directory\n"


def test_an_emulator_without_faults_does_not_pay_for_them() -> None:
    code = "import sys, actors.emulator.__main__, actors.emulator.server; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize(
    ("when", "settings", "struck"),
    [
        ({}, {}, True),
        ({"tp_size": 4}, {"tp_size": 4}, True),
        ({"tp_size": 4}, {"tp_size": 2}, False),
        ({"tp_size": [1, 2]}, {"tp_size": 2}, True),
        ({"speculative_num_steps": 0}, {"speculative_num_steps": None}, True),
        ({"speculative_num_steps": 0, "tp_size": 2}, {"speculative_num_steps": None, "tp_size": 1}, False),
        ({"cuda_graph_max_bs": 8}, {"cuda_graph_max_bs_decode": 8}, True),
    ],
)
def test_a_fault_is_for_the_servers_that_its_conditions_name(
    when: dict[str, Any], settings: dict[str, Any], struck: bool
) -> None:
    script = FaultScript.model_validate({"start": {"label": "kv_budget", "when": when}})
    assert applies(script.start[0], settings) is struck


def struck(requests: int, **fault: Any) -> list[int]:
    """Which of so many requests a fault strikes, one each second."""
    script = FaultScript.model_validate({"serving": {"fault": "cut", **fault}})
    trigger = Trigger(script.serving[0], random.Random("1-0"))  # type: ignore[arg-type]
    return [n for n in range(1, requests + 1) if trigger.strikes("/generate", float(n))]


def test_requests_are_struck_by_number_time_lot_and_path() -> None:
    assert struck(5) == [1]
    assert struck(5, request=3) == [3]
    assert struck(8, request=3, times=2) == [3, 4]
    assert struck(5, request=4, times="always") == [4, 5]
    assert struck(5, after_s=2.5, times=2) == [3, 4]
    assert struck(5, path="/v1/completions", times="always") == []
    lots = struck(1000, probability=0.3, times="always")
    assert 250 < len(lots) < 350
    assert lots == struck(1000, probability=0.3, times="always")
    assert struck(1000, probability=0.3, times=2) == lots[:2]


def test_a_side_endpoint_is_struck_for_its_time_and_number() -> None:
    entry = {"fault": "endpoint", "path": "/flush_cache", "after_s": 2, "seconds": 3, "times": 2}
    trigger = EndpointTrigger(FaultScript.model_validate({"serving": entry}).serving[0])  # type: ignore[arg-type]
    assert [s for s in range(8) if trigger.strikes("/flush_cache", float(s))] == [2, 3]
    assert not trigger.strikes("/metrics", 2.5)


@pytest.mark.parametrize("label", [*WORDS, *SERVING_WORDS])
def test_no_last_word_has_a_place_left_unfilled(label: str) -> None:
    words = WORDS.get(label) or SERVING_WORDS[label]
    text = (
        " ".join([words.error, *words.before]).replace("{rank}", "0").replace("{gpu}", "0").replace("{{auto,slow}}", "")
    )
    assert "{" not in text


def test_the_phases_of_a_start_are_reached_in_order_and_once(tmp_path: Path) -> None:
    with emulator(tmp_path, QWEN + "--mem-fraction-static 0.8 --max-running-requests 8" + chain(3), 1000) as running:
        running.wait_for("The server is fired up")
        log = running.log_file.read_text(encoding="utf-8")
    reached: list[str] = []
    stream = PhaseStream((tmp_path / "copy").open("w", encoding="utf-8"), 4, reached.append)
    for line in log.splitlines(keepends=True):
        stream.write(line.rpartition("\r")[2])
    assert reached == [
        *("args", "dist_init", "weights", "draft_weights", "kv_pool", "graph_target", "graph_draft"),
        *("http_bind", "warmup", "ready"),
    ]
