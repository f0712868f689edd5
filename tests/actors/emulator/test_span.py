"""A server on several nodes: they wait for each other, one serves, and none outlives another."""

from __future__ import annotations

import http.client
import os
import signal
import time
from pathlib import Path

import pytest

from actors.diagnosis import diagnose
from actors.emulator.ranks import LocalRanks, local_ranks
from actors.emulator.span import LEAST_LOADING_S
from actors.servers.follower import split_log
from orchestrator.outcome import Diagnosis, Label, Phase
from tests.actors.emulator.running import READY, Emulator
from tests.actors.emulator.spanning import nodes
from tests.fakes.leaping_clock import ClockOfChildren

TWO = "--model-path m --tp 2"
UP = "Dummy health check server started in background thread at 127.0.0.2:"


def verdict(node: Emulator) -> Diagnosis:
    code = node.process.wait(60)
    return diagnose(split_log(node.log.encode()), exit_code=code)


def health(node: Emulator, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.2", node.port, timeout=60)
    connection.request("GET", path)
    return connection.getresponse().status


def test_ranks_are_dealt_to_nodes_as_sglang_deals_them() -> None:
    def of(tp: int, pp: int, nnodes: int, node: int) -> tuple[int, int]:
        ranks = local_ranks({"tp_size": tp, "pp_size": pp, "nnodes": nnodes, "node_rank": node})
        return ranks.first, ranks.count

    assert [of(16, 1, 2, n) for n in (0, 1)] == [(0, 8), (8, 8)]
    assert [of(8, 2, 2, n) for n in (0, 1)] == [(0, 8), (0, 8)]
    assert [of(8, 2, 4, n) for n in range(4)] == [(0, 4), (4, 4), (0, 4), (4, 4)]
    assert LocalRanks(8, 2, 16, 1, 2).titles() == ["sglang::scheduler_TP8", "sglang::scheduler_TP9"]


def test_only_node_0_serves_and_its_orderly_end_is_that_of_all(tmp_path: Path) -> None:
    with nodes(tmp_path, TWO) as (first, second):
        first.wait_for(READY)
        second.wait_for(UP)
        assert "TP1]" not in first.log
        assert "TP0]" not in second.log
        assert "max_total_num_tokens=" not in second.log
        assert [" ".join(c.cmdline()[:1]) for c in second.children()][1:] == ["sglang::scheduler_TP1"]
        assert (
            first.generate(text="hi", sampling_params={"max_new_tokens": 3}).json["meta_info"]["completion_tokens"] == 3
        )
        assert (health(second, "/health"), health(second, "/generate")) == (200, 404)

        second.process.terminate()
        second.wait_for("SIGTERM received on node_rank 1; waiting for the rank-0 ShutdownReq broadcast")
        first.process.terminate()
        assert (first.process.wait(60), second.process.wait(60)) == (0, 0)
        assert second.log.count("terminated with 0\n") == 1


def test_a_node_that_runs_out_of_memory_takes_the_others_with_it_and_only_its_own_log_says_why(tmp_path: Path) -> None:
    with nodes(tmp_path, TWO, "start: {label: oom_kv_alloc, when: {node_rank: 1}}") as (first, second):
        assert (verdict(second).label, verdict(second).exit_code) == (Label.OOM_KV_ALLOC, -9)
        assert (verdict(first).label, verdict(first).exit_code) == (Label.PEER_RANK_FAILED, -9)
        assert "TP1] Scheduler hit an exception" in second.log
        assert "pair.cc:537] Read error [127.0.0." in first.log


def test_a_scheduler_that_is_killed_ends_its_node_with_0_and_the_others_by_a_broken_connection(tmp_path: Path) -> None:
    with nodes(tmp_path, TWO) as (first, second):
        first.wait_for(READY)
        second.wait_for(UP)
        scheduler = second.children()[1].pid
        os.kill(scheduler, signal.SIGKILL)
        assert (second.process.wait(60), first.process.wait(60)) == (0, -9)
        assert f"Scheduler or DataParallelController {scheduler} terminated with -9" in second.log
        assert (verdict(first).label, verdict(first).phase) == (Label.PEER_RANK_FAILED, Phase.SERVING)
        assert verdict(second).label is Label.HOST_OOM


def test_a_node_whose_node_0_is_killed_dies_of_that(tmp_path: Path) -> None:
    script = "serving: {fault: die, label: killed, when: {node_rank: 0}, after_s: 0.1}"
    with nodes(tmp_path, TWO, script) as (first, second):
        assert (first.process.wait(60), second.process.wait(60)) == (-9, -9)
        assert verdict(second).label is Label.PEER_RANK_FAILED


def test_a_script_can_have_a_serving_node_that_is_not_node_0_die(tmp_path: Path) -> None:
    script = "serving: {fault: die, label: runtime_oom, when: {node_rank: 1}, after_s: 0.1}"
    with nodes(tmp_path, TWO, script) as (first, second):
        assert (verdict(second).label, verdict(first).label) == (Label.RUNTIME_OOM, Label.PEER_RANK_FAILED)


@pytest.mark.parametrize(
    ("rank", "told"),
    [
        (0, "torch.distributed.DistStoreError: Timed out after 2 seconds waiting for clients. 1/2 clients joined."),
        (
            1,
            "torch.distributed.DistNetworkError: The client socket has timed out after 1000ms while trying to connect",
        ),
    ],
)
def test_a_node_alone_waits_for_the_others_as_long_as_torch_does(tmp_path: Path, rank: int, told: str) -> None:
    with nodes(tmp_path, f"{TWO} --dist-timeout 1", only=rank) as (alone,):
        assert (verdict(alone).label, verdict(alone).phase) == (Label.NCCL_INIT, Phase.DIST_INIT)
        assert told in alone.log


def test_a_node_that_does_not_finish_loading_is_told_of_by_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ClockOfChildren(monkeypatch, tmp_path)
    with nodes(tmp_path, TWO, "start: {hang: weights, when: {node_rank: 1}}", speedup=1000.0) as (first, _second):
        first.wait_for("| 8/8 [")  # and now for the other
        while first.process.poll() is None:
            clock.leap_by(LEAST_LOADING_S)
            time.sleep(0.05)
        assert (verdict(first).label, verdict(first).phase) == (Label.PEER_RANK_FAILED, Phase.WEIGHTS)
