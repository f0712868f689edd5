"""What a dying scheduler prints, frame by frame as SGLang 0.5.23 does."""

from __future__ import annotations

from actors.emulator.memory import Death

_ROOT = "/usr/local/lib/python3.12/site-packages/sglang/srt"

_INIT = (
    ("managers/scheduler.py", 6362, "run_scheduler_process", "scheduler = Scheduler(server_args, port_args)"),
    ("managers/scheduler.py", 568, "__init__", "self.init_model_worker()"),
)
_LOAD = (
    *_INIT,
    ("managers/scheduler.py", 1131, "init_model_worker", "self.init_tp_model_worker()"),
    ("managers/tp_worker.py", 286, "__init__", "self._init_model_runner()"),
    ("model_executor/model_runner.py", 903, "load_model", "self.model = get_model("),
    ("model_loader/loader.py", 742, "load_model", "model = _initialize_model("),
)
_BALANCE = (
    *_INIT,
    ("managers/scheduler.py", 1131, "init_model_worker", "self.init_tp_model_worker()"),
    ("managers/tp_worker.py", 286, "__init__", "self._init_model_runner()"),
    ("distributed/bootstrap.py", 450, "_check_tp_memory_balance", "raise RuntimeError(msg)"),
)
_KV = (
    *_INIT,
    ("managers/scheduler.py", 1137, "init_model_worker", "self.init_memory_pools()"),
    ("managers/scheduler.py", 1100, "init_memory_pools", "self.init_target_memory_pool()"),
    ("managers/scheduler.py", 1090, "init_target_memory_pool", "self.tp_worker.alloc_memory_pool("),
    ("managers/tp_worker.py", 409, "alloc_memory_pool", "self.model_runner.alloc_memory_pool("),
    ("model_executor/model_runner.py", 982, "alloc_memory_pool", "result = self.kv_cache_configurator.configure("),
    (
        "mem_cache/kv_cache_configurator.py",
        476,
        "configure",
        "config = self._resolve_memory_pool_config(pre_model_load_memory)",
    ),
)
_KV_TOKENS = (
    *_KV,
    (
        "mem_cache/kv_cache_configurator.py",
        3183,
        "_resolve_memory_pool_config",
        "config = self.config_from_budget(available_bytes)",
    ),
    ("model_executor/pool_configurator.py", 99, "__post_init__", "raise RuntimeError(msg)"),
)
_KV_FRACTION = (
    *_KV,
    ("mem_cache/kv_cache_configurator.py", 3050, "_profile_available_bytes", "raise ValueError("),
)
_KV_FRAMES = {"ValueError": _KV_FRACTION, "RuntimeError": _KV_TOKENS}
_GRAPH_FILES = {
    "target decode": "model_executor/runner/decode_cuda_graph_runner.py",
    "target verify": "model_executor/runner/decode_cuda_graph_runner.py",
    "draft decode": "speculative/eagle_draft_cuda_graph_runner.py",
    "draft extend": "speculative/eagle_draft_extend_cuda_graph_runner.py",
}
_MEETING = (
    _INIT[0],
    ("managers/scheduler.py", 536, "__init__", "bootstrap.init_parallel_runtime("),
    ("distributed/bootstrap.py", 322, "_init_parallel_groups", "init_distributed_environment("),
    ("distributed/parallel_state.py", 2517, "init_distributed_environment", "torch.distributed.init_process_group("),
)
_BARRIER = (
    *_INIT,
    ("managers/scheduler.py", 1131, "init_model_worker", "self.init_tp_model_worker()"),
    ("managers/tp_worker.py", 286, "__init__", "self._init_model_runner()"),
    ("model_executor/model_runner_components/load_model_utils.py", 393, "dist_barrier_after_load", "raise ValueError("),
)
_PEER_STARTING = (*_INIT, ("distributed/parallel_state.py", 1497, "barrier", "torch.distributed.barrier("))
_PEER_SERVING = (
    ("managers/scheduler.py", 6368, "run_scheduler_process", "scheduler.run_event_loop()"),
    ("managers/scheduler.py", 2078, "event_loop_overlap", "self.ingest_requests()"),
    (
        "managers/scheduler_components/request_receiver.py",
        206,
        "_broadcast_reqs_across_ranks",
        "recv_reqs = broadcast_pyobj(",
    ),
    ("utils/common.py", 2715, "broadcast_pyobj", "dist.broadcast(tensor_size, src=src, group=dist_group)"),
)
_SPAN = {"meeting": _MEETING, "barrier": _BARRIER, "peer": _PEER_STARTING, "peer_serving": _PEER_SERVING}
HINTS = """Possible solutions:
1. set --mem-fraction-static to a smaller value (e.g., 0.8 or 0.7)
2. set --cuda-graph-max-bs-decode to a smaller value (e.g., 16)
3. disable decode CUDA graph by --cuda-graph-backend-decode=disabled. (Not recommended. Huge performance loss)
Open an issue on GitHub
"""

Frame = tuple[str, int, str, str]


def _traceback(frames: tuple[Frame, ...], error: str) -> str:
    lines = ["Traceback (most recent call last):"]
    for file, line, function, code in frames:
        lines += [f'  File "{_ROOT}/{file}", line {line}, in {function}', f"    {code}"]
    return "\n".join([*lines, error])


def scheduler_traceback(death: Death) -> str:
    """The text after `Scheduler hit an exception: `."""
    error = f"{death.error}: {death.message}"
    if death.phase in _SPAN:
        return _traceback(_SPAN[death.phase], error) + "\n"
    if death.phase == "init":
        return _traceback(_BALANCE, error) + "\n"
    if death.phase in {"load", "draft_load"}:
        return _traceback(_LOAD, error) + "\n"
    if death.phase == "kv":
        return _traceback(_KV_FRAMES.get(death.error, _KV), error) + "\n"
    file = _GRAPH_FILES[death.graph or "target decode"]
    inner = _traceback(
        ((file, 412, "__init__", "self.capture()"), (file, 520, "capture", "self.capture_one_batch_size(bs)")), error
    )
    outer = _traceback(
        (
            *_INIT,
            ("managers/scheduler.py", 1151, "init_model_worker", "self.init_cuda_graphs()"),
            (file, 414, "__init__", "raise Exception("),
        ),
        f"Exception: Capture cuda graph failed: {death.message}\n{HINTS}",
    )
    return f"{inner}\n\nDuring handling of the above exception, another exception occurred:\n\n{outer}"
