"""Of several ranks the one that died first of something tells why; the others tell that it did."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.diagnosis import diagnose
from actors.servers.follower import split_log
from orchestrator.outcome import INFEASIBLE, Diagnosis, Label, Phase
from orchestrator.slots.first_cause import RankEnd, first_cause, told_of_rank

STAMP = b"[2026-11-29 17:36:02 TP%d] "
OOM = (
    STAMP % 1 + b"Load weight begin. avail mem=94.10 GB\n"
    + STAMP % 1 + b"Scheduler hit an exception: Traceback (most recent call last):\n"
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 896.00 MiB. GPU 1 has a total capacity of 94.97 GiB"
    b" of which 739.81 MiB is free.\n\n"
)  # fmt: skip
ECHOES = (
    b"RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:10812\n",
    b"ValueError: TP rank 0 could finish the model loading, but there are other ranks that didn't finish loading. It "
    b"is likely due to unexpected failures (e.g., OOM) or a slow node.\n",
    b"RuntimeError: NCCL error: remote process exited or there was a network error\n",
    b"[rank0]:[E1129 13:14:54 ProcessGroupNCCL.cpp:685] [Rank 0] Watchdog caught collective operation timeout: "
    b"WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064, Timeout(ms)=600000) ran for 600020 "
    b"milliseconds before timing out.\n",
    b"torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients joined.\n",
    STAMP % 0 + b"Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)\n",
)


REAL = Path(__file__).parents[2] / "data/captures/0.5.23-two-nodes"


def end(label: Label, phase: Phase = Phase.SERVING, told: float = 0.0, *, itself: bool = True) -> RankEnd:
    return RankEnd(Diagnosis(label, phase, "a line", 3, -9), (told,), ended_itself=itself)


def of_log(log: bytes, told: float) -> RankEnd:
    return RankEnd(diagnose(split_log(log), exit_code=-9), (told,), ended_itself=True)


@pytest.mark.parametrize("echo", ECHOES)
def test_lack_of_memory_beats_what_the_other_rank_says_of_it_even_if_that_came_first(echo: bytes) -> None:
    ends = [of_log(echo, 1.0), of_log(OOM, 9.0)]

    assert first_cause(ends) == 1
    assert first_cause(ends[::-1]) == 0
    assert ends[1].diagnosis.label is Label.OOM_WEIGHTS


@pytest.mark.parametrize("echo", ECHOES)
def test_a_rank_that_died_without_a_word_is_the_cause_of_what_the_others_say(echo: bytes) -> None:
    assert first_cause([of_log(echo, 1.0), end(Label.UNKNOWN, told=2.0)]) == 1


def test_a_log_alone_that_tells_nothing_is_no_cause() -> None:
    assert first_cause([end(Label.UNKNOWN, itself=False), end(Label.PEER_RANK_FAILED)]) == 1


@pytest.mark.parametrize(
    ("name", "codes", "cause", "labels"),
    [
        ("scheduler-of-node-1-killed", (-9, 0), 1, [Label.PEER_RANK_FAILED, Label.HOST_OOM]),
        ("node-0-killed", (-9, -9), 0, [Label.UNKNOWN, Label.PEER_RANK_FAILED]),
        ("each-alone", (-9, -9), 0, [Label.NCCL_INIT, Label.NCCL_INIT]),
    ],
)
def test_real_ranks_on_two_hosts_are_told_apart(
    name: str, codes: tuple[int, int], cause: int, labels: list[Label]
) -> None:
    logs = [(REAL / f"{name}-{rank}.log").read_bytes() for rank in (0, 1)]
    told = [diagnose(split_log(log), exit_code=code) for log, code in zip(logs, codes, strict=True)]

    assert [diagnosis.label for diagnosis in told] == labels
    assert first_cause([RankEnd(diagnosis, (1.0,), ended_itself=True) for diagnosis in told]) == cause


def test_of_two_causes_the_earlier_counts() -> None:
    assert first_cause([end(Label.CUDA_IMA, told=4.0), end(Label.RUNTIME_OOM, told=3.5)]) == 1
    assert first_cause([end(Label.CUDA_IMA, told=3.0), end(Label.RUNTIME_OOM, told=3.5)]) == 0


def test_of_ranks_that_wait_the_one_that_got_least_far_is_told() -> None:
    waiting = [end(Label.START_TIMEOUT, Phase.KV_POOL, 1.0), end(Label.START_TIMEOUT, Phase.WEIGHTS, 2.0)]
    assert first_cause(waiting) == 1


def test_a_rank_that_we_stopped_tells_nothing() -> None:
    assert first_cause([end(Label.STOP_REQUESTED, itself=False), end(Label.PEER_RANK_FAILED)]) == 1
    assert first_cause([end(Label.STOP_REQUESTED, itself=False), end(Label.START_TIMEOUT)]) == 1


def test_the_evidence_names_rank_and_host() -> None:
    told = told_of_rank(Diagnosis(Label.HOST_OOM, Phase.WEIGHTS, "killed", 7, -9), 1, "gpu-b")
    assert (told.evidence, told.line_number, told.label) == ("rank 1 on gpu-b: killed", 7, Label.HOST_OOM)


ENDS = st.builds(end, st.sampled_from(list(Label)), st.sampled_from(list(Phase)), st.floats(0, 9), itself=st.booleans())


@given(st.lists(ENDS, min_size=1, max_size=3, unique_by=lambda e: e.told))
def test_the_order_in_which_ranks_are_given_does_not_matter(ends: list[RankEnd]) -> None:
    assert len({tried[first_cause(tried)] for tried in map(list, permutations(ends))}) == 1


@given(st.lists(ENDS, min_size=1, max_size=4), st.sampled_from(sorted(INFEASIBLE)))
def test_no_number_of_other_voices_hides_a_named_cause(others: list[RankEnd], label: Label) -> None:
    ends = [*others, end(label, told=-1.0)]
    told = ends[first_cause(ends)].diagnosis.label
    assert told not in {
        Label.PEER_RANK_FAILED,
        Label.NCCL_INIT,
        Label.NCCL_TIMEOUT,
        Label.UNKNOWN,
        Label.STOP_REQUESTED,
    }
