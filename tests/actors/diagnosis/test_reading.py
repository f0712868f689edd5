"""What is around and between the lines that tell: prefixes, wraps, ranks, restarts, and what a server survives."""

from __future__ import annotations

import json

import pytest

from actors.diagnosis import diagnose
from actors.servers.follower import LineSplitter, split_log
from actors.servers.log_line import clean
from orchestrator.outcome import Confidence, Diagnosis, Label, Phase

READY = (
    "[2026-08-07 17:35:50] server_args={'model_path': 'm'}\n"
    "[2026-08-07 17:35:50 TP0] Load weight begin. avail mem=9.00 GB\n"
    "[2026-08-07 17:35:59 TP0] Load weight end. type=M, avail mem=7.00 GB, mem usage=2.00 GB.\n"
    "[2026-08-07 17:35:59 TP0] Memory pool end. avail mem=2.30 GB\n"
    "[2026-08-07 17:36:00] The server is fired up and ready to roll!\n"
)
BATCH = "[2026-08-07 17:36:02 TP0] Decode batch, #running-req: 1, #token: 60, token usage: 0.00, #queue-req: 0\n"
DEATH = (
    "[2026-08-07 17:36:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/s/srt/managers/scheduler.py", line 1, in event_loop_overlap\n'
    "{error}\n"
)
QUIT = "[2026-08-07 17:36:04] Received sigquit from a child process. It usually means the child failed.\n"


def alive(text: str) -> Diagnosis:
    return diagnose(split_log(text.encode()), is_dead=False)


def dead(text: str, exit_code: int | None = -9) -> Diagnosis:
    return diagnose(split_log(text.encode()), exit_code=exit_code)


@pytest.mark.parametrize(
    "prefix",
    [
        "sglang-1  | ",
        "2025-07-25T07:53:08.21748708+08:00 stdout F ",
        "ERROR 2025-04-05T00:01:19.509514570Z ",
        "2026-09-22T06:50:07.810074780Z ",
        "(SGLangEngine pid=4711, ip=10.0.0.1) ",
        "Mar 24 23:54:53 host-a sglang[4711]: ",
        "2026-03-24T23:54:53+0000 host-a sglang[4711]: ",
        "[pod/sglang-0/server] ",
        "[rank3]: ",
        "[1,3]<stderr>:",
        "(EngineCore_DP0 pid=12473) ERROR 11-05 12:19:32 [core.py:708] ",
        "\x1b[36m(Worker pid=7)\x1b[0m ",
        "[31m",
        "2025-04-15 14:30:13 ",
        "2025-04-13 15:27:40 ERROR 510 [scheduler.py:839] ",
        "[gpu_id=1] ",
        "> ",
        "Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]",
    ],
)
def test_what_others_put_before_a_line_does_not_hide_it(prefix: str) -> None:
    error = "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static."
    assert dead(f"{prefix}[2026-08-07 17:36:00 TP1] starting\n{prefix}{error}\n").label is Label.KV_BUDGET


def test_a_line_in_dockers_json_is_read() -> None:
    wrapped = json.dumps({"log": "RuntimeError: alloc_req_slots runs out of memory. Please\n", "stream": "stderr"})
    assert clean(wrapped).message == "RuntimeError: alloc_req_slots runs out of memory. Please"
    assert dead(wrapped).label is Label.RUNTIME_POOL


