"""Fragments of logs as reports quote them: one line to a few, from anywhere, with others' prefixes."""

from __future__ import annotations

import pytest

from actors.diagnosis import diagnose
from actors.servers.follower import split_log

# Lines -> label and phase.
FRAGMENTS = (
    (
        "[2025-07-02 07:41:59 DP0 TP0] max_total_tokens=131072 is larger than the profiled value -561981. "
        "Use the profiled value instead.",
        "kv_budget",
        "kv_pool",
    ),
    (
        "error: unrecognized arguments: --served-model-name minimax-h3",
        "flag_invalid",
        "args",
    ),
    (
        '  File "/sgl-workspace/srt/distributed/device_communicators/custom_all_reduce.py", line 307, in '
        "register_graph_buffers\n"
        "    handle, offset = ops.get_graph_buffer_ipc_meta(self._ptr)\n"
        "RuntimeError: invalid argument",
        "capture_error",
        "graph_target",
    ),
    (
        "(VllmWorkerProcess pid=1253) ERROR 12-25 01:10:28 multiproc_worker_utils.py:229] RuntimeError: "
        "NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
        "nccl_init",
        "dist_init",
    ),
    (
        "ERROR 10-11 12:27:29 engine.py:157] OutOfMemoryError('CUDA out of memory. Tried to allocate "
        "138.00 MiB. Of the allocated memory 71.57 GiB is allocated by PyTorch, with 39.77 MiB allocated "
        "in private pools (e.g., CUDA Graphs)')\n"
        "ERROR 10-11 12:27:29 engine.py:157] Traceback (most recent call last):\n"
        'ERROR 10-11 12:27:29 engine.py:157]   File "/vllm/engine/multiprocessing/engine.py", line 155, in '
        "start\n"
        "ERROR 10-11 12:27:29 engine.py:157]     self.run_engine_loop()",
        "out_of_memory",
        "serving",
    ),
    (
        "[2026-02-24T20:21:58Z] (EngineCore_DP0 pid=6940) ValueError: Free memory on device cuda:0 "
        "(19.77/22.05 GiB) on startup is less than desired GPU memory utilization (0.9, 19.84 GiB).",
        "gpu_occupied",
        "dist_init",
    ),
    (
        "May 16, 2026 @ 20:48:02.100    [2026-05-16 12:48:02] Health check failed. Server couldn't get a "
        "response from detokenizer for last 20 seconds. tic start time: 12:47:42. last_heartbeat time: "
        "12:45:01",
        "health_stale",
        "serving",
    ),
    (
        "May 16, 2026 @ 20:44:55.560    [2026-05-16 12:44:55 DP2 TP2] Decode batch, #running-req: 1, "
        "#token: 31936, token usage: 0.22, cuda graph: True, gen throughput (token/s): 0.39, #queue-req: 0",
        "ready",
        "serving",
    ),
    (
        "2025-07-02 16:41:31 | ERROR | stderr | FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
        "jit_toolchain",
        "graph_target",
    ),
    (
        "AssertionError: Cannot find CUDA_HOME. Please set CUDA_HOME",
        "jit_toolchain",
        "graph_target",
    ),
    (
        "[host-a:12345:0:12345] Caught signal 11 (Segmentation fault: address not mapped to object at address 0x8)",
        "segfault_abort",
        "graph_target",
    ),
    (
        "Fatal Python error: Segmentation fault\n"
        "\n"
        "Current thread 0x00007f4858f86740 (most recent call first):\n"
        '  File "/srt/distributed/device_communicators/pynccl_wrapper.py", line 351 in ncclCommInitRank\n'
        '  File "/srt/model_executor/model_runner.py", line 253 in init_torch_distributed\n'
        '  File "/srt/model_executor/model_runner.py", line 178 in __init__',
        "segfault_abort",
        "dist_init",
    ),
    (
        "/opt/nvshmem/src/modules/transport/ibrc/ibrc.cpp:418: non-zero status: 110 ibv_modify_qp failed",
        "net_config",
        "dist_init",
    ),
    (
        "nvshmem setup connections failed\nnvshmem initialization failed, exiting",
        "net_config",
        "dist_init",
    ),
    (
        "E0302 10:03:01.210035 72983 rdma_context.cpp:412] No suitable GID found on rocep153s0",
        "net_config",
        "dist_init",
    ),
    (
        "RuntimeError: Failed: Assertion error /opt/DeepEP/csrc/kernels/internode.cu:1713 "
        "'num_max_nvl_chunked_recv_tokens / num_rdma_ranks > num_max_rdma_chunked_send_tokens'",
        "config_conflict",
        "serving",
    ),
    (
        "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl- (size 192814336), error: "
        "No such file or directory (2)",
        "nccl_init",
        "dist_init",
    ),
    (
        "[2026-04-22 21:34:20] host-a:202016:202235 [0] misc/shmutils.cc:88 NCCL WARN Error: failed to "
        "extend /dev/shm/nccl-WU88OE to 9637892 bytes, error: No space left on device (28)",
        "shm_or_disk",
        "dist_init",
    ),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network "
        "address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "port_in_use",
        "dist_init",
    ),
    (
        "huggingface_hub.utils._errors.LocalEntryNotFoundError: Connection error, and we cannot find the "
        "requested files in the disk cache. Please try again or make sure your Internet connection is on.",
        "model_download",
        "args",
    ),
    (
        "RuntimeError: Decode status not found for request 61f1. It may be due to the request being "
        "evicted from the decode status due to memory pressure.",
        "software_bug",
        "serving",
    ),
    (
        "Exception in ControllerSingle:\n"
        "Traceback (most recent call last):\n"
        '  File "/sglang_src/srt/managers/tp_worker.py", line 251, in forward_step\n'
        "    self.forward_decode_batch(self.running_batch)\n"
        '  File "/site-packages/flashinfer/sampling.py", line 483, in top_k_top_p_sampling_from_probs\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total "
        "capacity of 23.65 GiB",
        "runtime_oom",
        "serving",
    ),
    (
        '[2026-05-28 08:41:19] INFO:     127.0.0.1:53826 - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
        "[2026-05-28 08:41:20] Scheduler hit an exception: Traceback (most recent call last):\n"
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.16 GiB. GPU 0 has a total "
        "capacity of 23.65 GiB",
        "runtime_oom",
        "serving",
    ),
    (
        "ERROR 05-13 21:09:41 [core.py:396]   File "
        '"/vllm/model_executor/layers/vocab_parallel_embedding.py", line 459, in __init__\n'
        "ERROR 05-13 21:09:41 [core.py:396] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate "
        "1.16 GiB. GPU 0 has a total capacity of 23.65 GiB",
        "oom_weights",
        "weights",
    ),
    (
        "[torch_memory_saver.cpp] cudaError error: 2 (out of memory)  file=csrc/core.cpp func=resume line=172",
        "out_of_memory",
        "weights",
    ),
    (
        "Traceback (most recent call last):\n"
        '  File "/srt/disaggregation/nixl/conn.py", line 1153, in transfer_worker\n'
        "RuntimeError: PD Disaggregation does NOT support PD different TP sizes for non-MLA models",
        "config_conflict",
        "serving",
    ),
    (
        "RuntimeError: The DSV4 SWA pool cap (2048 tokens, 1.2 GB) leaves no room for the full KV pool",
        "state_pool",
        "state_pool",
    ),
    (
        "RuntimeError: [unified-memory-pool] full: byte budget 7340032 cannot fit ONE worst-case request",
        "kv_budget",
        "kv_pool",
    ),
    (
        "RuntimeError: Mamba state layouts differ between prefill and decode (src item_lens=[7])",
        "config_conflict",
        "args",
    ),
    ("AssertionError: Not enough memory for KV cache, try reducing --num-pages", "kv_budget", "kv_pool"),
    ("NotImplementedError: No compiled nvfp4 quantization kernel for SM 120.", "kernel_arch", "graph_target"),
    (
        "subprocess.CalledProcessError: Command '/opt/triton/backends/nvidia/bin/ptxas -lineinfo -v "
        "--gpu-name=sm_120 /tmp/t.ptx' returned non-zero exit status 255.",
        "jit_toolchain",
        "graph_target",
    ),
    (
        "\u2502 [2025-02-28 09:28:25 TP7] Watchdog timeout (self.watchdog_timeout=300)          \u2502",
        "watchdog_hang",
        "serving",
    ),
    ("RuntimeError: [ERROR] HCCL error in: torch_npu/ProcessGroupHCCL.cpp:64", "nccl_init", "dist_init"),
    ("sglang-1 exited with code 137", "host_oom", "weights"),
    ("sglang-1 exited with code 139", "segfault_abort", "graph_target"),
    ("INFO:     Received signal 15, shutting down", "stop_requested", "shutdown"),
    (
        "[2025-05-12 10:00:00 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/srt/managers/scheduler.py", line 1761, in move_ready_grammar_requests\n'
        "IndexError: list index out of range",
        "software_bug",
        "serving",
    ),
    # Healthy.
    (
        "[2025-01-30 18:11:27 TP1] Setup Custom allreduce failed with CUDART error: peer access is not supported "
        "between these two devices. To silence this warning, specify --disable-custom-all-reduce explicitly.",
        "benign",
        "args",
    ),
    (
        "[2025-07-02 07:41:59 TP0] max_total_tokens=90000 is larger than the profiled value 80000. Use the "
        "profiled value instead.",
        "benign",
        "args",
    ),
    (
        "[2025-09-17 16:23:13 TP1] Decode transfer failed for request rank=1 decode_req.req.rid='3c' with "
        "exception KVTransferError(bootstrap_room=16): Failed due to an unknown reason from another rank\n"
        '[2025-09-17 16:23:16] INFO:     10.10.11.1:41712 - "GET /health HTTP/1.1" 200 OK',
        "benign",
        "serving",
    ),
    (
        "sglang-1  | asyncio.exceptions.CancelledError\n"
        'sglang-1  | [2025-10-24 11:07:36] INFO:     127.0.0.1:45650 - "POST /generate HTTP/1.1" 500 Internal '
        "Server Error",
        "benign",
        "serving",
    ),
    (
        "[torch_memory_saver.cpp] cuMemCreate CUDA_ERROR_OUT_OF_MEMORY (may not be an issue e.g. torch "
        "allocator will free cache and retry)",
        "benign",
        "args",
    ),
    (
        "UserWarning: Warning: available_size=38896\nKV cache pool leak detected!",
        "benign",
        "serving",
    ),
    (
        "[2025-11-20 08:11:02 TP0] Using default MoE kernel config. Performance might be sub-optimal! "
        "Config file not found at /opt/configs/E=128,N=192,device_name=NVIDIA_H20.json",
        "benign",
        "args",
    ),
    (
        "[2025-11-20 08:11:02] Ignore import error when loading sglang.srt.models.glm4v: cannot import "
        "name 'Glm4vConfig'",
        "benign",
        "args",
    ),
    (
        "[2025-11-20 08:11:02] Input length (140001 tokens) exceeds the maximum allowed length (131066 "
        "tokens).\n"
        '[2025-11-20 08:11:02] INFO:     127.0.0.1:42040 - "POST /v1/chat/completions HTTP/1.1" 400 Bad '
        "Request",
        "benign",
        "serving",
    ),
    (
        '[2026-05-28 08:41:19] INFO:     127.0.0.1:53826 - "POST /v1/chat/completions HTTP/1.1" 200 OK',
        "ready",
        "serving",
    ),
    (
        "[rank0]:[W1120 08:11:02.1 ProcessGroupNCCL.cpp:1538] Warning: WARNING: destroy_process_group() "
        "was not called before program exit, which can leak resources.",
        "benign",
        "args",
    ),
)


@pytest.mark.parametrize(("log", "label", "phase"), FRAGMENTS)
def test_a_fragment_tells_its_label_and_its_phase(log: str, label: str, phase: str) -> None:
    told = diagnose(split_log(log.encode()), is_dead=False)
    assert (told.label, told.phase) == (label, phase)


def test_a_warning_aside_changes_nothing_where_the_log_shows_a_healthy_start() -> None:
    log = (
        "Using default MoE kernel config. Performance might be sub-optimal!\nThe server is fired up and ready to roll!"
    )
    assert diagnose(split_log(log.encode()), is_dead=False).label == "ready"
