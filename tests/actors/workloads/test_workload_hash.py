"""A workload has the same hash where the same is sent, and another one where anything differs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actors.workloads.workload_hash import workload_hash
from orchestrator.errors import BadInput
from orchestrator.traffic import Arrival, Draw, Session, Traffic
from orchestrator.trial import LoadLevel, ProfileSpec
from tests.actors.load_specs import run, spec
from tests.fakes.load import load_endpoint
from tests.fakes.scripted_endpoint import ScriptedEndpoint, native_answer

TALK = Session("chat", Draw(mean=2), Draw(mean=2), Draw(mean=2))
KIND = Traffic("w", 1.0, "random_text", Draw(mean=32), Draw(mean=3))
SENT: list[dict[str, Any]] = [
    {}, {"seed": 8}, {"level": LoadLevel("concurrency", 2)}, {"level": LoadLevel("rate", 1)}, {"input_tokens": 33},
    {"output_tokens": 4}, {"dataset": "code"}, {"api": "chat"}, {"temperature": 0.5}, {"ignore_eos": False},
    {"requests": 2}, {"duration_s": 9.0}, {"shared_prefix_tokens": 8}, {"max_concurrency": 3},
    {"extra_body": '{"a":1}'}, {"arrival": Arrival("constant")}, {"tokenizer": "/models/x"},
    {"traffic": (Traffic("w", 1.0, "random_text", Draw("uniform", low=1, high=63), Draw(mean=3)),)},
    {"traffic": (Traffic("w", 1.0, "random_text", Draw(mean=32), Draw(mean=3), 8, 2),)},
    {"traffic": (Traffic("w", 1.0, "random_text", Draw(mean=32), Draw(mean=3), session=TALK),)},
]  # fmt: skip
NOT_SENT: list[dict[str, Any]] = [
    {"model": "other"}, {"workload": "other"}, {"request_timeout_s": 9.0}, {"profile": ProfileSpec("/x", 1.0)},
    {"counters": (("drafted", "x"),)}, {"traffic": (KIND,)},
]  # fmt: skip


def test_all_that_decides_what_is_sent_tells_workloads_apart() -> None:
    hashes = [workload_hash(spec(**changes)) for changes in SENT]

    assert len(set(hashes)) == len(SENT)
    assert all(len(found) == 12 for found in hashes)


@pytest.mark.parametrize("changes", NOT_SENT)
def test_the_server_and_names_do_not(changes: dict[str, Any]) -> None:
    assert workload_hash(spec(**changes)) == workload_hash(spec())


def test_what_is_in_a_file_counts_not_where_it_is(tmp_path: Path) -> None:
    first, same, other = (tmp_path / name for name in ("a", "b", "c"))
    first.write_text("Say something.\n")
    same.write_text("Say something.\n")
    other.write_text("Say nothing.\n")
    found = [workload_hash(spec(dataset=f"file:{path}")) for path in (first, same, other)]

    assert found[0] == found[1] != found[2]
    with pytest.raises(BadInput, match="cannot be read"):
        workload_hash(spec(dataset=f"file:{tmp_path}/none"))


def test_the_report_of_a_point_has_it() -> None:
    async def go() -> str:
        async with ScriptedEndpoint(lambda n, body: native_answer(1)) as server:
            return (await load_endpoint(server.url, spec()))[1].workload_hash

    assert run(go()) == workload_hash(spec())