@pytest.mark.parametrize(
    ("wrapped", "label", "evidence"),
    [
        (
            "RuntimeError: Not enough\nmemory. Please try to increase --mem-",
            "kv_budget",
            "RuntimeError: Not enough memory.",
        ),
        (
            "torch.OutOfMemoryError: CUDA out of mem\nory. Tried",
            "out_of_memory",
            "torch.OutOfMemoryError: CUDA out of memory.",
        ),
        (
            "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by\nother processes. "
            "pre_model_load_memory=19.2269,\nlocal_gpu_memory=30.5465, local_gpu_memory * 0.9=27.4",
            "gpu_unequal",
            "RuntimeError: The memory capacity is unbalanced.",
        ),
        (
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds.\n"
            "tic start time: 19:12:20. last_heartbeat time: 19:01:17",
            "health_stale",
            "Health check failed.",
        ),
        (
            "RuntimeError: GemmaRMSNorm failed with error code no kernel\nimage is available for execution on "
            "the device",
            "kernel_arch",
            "RuntimeError: GemmaRMSNorm failed",
        ),
    ],
)
def test_a_message_that_a_terminal_wrapped_is_put_together_again(wrapped: str, label: str, evidence: str) -> None:
    told = dead(f"{QUIT}{wrapped}\n")
    assert (told.label, told.line_number) == (label, 2)
    assert told.evidence.startswith(evidence)


def test_numbers_on_the_lines_after_belong_to_the_evidence() -> None:
    told = dead(
        "Exception: Capture cuda graph failed: CUDA out of memory.\nTried to allocate 672.00 MiB.\n\nGPU 0 has\n"
    )
    assert (
        told.evidence
        == "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 672.00 MiB. GPU 0 has"
    )


def test_line_ends_of_windows_and_bytes_that_are_no_text_do_no_harm() -> None:
    log = b"\xff\xfe caf\xe9\r\n[2026-08-07 17:36:00 TP0] x\r\nRuntimeError: Not enough memory\r\n"
    told = diagnose(split_log(log), exit_code=-9)
    assert (told.label, told.evidence, told.line_number) == (Label.KV_BUDGET, "RuntimeError: Not enough memory", 3)


def test_the_first_rank_that_failed_tells_and_the_others_are_echoes() -> None:
    log = "".join(
        f"[2026-08-07 17:36:0{second} TP{rank}] Scheduler hit an exception: Traceback (most recent call "
        f"last):\n{error}\n"
        for second, rank, error in (
            (1, 3, "torch.AcceleratorError: CUDA error: an illegal memory access was encountered"),
            (2, 0, "RuntimeError: NCCL error: remote process exited or there was a network error"),
            (3, 1, "torch.OutOfMemoryError: CUDA out of memory."),
        )
    )
    told = dead(READY + BATCH + log)
    assert (told.label, told.phase, told.line_number) == (Label.CUDA_IMA, Phase.SERVING, 8)


def test_a_cause_after_a_rank_that_only_tells_of_others_is_the_cause() -> None:
    log = (
        "RuntimeError: [../third_party/gloo/pair.cc:534] Connection closed by peer [10.0.0.1]:10812\n"
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered\n"
    )
    assert dead(READY + BATCH + log).label is Label.CUDA_IMA


@pytest.mark.parametrize(
    "error", ["KeyError: 'model.layers.13.mlp.experts.w2_weight_scale'", "ValueError: no such layer"]
)
def test_an_exception_while_weights_are_loaded_is_a_conflict_of_model_and_options(error: str) -> None:
    frames = (
        '  File "/s/srt/managers/scheduler.py", line 218, in __init__\n'
        '  File "/s/srt/model_executor/model_runner.py", line 361, in load_model\n'
    )
    head = "[2025-03-20 00:44:38 TP3] Scheduler hit an exception: Traceback (most recent call last):\n"
    told = dead(head + frames + error + "\n" + QUIT)
    assert (told.label, told.phase, told.evidence) == (Label.CONFIG_CONFLICT, Phase.WEIGHTS, error)


def test_an_exception_in_the_loop_is_a_fault_of_the_software() -> None:
    told = dead(READY + BATCH + DEATH.format(error="KeyError: 'rid'") + QUIT)
    assert (told.label, told.phase, told.confidence) == (Label.SOFTWARE_BUG, Phase.SERVING, Confidence.MEDIUM)


def test_a_request_that_failed_while_others_were_served_is_no_death() -> None:
    failed = "Traceback (most recent call last):\nValueError: image is broken\n"
    told = alive(READY + BATCH + failed + BATCH * 2)
    assert (told.label, told.evidence) == (Label.BENIGN, "ValueError: image is broken")
    assert dead(READY + BATCH + failed + BATCH * 2, 1).label is Label.UNKNOWN


