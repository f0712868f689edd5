"""What a server says when it dies, for each cause: the messages of SGLang, torch, NCCL and the hub, shortened.

Numbers in them are those of real reports. `{rank}` is the scheduler that speaks, `{gpu}` its GPU on its host, `{port}`
the server's port.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_ROOT = "/usr/local/lib/python3.12/site-packages/sglang/srt"
Frame = tuple[str, str, str]
Ending = Literal["exception", "main", "usage", "child", "stopped", "silence", "goes_on", "bind"]


@dataclass(frozen=True, slots=True)
class LastWords:
    """`before`: lines that go first, those of libraries (`raw`) without the server's prefix.

    `error`: the last line of its traceback, or what stands for it.

    Endings: an "exception" of a scheduler, after which the main process kills itself; an error of the "main" process
    (exit code 1); "usage" (2); a "child" that ends with `code` and says nothing more; "stopped" in order (0);
    "silence"; "goes_on"; "bind": the port is taken.
    """

    phase: str
    ending: Ending
    error: str = ""
    frames: tuple[Frame, ...] = ()
    before: tuple[str, ...] = ()
    code: int = -9
    raw: bool = False

    def traceback(self) -> str:
        """The traceback that ends with the error."""
        lines = ["Traceback (most recent call last):"]
        for file, function, source in self.frames:
            path = file if file.startswith("/") else f"{_ROOT}/{file}"
            lines += [f'  File "{path}", line 412, in {function}', f"    {source}"]
        return "\n".join([*lines, self.error]) + "\n"


_HINTS = """
Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)
3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. (Not recommended. Huge performance loss)
Open an issue on GitHub
"""
_BOILERPLATE = (
    "If exit code is -9 (SIGKILL), a common cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
)
_SCHEDULER: Frame = ("managers/scheduler.py", "run_scheduler_process", "scheduler = Scheduler(server_args, port_args)")
_WORKER: Frame = ("managers/scheduler.py", "init_model_worker", "self.init_tp_model_worker()")
_LOAD = (_SCHEDULER, _WORKER, ("model_executor/model_runner.py", "load_model", "self.model = get_model("))
_POOLS = (
    _SCHEDULER,
    ("managers/scheduler.py", "init_memory_pools", "self.init_target_memory_pool()"),
    ("model_executor/model_runner.py", "alloc_memory_pool", "result = self.kv_cache_configurator.configure("),
)
_POOL_BUFFERS = (*_POOLS, ("mem_cache/memory_pool.py", "_create_buffers", "torch.zeros("))
_BUDGET = (*_POOLS, ("model_executor/pool_configurator.py", "__post_init__", "raise RuntimeError(msg)"))
_TARGET = (
    _SCHEDULER,
    ("managers/scheduler.py", "init_model_worker", "self.init_cuda_graphs()"),
    ("model_executor/runner/decode_cuda_graph_runner.py", "capture", "self.capture_one_batch_size(bs)"),
)
_DRAFT = (
    *_TARGET[:2],
    ("speculative/eagle_draft_extend_cuda_graph_runner.py", "capture", "self.capture_one_batch_size(bs)"),
)
_SERVING = (
    ("managers/scheduler.py", "run_scheduler_process", "scheduler.run_event_loop()"),
    ("managers/scheduler.py", "event_loop_overlap", "batch_result = self.run_batch(batch)"),
)
_FORWARD = (*_SERVING, ("managers/scheduler.py", "run_batch", "self.model_worker.forward_batch_generation(batch)"))
_DIST = (
    _SCHEDULER,
    ("model_executor/model_runner.py", "init_torch_distributed", "initialize_model_parallel("),
    (
        "distributed/device_communicators/pynccl_wrapper.py",
        "NCCL_CHECK",
        'raise RuntimeError(f"NCCL error: {error_str}")',
    ),
)
_MAIN: Frame = (
    "/usr/local/lib/python3.12/site-packages/sglang/launch_server.py",
    "<module>",
    "run_server(server_args)",
)
_ARGS = (_MAIN, ("server_args.py", "__post_init__", "self._handle_speculative_decoding()"))


def _out_of_memory(size: str, free: str) -> str:
    return (
        f"CUDA out of memory. Tried to allocate {size}. GPU {{gpu}} has a total capacity of 94.97 GiB of which {free} "
        "is free. Including non-PyTorch memory, this process has 92.66 GiB memory in use. Of the allocated memory "
        "89.11 GiB is allocated by PyTorch, and 1.43 GiB is reserved by PyTorch but unallocated."
    )


_NO_KERNEL = (
    "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    "CUDA kernel errors might be asynchronously reported at some other API call, so the stacktrace below might be "
    "incorrect.\nFor debugging consider passing CUDA_LAUNCH_BLOCKING=1\n"
    "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions."
)
_UNBALANCED = (
    "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
    "pre_model_load_memory={}, local_gpu_memory={}, local_gpu_memory * 0.9={}"
)
_PREFILL_POOL = (
    "RuntimeError: Prefill out of memory. Try to lower your batch size.\nTry to allocate 8192 tokens.\n"
    "Available full tokens: 8070656 (full_available_size=7936 + full_evictable_size_=8062720)"
)
_WATCHDOG_FLAGGED = "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)"
_HEALTH = (
    "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. "
    "tic start time: 04:35:35. last_heartbeat time: 04:30:01"
)
_CAPPED = (
    "max_running_requests is capped to 2 by the mamba state cache (max_mamba_cache_size=10, 5 state slots per "
    "request). To raise it: increase --mamba-full-memory-ratio or --max-mamba-cache-size, or halve the state size with "
    "--mamba-ssm-dtype bfloat16."
)
_STATE_POOL = (
    "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
    "max_mamba_cache_size=0 (total_rest_memory=1.27 GB, mamba_cache_per_req=74.81 MB). Try: (1) increase "
    "--mem-fraction-static, (2) decrease --mamba-full-memory-ratio, (3) use a smaller model"
)
_HUB = (
    "huggingface_hub.errors.LocalEntryNotFoundError: An error happened while trying to locate the files on the Hub and "
    "we cannot find the appropriate snapshot folder for the specified revision on the local disk. Please check your "
    "internet connection and try again."
)
_OTHER_RANKS = (
    "ValueError: TP rank {rank} could finish the model loading, but there are other ranks that didn't finish loading. "
    "It is likely due to unexpected failures (e.g., OOM) or a slow node."
)
_NCCL_TIMEOUT = (
    "[rank{rank}]:[E1129 13:14:54 ProcessGroupNCCL.cpp:685] [Rank {rank}] Watchdog caught collective operation "
    "timeout: WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE, NumelIn=19008, NumelOut=152064, Timeout(ms)=600000) "
    "ran for 600020 milliseconds before timing out.",
    "terminate called after throwing an instance of 'c10::DistBackendError'",
    "  what():  [PG 3 Rank {rank}] Process group watchdog thread terminated with exception: [Rank {rank}] Watchdog "
    "caught collective operation timeout",
)
_SEGFAULT = (
    "Fatal Python error: Segmentation fault",
    "",
    "Current thread 0x00007f3b6d41df86 (most recent call first):",
    '  File "/usr/local/lib/python3.12/site-packages/triton/runtime/jit.py", line 347 in run',
)
_SHM = (
    "host-a:28:28 [{rank}] misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment "
    "/dev/shm/nccl-lNPZ0f (size 7340384)",
)
_NINJA = (
    "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.\n\n"
    "The above exception was the direct cause of the following exception:\n\n"
    "RuntimeError: Ninja build failed. Ninja output:\n"
    "/usr/local/include/vec_dtypes.cuh:21:10: fatal error: cuda_fp8.h: No such file or directory"
)
_USAGE = (
    "usage: sglang serve [-h] --model-path MODEL_PATH\n"
    "                    [--tokenizer-path TOKENIZER_PATH]\n"
    "                    [--tokenizer-mode {{auto,slow}}]\n"
    "sglang serve: error: unrecognized arguments: --speculative-adaptive"
)
_ENGINE_MAIN: Frame = ("entrypoints/engine.py", "_launch_subprocesses", "scheduler_init_result.wait_for_ready()")
_HUB_FRAME: Frame = (
    "/usr/local/lib/python3.12/site-packages/huggingface_hub/file_download.py",
    "hf_hub_download",
    "raise",
)
_WEIGHTS_FRAME: Frame = ("model_loader/loader.py", "_prepare_weights", "raise RuntimeError(")
_GRAPH_FAILED = "Exception: Capture cuda graph failed: "

WORDS: dict[str, LastWords] = {
    "benign": LastWords("kv_pool", "goes_on", before=(_CAPPED,)),
    "stop_requested": LastWords("warmup", "stopped"),
    "oom_weights": LastWords(
        "weights", "exception", "torch.OutOfMemoryError: " + _out_of_memory("896.00 MiB", "739.81 MiB"), _LOAD
    ),
    "kv_budget": LastWords(
        "kv_pool",
        "exception",
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        _BUDGET,
    ),
    "oom_kv_alloc": LastWords(
        "kv_pool", "exception", "torch.OutOfMemoryError: " + _out_of_memory("32.00 MiB", "13.00 MiB"), _POOL_BUFFERS
    ),
    "state_pool": LastWords("kv_pool", "exception", _STATE_POOL, _BUDGET[:-1]),
    "oom_graph_target": LastWords(
        "graph_target", "exception", _GRAPH_FAILED + _out_of_memory("7.50 GiB", "2.30 GiB") + _HINTS, _TARGET
    ),
    "oom_graph_draft": LastWords(
        "graph_draft", "exception", _GRAPH_FAILED + _out_of_memory("128.00 MiB", "125.56 MiB") + _HINTS, _DRAFT
    ),
    "capture_error": LastWords(
        "graph_target",
        "exception",
        _GRAPH_FAILED + "'BatchPrefillWithRaggedKVCacheWrapper' object has no attribute '_cached_q_data_type'" + _HINTS,
        _TARGET,
    ),
    "runtime_pool": LastWords("warmup", "exception", _PREFILL_POOL, _SERVING),
    "runtime_oom": LastWords(
        "warmup", "exception", "torch.OutOfMemoryError: " + _out_of_memory("4.93 GiB", "3.79 GiB"), _FORWARD
    ),
    "gpu_occupied": LastWords("dist_init", "exception", _UNBALANCED.format("34.35", "94.31", "84.88"), _DIST[:2]),
    "gpu_unequal": LastWords("dist_init", "exception", _UNBALANCED.format("19.23", "30.55", "27.49"), _DIST[:2]),
    "host_oom": LastWords("weights", "child", code=-9),
    "shm_or_disk": LastWords(
        "dist_init",
        "exception",
        "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        _DIST,
        _SHM,
        raw=True,
    ),
    "kernel_arch": LastWords("graph_target", "exception", _NO_KERNEL, _TARGET),
    "jit_toolchain": LastWords("graph_target", "exception", _NINJA, _TARGET),
    "cuda_ima": LastWords(
        "graph_target",
        "exception",
        _GRAPH_FAILED + "CUDA error: an illegal memory access was encountered" + _HINTS,
        _TARGET,
    ),
    "segfault_abort": LastWords("graph_target", "child", before=_SEGFAULT, code=-11, raw=True),
    "nccl_init": LastWords(
        "dist_init", "exception", "RuntimeError: NCCL error: remote process exited or there was a network error", _DIST
    ),
    "nccl_timeout": LastWords("warmup", "child", before=_NCCL_TIMEOUT, code=-6, raw=True),
    "watchdog_hang": LastWords("warmup", "exception", before=(_WATCHDOG_FLAGGED,)),
    "health_stale": LastWords("warmup", "silence", before=(_HEALTH,)),
    "flag_invalid": LastWords("args", "usage", _USAGE),
    "config_conflict": LastWords(
        "args",
        "main",
        "ValueError: speculative_num_draft_tokens should be equal to speculative_num_steps + 1 when "
        "speculative_eagle_topk == 1",
        _ARGS,
    ),
    "model_missing": LastWords(
        "weights", "exception", "RuntimeError: Cannot find any model weights with `/models/m`", (*_LOAD, _WEIGHTS_FRAME)
    ),
    "model_download": LastWords("args", "main", _HUB, (_MAIN, _HUB_FRAME)),
    "port_in_use": LastWords("http_bind", "bind"),
    "peer_rank_failed": LastWords("weights", "exception", _OTHER_RANKS, _LOAD),
    "software_bug": LastWords(
        "warmup",
        "exception",
        "ValueError: Failed to allocate token prealloc indices",
        (*_SERVING[:1], ("mem_cache/radix_cache.py", "match_prefix_lmcache", "raise ValueError(")),
    ),
    "net_config": LastWords(
        "dist_init",
        "exception",
        "RuntimeError: Mooncake Transfer Engine initialization failed.",
        (_SCHEDULER, ("disaggregation/mooncake/conn.py", "initialize", "raise RuntimeError(")),
        ("rdma_context.cpp:1132  GID is NULL, please check your GID index by specifying MC_GID_INDEX",),
        raw=True,
    ),
}

# Of the same causes when requests are served, where the words differ from those of a start.
SERVING_WORDS: dict[str, LastWords] = {
    "cuda_ima": LastWords(
        "serving", "exception", "torch.AcceleratorError: CUDA error: an illegal memory access was encountered", _FORWARD
    ),
    "rank_killed": LastWords("serving", "child", code=-9),
}

CHILD_DIED = "RuntimeError: Rank {rank} scheduler died during initialization (exit code: {code}). " + _BOILERPLATE
CHILD_FRAMES = (_MAIN, _ENGINE_MAIN)


def words_of(label: str, *, serving: bool) -> LastWords:
    """What is said for a label while starting, or while serving."""
    return SERVING_WORDS[label] if serving and label in SERVING_WORDS else WORDS[label]
