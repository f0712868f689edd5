"""Other wordings of each kind of death: lines that real servers, libraries and drivers wrote, over releases and vendors."""

from __future__ import annotations

import pytest

from actors.diagnosis import diagnose
from actors.servers.follower import split_log

# A line (or a few) -> label.
WORDINGS = (
    # Arguments.
    ("sglang serve: error: argument --kv-cache-dtype: invalid choice: 'fp4_e2m1'", "flag_invalid"),
    (
        "launch_server.py: error: ambiguous option: --pp could match --pp-size, --pp-max-micro-batch-size",
        "flag_invalid",
    ),
    ("launch_server.py: error: the following arguments are required: --model-path/--model", "flag_invalid"),
    ("launch_server.py: error: argument --tp-size/--tensor-parallel-size: expected one argument", "flag_invalid"),
    ("vllm: error: unrecognized arguments: --mem-fraction-static 0.8", "flag_invalid"),
    ("TypeError: ServerArgs.__init__() got an unexpected keyword argument 'enable_ep_moe'", "flag_invalid"),
    ("/opt/venv/bin/python: No module named sglang.launch_server", "command_not_found"),
    ("ValueError: Model architectures ['Qwen4ForCausalLM'] are not supported for now.", "config_conflict"),
    ("AssertionError: 20 is not divisible by 8", "config_conflict"),
    (
        "ValueError: The output_size of gate's and up's weight = 192 is not divisible by weight quantization "
        "block_n = 128.",
        "config_conflict",
    ),
    ("RuntimeError: CUDA error: invalid device ordinal", "config_conflict"),
    ("RuntimeError: No CUDA GPUs are available", "config_conflict"),
    # Memory of the device.
    (
        "torch.OutOfMemoryError: NPU out of memory. Tried to allocate 72.00 MiB (NPU 0; 61.27 GiB total capacity; 56.05 "
        "GiB already allocated; 5.04 MiB free; 58.39 GiB reserved in total by PyTorch).",
        "out_of_memory",
    ),
    ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB.", "out_of_memory"),
    ("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.65 GiB", "out_of_memory"),
    ("tvm.error.InternalError: CUDA out of memory", "out_of_memory"),
    ("RuntimeError: Triton Error [CUDA]: out of memory", "out_of_memory"),
    ("Failed to initialize lk_moe: CUDA out of memory. Tried to allocate 1.50 GiB.", "oom_weights"),
    ("RuntimeError: CUDA driver error: out of memory", "out_of_memory"),
    ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "out_of_memory"),
    ("Exception: Capture CUDA graph failed: CUDA out of memory. Tried to allocate 1.31 GiB.", "oom_graph_target"),
    ("Exception: Capture cuda graph failed: Triton Error [CUDA]: out of memory", "oom_graph_target"),
    ("Exception: Capture single-CG draft extend failed: CUDA out of memory. Tried to allocate", "oom_graph_draft"),
    ("Exception: Capture frozen-KV MTP cuda graph failed: an unexpected shape", "capture_error"),
    ("RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current value: 0.2", "kv_budget"),
    ("RuntimeError: Not enough memory. Please try to decrease --mem-fraction-static.", "kv_budget"),
    ("ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`", "kv_budget"),
    (
        "ValueError: The model's max seq len (131072) is larger than the maximum number of tokens that can be stored in "
        "KV cache (49408).",
        "kv_budget",
    ),
    (
        "ValueError: To serve at least one request with the models's max seq len (262144), (8.00 GiB KV cache is needed, "
        "which is larger than the available KV cache memory (5.10 GiB).",
        "kv_budget",
    ),
    ("RuntimeError: Trying to create tensor with negative dimension -13824: [-13824, 8, 128]", "kv_budget"),
    (
        "RuntimeError: Hybrid (mamba/linear-attention) state cache is too small to serve any requests. "
        "max_mamba_cache_size=2, mamba_ratio=3, resulting max_num_reqs=0.",
        "state_pool",
    ),
    (
        "RuntimeError: Not enough memory for hybrid mamba state cache. Please try to increase --mem-fraction-static.",
        "state_pool",
    ),
    ("RuntimeError: Decode out of memory. Try to lower your batch size.", "runtime_pool"),
    ("RuntimeError: Out of memory. Please set a smaller number for `--max-running-requests`.", "runtime_pool"),
    ("RuntimeError: HiSparse spec decode failed to allocate logical KV slots.", "runtime_pool"),
    # GPUs.
    (
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=60.11, local_gpu_memory=78.81, local_gpu_memory * 0.9=70.93",
        "gpu_occupied",
    ),
    (
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=23.1, local_gpu_memory=47.1, local_gpu_memory * 0.9=42.4",
        "gpu_unequal",
    ),
    ("ValueError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes.", "gpu_occupied"),
    ("RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable", "gpu_occupied"),
    ("RuntimeError: CUDA error: misaligned address", "cuda_ima"),
    ("RuntimeError: CUDA error: unspecified launch failure", "cuda_ima"),
    ("RuntimeError: CUDA error: device-side assert triggered", "cuda_ima"),
    ("RuntimeError: Triton Error [CUDA]: an illegal memory access was encountered", "cuda_ima"),
    ("RuntimeError: HIP error: an illegal memory access was encountered", "cuda_ima"),
    ("Memory access fault by GPU node-3 (Agent handle: 0x55d0) on address 0x7f1c000. Reason: Unknown.", "cuda_ima"),
    (
        "[rank5]:[E1129 13:14:54.1 ProcessGroupNCCL.cpp:1895] [PG ID 2 PG GUID 3 Rank 5] Process group watchdog thread "
        "terminated with exception: CUDA error: an illegal memory access was encountered",
        "cuda_ima",
    ),
    (
        "terminate called after throwing an instance of 'c10::Error'\n  what():  CUDA error: an illegal memory access was "
        "encountered",
        "cuda_ima",
    ),
    ("RuntimeError: RMSNorm failed with error code no kernel image is available for execution on the", "kernel_arch"),
    ("RuntimeError: CUDA error: the provided PTX was compiled with an unsupported toolchain.", "kernel_arch"),
    ("RuntimeError: FlashAttention only supports Ampere GPUs or newer.", "kernel_arch"),
    ("ImportError: \n[sgl_kernel] CRITICAL: Could not load any common_ops library!", "kernel_arch"),
    (
        "ImportError: /venv/lib/python3.10/site-packages/sgl_kernel/common_ops.abi3.so: undefined symbol: "
        "_ZN3c104cuda9SetDeviceEa",
        "kernel_arch",
    ),
    ("RuntimeError: HIP error: invalid device function", "kernel_arch"),
    (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).",
        "kernel_arch",
    ),
    ("ValueError: type fp8e4nv not supported in this architecture. The supported fp8 dtypes are", "kernel_arch"),
    ("AssertionError: cutlass_fp8 MoE requires SM90, SM100, or SM120 GPUs", "kernel_arch"),
    # Compilers.
    ("RuntimeError: Ninja build failed. Ninja output:\nninja: error: loading 'build.ninja'", "jit_toolchain"),
    ("RuntimeError: Error building extension 'batch_prefill_with_kv_cache'", "jit_toolchain"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'", "jit_toolchain"),
    ("OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.", "jit_toolchain"),
    ("RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)", "jit_toolchain"),
    ("/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found", "jit_toolchain"),
    ("nvcc fatal   : Unsupported gpu architecture 'compute_120a'", "jit_toolchain"),
    ("ptxas fatal   : Value 'sm_121a' is not defined for option 'gpu-name'", "jit_toolchain"),
    ("RuntimeError: Failed to find C compiler. Please specify via CC environment variable.", "jit_toolchain"),
    ("ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory", "jit_toolchain"),
    (
        "subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', '-O3']' returned non-",
        "jit_toolchain",
    ),
    # Host.
    ("[Sun Mar 24 23:54:53 2024] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/", "host_oom"),
    ("Mar 24 23:54:53 host-a kernel: Out of memory: Killed process 6154 (sglang::schedul)", "host_oom"),
    ("[  921.1] Memory cgroup out of memory: Killed process 812 (python3)", "host_oom"),
    ("OSError: [Errno 12] Cannot allocate memory", "host_oom"),
    ("Reason: OOMKilled", "host_oom"),
    ("[2026-01-02 10:00:00] Rank 0 scheduler is dead. Please check\n[2026-01-02 10:00:00] Exit code: -9", "host_oom"),
    ("OSError: [Errno 28] No space left on device", "shm_or_disk"),
    ("RuntimeError: unable to write to file </torch_123_456>: No space left on device (28)", "shm_or_disk"),
    (
        "RuntimeError: DataLoader worker (pid 325) is killed by signal: Bus error. It is possible that dataloader's "
        "workers are out of shared memory.",
        "shm_or_disk",
    ),
    ("host-a:28:91 [2] misc/shmutils.cc:87 NCCL WARN Error while creating shared memory segment /dev", "shm_or_disk"),
    ("OSError: [Errno 122] Disk quota exceeded", "shm_or_disk"),
    ("Segmentation fault (core dumped)", "segfault_abort"),
    ("Fatal Python error: Bus error", "segfault_abort"),
    ("!!!!!!! Segfault encountered !!!!!!!", "segfault_abort"),
    ("double free or corruption (!prev)", "segfault_abort"),
    ("Subprocess scheduler_0 (pid=9) crashed with exit code -6. Triggering SIGQUIT", "segfault_abort"),
    ("OSError: [Errno 98] Address already in use", "port_in_use"),
    (
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. port: "
        "29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        "port_in_use",
    ),
    ("ERROR:    [Errno 98] error while attempting to bind on address ('0.0.0.0', 30000): address", "port_in_use"),
    # Model.
    ("OSError: m/x is not a local folder and is not a valid model identifier listed on 'https://h'", "model_missing"),
    ("FileNotFoundError: [Errno 2] No such file or directory: '/models/m/config.json'", "model_missing"),
    ("huggingface_hub.errors.GatedRepoError: 401 Client Error. (Request ID: Root=1-6)", "model_missing"),
    ("huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name'", "model_missing"),
    ("OSError: m/x does not appear to have a file named config.json. Checkout 'https://h' for", "model_missing"),
    ("safetensors_rust.SafetensorError: Error while deserializing header: MetadataIncompleteBuffer", "model_missing"),
    ("OSError: We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find", "model_download"),
    (
        "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Max "
        "retries exceeded with url: /openai/gpt-oss-120b/resolve/main/config.json",
        "model_download",
    ),
    # Network.
    ("torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 2/4 clients", "nccl_init"),
    (
        "torch.distributed.DistBackendError: [3] is setting up NCCL communicator and retrieving ncclUniqueId from [0] via "
        "c10d key-value store by key '0', but store->get('0') got error: Socket Timeout",
        "nccl_init",
    ),
    ("torch.distributed.DistNetworkError: The client socket has timed out after 600000ms while trying", "nccl_init"),
    ("RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)", "nccl_init"),
    ("torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:268, ncclSystemError", "nccl_init"),
    (
        "[rank0]:[E321 02:07:08.408271257 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600060 milliseconds before timing out.",
        "nccl_timeout",
    ),
    (
        "[rank7]:[E626 05:14:36.3 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID 0(default_pg) Rank 7] ProcessGroupNCCL's "
        "watchdog got stuck for 480 seconds without making progress",
        "nccl_timeout",
    ),
    ("RuntimeError: [../third_party/gloo/pair.cc:534] Connection closed by peer [10.0.0.1]:10812", "peer_rank_failed"),
    ("E0115 05:20:19.945159   309 rdma_context.cpp:81] Failed to open device mlx5_8 on port  with GID 0", "net_config"),
    ("E0911 06:19:37.204734  3746 rdma_transport.cpp:426] RdmaTransport: No available RNIC", "net_config"),
    ("/opt/nvshmem/src/ibgda.cpp:1889: NULL value cannot allocate mlx5dv_devx_uar", "net_config"),
    ("RuntimeError: [enforce fail at device.cc:84] ifa != nullptr. Unable to find address for: eth0", "net_config"),
    # Capture.
    ("torch._dynamo.exc.BackendCompilerFailed: backend='<sglang>' raised:", "capture_error"),
    ("RuntimeError: CUDA error: operation not permitted when stream is capturing", "capture_error"),
    # Life.
    (
        "[2025-09-29 07:27:30] Initialization failed. warmup error: Traceback (most recent call last):\n"
        "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='0.0.0.0', port=8000): Read timed out.",
        "start_timeout",
    ),
    ("[2026-01-02 10:00:00 TP3] Watchdog timeout (self.watchdog_timeout=300)", "watchdog_hang"),
    ("Detokenizer watchdog timeout (self.watchdog_timeout=300.0, self.soft=False)", "watchdog_hang"),
    ("ValueError: pool memory leak detected! [full] total=9116160, available=768", "software_bug"),
    ("ValueError: token_to_kv_pool_allocator memory leak detected! full_available_size=6016", "software_bug"),
    ("[2026-01-02 10:00:00] Received SIGTERM. Exiting.", "stop_requested"),
    ("[2026-01-02 10:00:00] SIGTERM received on node_rank 1; ignoring it", "stop_requested"),
)


@pytest.mark.parametrize(("text", "label"), WORDINGS)
def test_a_wording_tells_its_kind(text: str, label: str) -> None:
    assert diagnose(split_log(text.encode()), exit_code=-9).label == label
