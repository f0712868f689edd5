"""Excerpts of logs as people paste them: begun in the middle, cut, indented, of one line. Label and phase."""

from __future__ import annotations

import pytest

from actors.diagnosis import diagnose
from actors.servers.follower import split_log
from orchestrator.outcome import Diagnosis, Label

READY = "[2026-01-05 10:00:44] The server is fired up and ready to roll!\n"
DECODE = "[2026-01-05 10:02:44 TP0] Decode batch, #running-req: 9, #token: 90, token usage: 0.51, #queue-req: 0\n"
LOOP = (
    "[2026-01-05 10:05:40 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    '  File "/s/sglang/srt/managers/scheduler.py", line 745, in event_loop_overlap\n'
)
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB.\n"
GRAPHS = (
    "Of the allocated memory 73.96 GiB is allocated by PyTorch, 1.50 GiB allocated in private pools (e.g., CUDA Graphs)"
)


def told(text: str, exit_code: int | None = None) -> Diagnosis:
    return diagnose(split_log(text.encode()), exit_code=exit_code, is_dead=False)


@pytest.mark.parametrize(
    ("text", "label", "phase"),
    [
        # Device memory.
        ("[2026-05-29 16:30:00 TP1] Load weight begin. avail mem=60.60 GB\n[2026-05-29 16:30:21:955] torch_npu.memory: "
         "[ERROR] [1537] NPU out of memory. Tried to allocate 450.00 MiB", "oom_weights", "weights"),
        ('[rank0]:   File "/v/vllm/v1/worker/gpu_model_runner.py", line 46, in _allocate_kv_cache_tensors\n' + OOM,
         "oom_kv_alloc", "kv_pool"),
        ('  File "/v/vllm/compilation/cuda_graph.py", line 2, in __call__\n' + OOM, "oom_graph_target", "graph_target"),
        ("Exception: Piecewise CUDA Graph failed with error: CUDA out of memory.", "oom_graph_target", "graph_target"),
        ("[2026-05-20 08:00:00 TP0] Capture draft extend cuda graph begin (step 2). avail mem=0.10 GB\n"
         "tvm.error.InternalError: CUDA out of memory", "oom_graph_draft", "graph_draft"),
        ('  File "/p/sglang/srt/managers/controller/manager_single.py", line 151, in loop_for_forward\n' + OOM,
         "runtime_oom", "serving"),
        (OOM, "out_of_memory", "weights"),
        (OOM.rstrip() + f" {GRAPHS}", "out_of_memory", "serving"),
        ("rank 0: RuntimeError: Not enought memory. Please try to increase --mem-fraction-static.",
         "kv_budget", "kv_pool"),
        # Pools of a serving server.
        (READY + DECODE + LOOP + "AssertionError: Not enough space for mamba ping pong idx", "runtime_pool", "serving"),
        ("AssertionError: Can not alloc mamba cache", "runtime_pool", "serving"),
        ("RuntimeError: Prefill out of memory. This should never happen.", "runtime_pool", "serving"),
        ("RuntimeError: Failed to allocate memory for batch_prefill_tmp_v with size 435814400 and alignment 16 in "
         "AlignedAllocator", "runtime_pool", "serving"),
        # The host.
        ("ValueError: Not enough host memory available. Requesting 80.00 GB but only have 20.00 GB free.",
         "host_oom", "kv_pool"),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=7.0.", "host_oom", "weights"),
        ("ProcessExitedException: process 0 terminated with signal SIGKILL", "host_oom", "weights"),
        ("./run.sh: line 12:  42 Segmentation fault      (core dumped) python3", "segfault_abort", "graph_target"),
        ("[host-a:77] Signal: Segmentation fault (11)", "segfault_abort", "graph_target"),
        ("nvcc fatal   : Could not write output file: No space left on device", "shm_or_disk", "weights"),
        ("RuntimeError: dist_init_port 30020 is already in use", "port_in_use", "spawn"),
        # The GPU.
        ("ValueError: Free memory on device (9.44/23.52 GiB) on startup is less than desired GPU memory utilization",
         "gpu_occupied", "dist_init"),
        ("AssertionError: Error in memory profiling. Initial free memory 20 GiB, current", "gpu_occupied", "kv_pool"),
        ("RuntimeError: No implemented fp8_mm for current compute capability: 75", "kernel_arch", "graph_target"),
        ("ValueError: The quantization method fp8 is not supported for the current GPU. Minimum capability: 80.",
         "kernel_arch", "graph_target"),
        ("triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 1",
         "kernel_arch", "graph_target"),
        ("/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1500: indexSelect: block: [32,0,0], thread: [63,0,0] "
         "Assertion `srcIndex < srcSelectDimSize` failed.", "cuda_ima", "serving"),
        ("AssertionError: CUDA_HOME is not set", "jit_toolchain", "graph_target"),
        # Ranks.
        ("[E ProcessGroupNCCL.cpp:474] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)",
         "nccl_timeout", "serving"),
        ("RuntimeError: DeepEP error: CPU recv timeout", "nccl_timeout", "serving"),
        ("RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting "
         "1800000ms for recv operation to complete", "nccl_timeout", "serving"),
        ("RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find interface for: [10.0.0.9]",
         "net_config", "dist_init"),
        # Model and command.
        ("huggingface_hub.errors.HfHubHTTPError: 504 Server Error: Gateway Time-out for url: "
         "https://huggingface.co/api/models/x/y", "model_download", "args"),
        ("OSError: You are trying to access a gated repo.", "model_missing", "args"),
        ('FileNotFoundError: No such file or directory: "/models/m/model-00003-of-00004.safetensors"',
         "model_missing", "weights"),
        ("OSError: Error no file named model.safetensors found in directory /models/m.", "model_missing", "weights"),
        ("usage: launch_server.py [-h] --model-path MODEL_PATH [--tokenizer-path TOKENIZER_PATH]",
         "flag_invalid", "args"),
        ("ValidationError: 1 validation error for VllmConfig", "config_conflict", "args"),
        ("bash: line 1: sglang: command not found", "command_not_found", "launch"),
        # Stops.
        (DECODE + "INFO:     Shutting down\n", "stop_requested", "shutdown"),
        ("(APIServer pid=1) INFO 01-05 10:02:50 [launcher.py:110] Shutting down FastAPI HTTP server.",
         "stop_requested", "shutdown"),
        ("slurmstepd: error: *** JOB 7 ON host-a CANCELLED AT 2026-01-05T10:03:00 DUE TO TIME LIMIT ***",
         "stop_requested", "shutdown"),
        ("RuntimeError: Rank 0 scheduler died during initialization (exit code: -3). If exit code is -9 (SIGKILL), a "
         "common cause is the OS OOM killer.", "unknown", "spawn"),
        # Excerpts of healthy starts.
        ("2026-01-04 03:36:55 TP0] Load weight end. type=Q, avail mem=29.60 GB\n", "ready", "kv_pool"),
        (DECODE.replace("Decode", "Prefill"), "ready", "serving"),
        ("[Gloo] Rank 0 is connected to 1 peer ranks.\n[2026-01-05 10:00:05 TP0] sglang is using nccl==2.27.3\n",
         "ready", "dist_init"),
        ("[2026-01-05 10:00:29 TP0] Mamba Cache is allocated. max_mamba_cache_size: 120", "ready", "state_pool"),
        ("[2024-12-13 01:45:02] INFO:     Uvicorn running on http://0.0.0.0:30000", "ready", "http_bind"),
        ("Multi-thread loading shards:  10% Completed | 16/163 [00:10<01:30,  1.6it/s]\n", "ready", "weights"),
    ],
)  # fmt: skip
def test_an_excerpt_tells_label_and_phase(text: str, label: str, phase: str) -> None:
    found = told(text)
    assert (found.label, found.phase) == (label, phase)