def test_batches_of_other_ranks_do_not_show_that_this_one_lives() -> None:
    other = BATCH.replace("TP0", "DP1 TP1")
    died = DEATH.format(error="torch.OutOfMemoryError: CUDA out of memory.")
    assert alive(READY + BATCH + died + other * 5).label is Label.RUNTIME_OOM
    assert alive(READY + BATCH + died + BATCH * 5).label is Label.BENIGN


def test_a_server_that_is_draining_was_asked_to_stop_and_did_not_survive_it() -> None:
    stop = "[2026-08-07 17:36:03] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
    crash = "[2026-08-07 17:36:05] Subprocess scheduler_0 (pid=9) crashed with exit code -9. Triggering SIGQUIT\n"
    told = dead(READY + BATCH + stop + BATCH * 5 + crash + "torch.OutOfMemoryError: CUDA out of memory.\n", -9)
    assert (told.label, told.phase, told.line_number) == (Label.STOP_REQUESTED, Phase.SHUTDOWN, 7)


def test_a_stop_that_cleans_up_after_a_death_is_not_why_it_died() -> None:
    stop = "[2026-08-07 17:46:03] SIGTERM received. signum=None frame=None. Draining requests and shutting down...\n"
    assert dead(READY + BATCH + DEATH.format(error="KeyError: 'rid'") + stop).label is Label.SOFTWARE_BUG


def test_the_last_of_several_starts_in_one_file_counts() -> None:
    first = READY + BATCH + DEATH.format(error="torch.OutOfMemoryError: CUDA out of memory.") + QUIT
    assert alive(first + READY + BATCH).label is Label.READY
    again = dead(
        first + READY + BATCH + DEATH.format(error="RuntimeError: Prefill out of memory. Try to lower your batch size.")
    )
    assert (again.label, again.line_number) == (Label.RUNTIME_POOL, 19)
    cut = dead(first + "[2026-08-07 17:40:00] server_args={'model_path': 'm'}\n", 1)
    assert cut.label is Label.RUNTIME_OOM


@pytest.mark.parametrize(
    ("line", "label"),
    [
        ("KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 9", "benign"),
        ("Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)", "benign"),
        ("retract_decode: aborted last request 7 due to OOM", "benign"),
        (
            "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: "
            "00:00:05. last_heartbeat time: 23:59:58",
            "benign",
        ),
        ("Setup Custom allreduce failed with CUDART error: peer access is not supported", "ready"),
        ("Receive: obj=GenerateReqInput(text='RuntimeError: Not enough memory')", "ready"),
        ("Cache not flushed because there are pending requests.", "ready"),
        ("Ignore import error when loading sglang.srt.models.grok: no attribute 'sgl_kernel'", "ready"),
    ],
)
def test_frightening_lines_of_a_living_server_are_no_crash(line: str, label: str) -> None:
    assert alive(READY + BATCH + f"[2026-08-07 17:36:03 TP0] {line}\n" + BATCH).label == label


def test_a_hang_that_ended_is_no_hang() -> None:
    stale = (
        "[2026-08-07 17:36:03] Health check failed. Server couldn't get a response from detokenizer for last "
        "20 seconds. "
        "tic start time: 04:35:35. last_heartbeat time: 04:30:01\n"
    )
    assert alive(READY + BATCH + stale).label is Label.HEALTH_STALE
    assert alive(READY + BATCH + stale + BATCH * 2).label is Label.BENIGN


def test_a_start_that_goes_well_so_far_is_ready_where_it_is() -> None:
    told = alive(READY.rpartition("[2026-08-07 17:36:00]")[0])
    assert (told.label, told.phase, told.confidence) == (Label.READY, Phase.KV_POOL, Confidence.MEDIUM)
    assert alive(READY).phase is Phase.SERVING


def test_a_log_that_says_nothing_of_a_server_is_unknown() -> None:
    assert alive("hello\nworld\n").label is Label.UNKNOWN
    assert alive("").label is Label.UNKNOWN


