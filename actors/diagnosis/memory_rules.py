"""Memory of the device, and the pools that SGLang makes of it."""

from __future__ import annotations

from actors.diagnosis.rule import Rule, Weight, words
from orchestrator.outcome import Label, Phase

# Before "out of memory" comes at most a context such as "Failed to create unquantized linear weights: "; no quotes or
# assignments, which would be a prompt or a setting.
_CONTEXT = r"(?:[^'\"{}=]{0,120}: )?"
_DEVICE = r"(?:CUDA|HIP|NPU|XPU|HPU|MUSA|MPS backend)(?: driver)?(?: error)?(?: \(?\w+\)?)?:? "

RULES = (
    Rule(
        "weights_leave_nothing",
        Label.KV_BUDGET,
        words(r"Loaded weights leave no GPU memory for the KV cache"),
        "ValueError: Loaded weights leave no GPU memory for the KV cache under --mem-fraction-static=0.01. Raise "
        "--mem-fraction-static above 0.011",
        means="the weights alone (target and draft) fill the share of memory that --mem-fraction-static allows",
        fixed=Phase.KV_POOL,
        wraps=True,
    ),
    Rule(
        "kv_cache_has_no_room",
        Label.KV_BUDGET,
        words(
            r"\[unified-memory-pool\] .{0,40}byte budget \d+ cannot fit"
            r"|Not enought? memory\b(?!.*hybrid)(?: for KV cache\b|\. Please try to (?:increase|decrease)|$)"
        ),
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.",
        means="after the weights nothing is left of --mem-fraction-static for the KV cache; it may also be that "
        "another process held the GPU when the server measured it",
        fixed=Phase.KV_POOL,
        wraps=True,
    ),
    Rule(
        "fewer_than_no_tokens_fit",
        Label.KV_BUDGET,
        words(r"max_total_tokens=\d+ is larger than the profiled value -\d"),
        "max_total_tokens=131072 is larger than the profiled value -561981. Use the profiled value instead.",
        weight=Weight.HINT,
        means="the measurement gave fewer than no tokens: the weights leave no room for the KV cache",
        fixed=Phase.KV_POOL,
    ),
    Rule(
        "kv_cache_of_negative_size",
        Label.KV_BUDGET,
        words(r"Trying to create tensor with negative dimension"),
        "RuntimeError: Trying to create tensor with negative dimension -13824: [-13824, 8, 128]",
        weight=Weight.HINT,
        means="the pool came out smaller than nothing: the weights leave no room for it",
        usual=Phase.KV_POOL,
        source="torch",
    ),
    Rule(
        "kv_blocks_do_not_fit",
        Label.KV_BUDGET,
        words(
            r"No available memory for the cache blocks"
            r"|The model's max seq len \(\d+\) is larger than the maximum number"
            r"|To serve at least one request with the models?'?s? max seq len"
            r"|.{0,60}KV cache is needed, which is larger"
        ),
        "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when "
        "initializing the engine.",
        fixed=Phase.KV_POOL,
        source="vLLM",
    ),
    Rule(
        "state_cache_has_no_room",
        Label.STATE_POOL,
        words(
            r"Not enough (?:GPU )?memory for hybrid|Hybrid \(mamba/linear-attention\) state cache is too small"
            r"|.{0,80}needs ~\S+ but only \S+ HBM is free|max_mamba_cache_size=?\s*(?:0|-\d+)\b"
            r"|.{0,40}mamba[ _](?:cache|pool).{0,40}(?:too small|not enough)"
        ),
        "RuntimeError: Not enough GPU memory for hybrid (mamba/linear-attention) state cache. Computed "
        "max_mamba_cache_size=0 (total_rest_memory=1.27 GB, mamba_cache_per_req=74.81 MB).",
        means="the states of the linear-attention layers have a pool of their own, and it does not fit",
        fixed=Phase.STATE_POOL,
        wraps=True,
    ),
    Rule(
        "window_pool_has_no_room",
        Label.STATE_POOL,
        words(r"(?:The )?(?:\w{1,12} )?SWA pool (?:\(|cap )"),
        "ValueError: SWA pool (512 tokens) cannot hold even one request",
        means="the pool of the sliding-window layers does not fit, or leaves no room for the other layers",
        advice=("change --swa-full-tokens-ratio, or lower --max-running-requests and --chunked-prefill-size",),
        fixed=Phase.STATE_POOL,
    ),
    Rule(
        "batch_does_not_fit_pool",
        Label.RUNTIME_POOL,
        words(
            r"(?:Prefill |Decode )?Out of memory(?:\. (?:Try to lower your batch size|Please set a smaller number"
            r"|This should)"
            r"| even after retracting)"
        ),
        "RuntimeError: Prefill out of memory. Try to lower your batch size.",
        means="the server's own token pool is exhausted; this is not an out-of-memory of the device",
        fixed=Phase.SERVING,
        wraps=True,
    ),
    Rule(
        "request_slots_exhausted",
        Label.RUNTIME_POOL,
        words(r"alloc_req_slots runs out of memory|.{0,40}failed to allocate (?:logical KV|unified SWA) slots"),
        "RuntimeError: alloc_req_slots runs out of memory. Please set a smaller number for `--max-running-requests`.",
        means="more requests were to run than there are request slots",
        fixed=Phase.SERVING,
        wraps=True,
    ),
    Rule(
        "state_slots_exhausted",
        Label.RUNTIME_POOL,
        words(
            r"Not enough space for mamba|Can ?not alloc(?:ate)? (?:\w+ )?mamba|can ?not allocate tensor from pool"
            r"|Not enough \w+ auxiliary state slots"
        ),
        "AssertionError: Not enough space for mamba cache, try to increase --mamba-full-memory-ratio or "
        "--max-mamba-cache-size.",
        means="more requests were to run than there are state slots for; the device was not full",
        advice=("raise --max-mamba-cache-size or --mamba-full-memory-ratio, or lower --max-running-requests",),
        fixed=Phase.SERVING,
        raised=True,
    ),
    Rule(
        "workspace_exhausted",
        Label.RUNTIME_POOL,
        words(r"Failed to allocate memory for \w+ with size \d+ and alignment"),
        "RuntimeError: Failed to allocate memory for batch_prefill_tmp_v with size 435814400 and alignment 16 in "
        "AlignedAllocator",
        means="the workspace of the attention kernels is too small for this batch; the device was not full",
        advice=("raise SGLANG_FLASHINFER_WORKSPACE_SIZE, or take another --attention-backend",),
        usual=Phase.SERVING,
        source="FlashInfer",
    ),
    Rule(
        "host_allocation_refused",
        None,
        words(r"\[enforce fail at alloc_cpu\.cpp:\d+\].*can't allocate memory"),
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you "
        "tried to allocate 34359738368 bytes. Error code 12 (Cannot allocate memory)",
        source="torch",
    ),
    Rule(
        "device_out_of_memory",
        None,
        words(_CONTEXT + rf"(?:Triton Error \[\w+\]: |{_DEVICE})out of memory\b"),
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.50 GiB. GPU 1 has a total capacity of 94.97 "
        "GiB of which 2.30 GiB is free.",
        usual=Phase.WEIGHTS,
        source="torch",
        wraps=True,
    ),
    Rule(
        "library_out_of_memory",
        None,
        words(
            r"(?!.*\(may not be an issue)"
            + _CONTEXT
            + r"(?:.{0,40}\b(?:CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|hipErrorOutOfMemory"
            r"|CU(?:BLAS|SPARSE|DNN)_STATUS_ALLOC_FAILED|HIPBLAS_STATUS_ALLOC_FAILED)\b"
            r"|.{0,40}cudaError error: 2 \(out of memory\)"
            r"|\w*Malloc\w* failed: out of memory|.{0,120}Cuda failure (?:\d+ )?'out of memory')"
        ),
        "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        usual=Phase.WEIGHTS,
        source="CUDA",
    ),
    Rule(
        "device_out_of_memory_without_words",
        None,
        words(r"(?:torch(?:\.cuda)?\.)?OutOfMemoryError$"),
        "torch.cuda.OutOfMemoryError",
        usual=Phase.WEIGHTS,
        source="torch",
    ),
)