@pytest.mark.parametrize(
    "line",
    [
        "[2025-03-01 10:02:50 TP0] Decode out of memory happened. #retracted_reqs: 1\n",
        "[2026-01-05 10:02:50] Error in request: Traceback (most recent call last):\n"
        '  File "/s/sglang/srt/entrypoints/openai/serving_base.py", line 60, in handle_request\n'
        "ValueError: Unsupported message role\n",
        "[2026-01-05 10:04:01] [http_server] Error: Traceback (most recent call last):\n"
        '  File "/s/sglang/srt/entrypoints/http_server.py", line 377, in generate_request\n'
        "ValueError: Prompt is too long\n",
        "[2026-01-05 10:04:01 TP0] NVFP4 w4a4 requires compute capability >= 10.0; serving this checkpoint\n",
        "[2026-01-05 10:04:01] HiCacheFile: filesystem would fall below min_free; refusing 8 to avoid OOM/ENOSPC.\n",
    ],
)
def test_what_a_living_server_tells_is_no_death(line: str) -> None:
    found = told(READY + DECODE + line)
    assert found.label in {Label.READY, Label.BENIGN}
    assert found.phase == "serving"


def test_the_same_exception_in_the_loop_of_the_scheduler_is_one() -> None:
    assert told(READY + DECODE + LOOP + "ValueError: Prompt is too long\n").label is Label.SOFTWARE_BUG