def test_a_shells_killed_while_weights_were_loaded_is_a_guess_at_the_hosts_memory() -> None:
    loading = (
        "[2026-08-07 17:35:50] server_args={}\n[2026-08-07 17:35:50] Load weight begin. avail mem=9.00 GB\nKilled\n"
    )
    told = dead(loading, 137)
    assert (told.label, told.phase, told.confidence) == (Label.HOST_OOM, Phase.WEIGHTS, Confidence.LOW)
    assert dead(loading.replace("Killed", QUIT + "Killed"), 137).label is Label.UNKNOWN
    assert dead(READY + BATCH + "Killed\n", 137).label is Label.UNKNOWN


def test_memory_that_ran_out_before_anything_was_loaded_is_held_by_somebody_else() -> None:
    log = "[2026-08-07 17:35:50] server_args={}\n[2026-08-07 17:35:50 TP0] Init torch distributed begin.\n"
    told = dead(log + "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 MiB.\n")
    assert (told.label, told.phase) == (Label.GPU_OCCUPIED, Phase.DIST_INIT)


def test_pinned_memory_that_ran_out_is_the_hosts() -> None:
    frames = 'Traceback (most recent call last):\n  File "/s/srt/mem_cache/memory_pool_host.py", line 1, in alloc\n'
    assert dead(READY[:-60] + frames + "RuntimeError: CUDA error: out of memory\n").label is Label.HOST_OOM


@pytest.mark.parametrize(
    ("frame", "label", "phase"),
    [
        ('model_executor/model_runner.py", line 1, in load_model', "oom_weights", "draft_weights"),
        ('speculative/eagle_worker.py", line 1, in init_cuda_graphs', "oom_graph_draft", "graph_draft"),
        ('mem_cache/memory_pool.py", line 1, in _create_buffers', "oom_kv_alloc", "kv_pool"),
    ],
)
def test_what_the_drafts_worker_loads_and_captures_is_the_drafts(frame: str, label: str, phase: str) -> None:
    frames = f'Traceback:\n  File "/s/srt/speculative/eagle_worker.py", line 1, in __init__\n  File "/s/srt/{frame}\n'
    told = dead(frames + "torch.OutOfMemoryError: CUDA out of memory.\n")
    assert (told.label, told.phase) == (label, phase)


def test_an_error_of_nccl_while_serving_tells_of_another_rank() -> None:
    died = DEATH.format(error="RuntimeError: NCCL error: remote process exited or there was a network error")
    told = dead(READY + BATCH + died)
    assert (told.label, told.phase, told.confidence) == (Label.PEER_RANK_FAILED, Phase.SERVING, Confidence.MEDIUM)


def test_a_long_run_of_batches_is_told_by_its_ends_with_right_numbers() -> None:
    log = (READY + BATCH * 500 + "RuntimeError: Prefill out of memory. Try to lower your batch size.\n").encode()
    splitter = LineSplitter(skim=True)
    skimmed = [*splitter.feed(log), *splitter.flush()]
    whole = split_log(log)
    assert len(skimmed) == 5 + 48 + 1 + 1
    assert [s for s in skimmed if s in whole] == skimmed
    assert (skimmed[-2].number, skimmed[-1].number) == (505, 506)
    assert diagnose(skimmed, exit_code=-9) == diagnose(whole, exit_code=-9)


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_how_a_log_is_cut_makes_no_difference_to_what_is_skimmed(size: int) -> None:
    died = DEATH.format(error="torch.OutOfMemoryError: CUDA out of memory.")
    log = (READY + BATCH * 90 + died + QUIT).encode()
    splitter = LineSplitter(skim=True)
    cut = [s for at in range(0, len(log), size) for s in splitter.feed(log[at : at + size])] + splitter.flush()
    assert diagnose(cut, exit_code=-9) == diagnose(split_log(log), exit_code=-9)
    assert cut[-1] == split_log(log)[-1]