def test_a_rank_that_spoke_last_of_its_graphs_serves_when_the_server_does() -> None:
    capture = "[2026-01-05 10:00:30 TP1] Capture cuda graph begin. avail mem=8.20 GB\n"
    broken = "[2026-01-05 10:09:12 TP1] Scheduler hit an exception: Traceback (most recent call last):\n" + OOM
    assert told(capture + broken).label is Label.OOM_GRAPH_TARGET
    assert told(capture + READY + DECODE + broken).label is Label.RUNTIME_OOM


def test_an_out_of_memory_without_a_place_gets_it_from_the_exception_that_followed() -> None:
    later = "Exception: Capture cuda graph failed: CUDA out of memory. Tried to allocate 1.31 GiB.\n"
    assert told(OOM + "During handling of the above exception, another exception occurred:\n" + later).label == (
        "oom_graph_target"
    )


def test_a_server_that_ran_was_no_missing_command() -> None:
    assert told(READY + DECODE, 127).label is Label.UNKNOWN
    assert told("", 127).label is Label.COMMAND_NOT_FOUND


DEATHS = (
    (
        "[2026-01-05 10:00:40 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/sgl-workspace/sglang/python/sglang/srt/mem_cache/memory_pool.py", line 499, in _init_mamba_pool\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.31 GiB. GPU 0 has 79 GiB\n",
        "state_pool",
    ),
    ("Exception: Capture cuda graph failed: tvm.error.InternalError: CUDA out of memory\n", "oom_graph_target"),
    (
        "Exception: Capture cuda graph failed: RMSNorm failed with error code no kernel image is available for x\n",
        "kernel_arch",
    ),
    (
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: "
        "19:12:20. last_heartbeat time: 19:12:17\n",
        "benign",
    ),
)


@pytest.mark.parametrize(("text", "label"), DEATHS)
@pytest.mark.parametrize("width", [61, 74, 80])
def test_a_terminal_may_cut_a_log_anywhere(text: str, label: str, width: int) -> None:
    pieces = [line[at : at + width] for line in text.splitlines() for at in range(0, len(line), width)]
    assert told("\n".join(pieces)).label == label


@pytest.mark.parametrize(("text", "label"), DEATHS)
@pytest.mark.parametrize("prefix", ["    ", "\t", "> ", "0: ", "sglang-1  |     "])
def test_what_stands_before_every_line_changes_nothing(text: str, label: str, prefix: str) -> None:
    assert told("".join(f"{prefix}{line}\n" for line in text.splitlines())).label == label


@pytest.mark.parametrize("prefix", ["", "2026-09-22T08:10:24.183700518Z "])
def test_a_shippers_json_is_unpacked(prefix: str) -> None:
    line = '{"level":"error","message":"RuntimeError: Not enough memory. Please try to increase --mem"}'
    assert told(f"{prefix}{line}\n").label is Label.KV_BUDGET
    assert told('{"message": "RuntimeError: Not enough memory. Please try to increase --mem"}').label is Label.UNKNOWN
