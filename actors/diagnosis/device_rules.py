"""The GPUs: who holds them, whether there are kernels for them, and kernels that break."""

from __future__ import annotations

import re

from actors.diagnosis.rule import Rule, Weight, words
from orchestrator.outcome import Confidence, Label, Phase

# GiB of the cards that there are, as the driver counts them; on an empty one at most the context is missing.
_CARD_GIB = (
    *(7.7, 9.7, 10.6, 11.6, 15.7, 19.7, 21.5, 23.6, 31.6, 39.5, 44.5, 47.5, 63.9, 79.2, 93.1, 95.1, 119.0, 139.8),
    *(178.4, 184.0, 191.7, 255.7, 267.6, 287.6),
)
_CONTEXT_GIB = 1.5
_UNBALANCED = re.compile(r"pre_model_load_memory=(?P<least>[\d.]+),?local_gpu_memory=(?P<own>[\d.]+)")


def _occupied_or_unequal(message: str) -> Label:
    """Cards of two sizes that are both empty are unequal; a card with less than any empty one has is occupied."""
    told = _UNBALANCED.search("".join(message.split()))  # wherever a terminal cut it
    if told is None:
        return Label.GPU_OCCUPIED
    both = all(_is_empty_card(float(told[name].rstrip("."))) for name in ("least", "own"))
    return Label.GPU_UNEQUAL if both else Label.GPU_OCCUPIED


def _is_empty_card(free_gib: float) -> bool:
    return any(size - _CONTEXT_GIB <= free_gib <= size + 0.1 for size in _CARD_GIB)


RULES = (
    Rule(
        "ranks_see_different_memory",
        Label.GPU_OCCUPIED,
        words(r"The memory capacity is unbalanced\. Some GPUs may be occupied"),
        "RuntimeError: The memory capacity is unbalanced. Some GPUs may be occupied by other processes. "
        "pre_model_load_memory=34.35, local_gpu_memory=94.31, local_gpu_memory * 0.9=84.88",
        means="the ranks of one group do not have the same free memory; by the numbers one card is not empty, or the "
        "cards are of different sizes",
        usual=Phase.DIST_INIT,
        decide=_occupied_or_unequal,
        confidence=Confidence.MEDIUM,
        wraps=True,
    ),
    Rule(
        "less_free_than_wanted",
        Label.GPU_OCCUPIED,
        words(r"Free memory on device (?:\S+ )?\([\d./]+ GiB\) on startup is"),
        "ValueError: Free memory on device cuda:3 (34.35/39.49 GiB) on startup is less than desired GPU memory "
        "utilization (0.9, 35.54 GiB).",
        usual=Phase.DIST_INIT,
        source="vLLM",
        wraps=True,
    ),
    Rule(
        "memory_of_others_changed",
        Label.GPU_OCCUPIED,
        words(r"Error in memory profiling\. Initial free memory"),
        "AssertionError: Error in memory profiling. Initial free memory 20.15 GiB, current free memory 22.90 GiB. This "
        "happens when other processes sharing the same container release GPU memory while vLLM is profiling",
        means="somebody else took or gave back memory of this GPU while the server measured it",
        usual=Phase.KV_POOL,
        source="vLLM",
    ),
    Rule(
        "device_busy",
        Label.GPU_OCCUPIED,
        words(r".{0,60}(?:CUDA-capable device\(s\) is/are busy or unavailable|all CUDA-capable devices are busy)"),
        "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable",
        means="the GPU is in exclusive mode and somebody else has it",
        usual=Phase.DIST_INIT,
        source="CUDA",
    ),
    Rule(
        "device_not_there",
        Label.CONFIG_CONFLICT,
        words(
            r".{0,60}(?:invalid device ordinal|No CUDA GPUs are available|Found no NVIDIA driver on your system"
            r"|no CUDA-capable device is detected|no ROCm-capable device is detected|No HIP GPUs are available)"
            r"|No accelerator \("
        ),
        "torch.AcceleratorError: CUDA error: invalid device ordinal",
        means="the server was told to use a GPU that it cannot see",
        advice=(
            "compare --tp-size (times --pp-size and --dp-size) and --base-gpu-id with the GPUs that the process sees "
            "(CUDA_VISIBLE_DEVICES, --gpus of the container)",
        ),
        usual=Phase.SPAWN,
        source="CUDA",
    ),
    Rule(
        "illegal_access",
        Label.CUDA_IMA,
        words(
            r".{0,120}\b(?:an illegal memory access was encountered|misaligned address|unspecified launch failure"
            r"|device-side assert triggered|an illegal instruction was encountered|hardware stack error"
            r"|cudaErrorIllegalAddress\b(?!')|CUDA_ERROR_ILLEGAL_ADDRESS|hipErrorIllegalAddress"
            r"|invalid program counter)|\S+\.cuh?:\d+: .{0,200}\bAssertion "
        ),
        "torch.AcceleratorError: CUDA error: an illegal memory access was encountered",
        means="a kernel wrote or read where it must not; memory settings are not the cause",
        usual=Phase.SERVING,
        source="CUDA",
    ),
    Rule(
        "gpu_memory_fault",
        Label.CUDA_IMA,
        words(
            r"Memory access fault by GPU node|HSA_STATUS_ERROR_(?:EXCEPTION|MEMORY_APERTURE_VIOLATION)"
            r"|.{0,80}\b(?:aicore|vector core|aivec) (?:exception|error)|.{0,40}fftsplus aivector error"
            r"|.{0,80}\baicore execution is abnormal|.{0,120}error code is 5070(?:15|35)\b"
        ),
        "Memory access fault by GPU node-3 (Agent handle: 0x55d0) on address 0x7f1c000. Reason: Unknown.",
        usual=Phase.SERVING,
        source="ROCm, CANN",
    ),
    Rule(
        "no_kernel_for_this_gpu",
        Label.KERNEL_ARCH,
        words(
            r".{0,120}\b(?:no kernel image is available|device kernel image is invalid|invalid device function"
            r"|PTX was compiled with an unsupported toolchain|hipErrorNoBinaryForGpu|NoBinaryForGpu"
            r"|not supported in this architecture|(?:Unsupported|Unknown) (?:gpu |cuda )?arch(?:itecture)?"
            r"|named symbol not found|driver on your system is too old"
            r"|without targeting appropriate compute capability)|No compiled .{0,60}\bkernel for\b"
        ),
        "RuntimeError: GemmaRMSNorm failed with error code no kernel image is available for execution on the device",
        means="the kernels of this build were not made for this GPU (or need a newer driver)",
        usual=Phase.GRAPH_TARGET,
        source="CUDA",
    ),
    Rule(
        "kernel_library_does_not_load",
        Label.KERNEL_ARCH,
        words(
            r"\[sgl_kernel\] CRITICAL: Could not load any common_ops|.{0,200}: undefined symbol: "
            r"|cannot import name '\w+' from 'sgl_kernel"
        ),
        "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!",
        means="the kernel library was built for another torch, CUDA or GPU than those that are there",
        advice=("install the sgl-kernel (sglang-kernel) wheel that this SGLang pins, with the torch that it pins",),
        usual=Phase.ARGS,
    ),
    Rule(
        "kernel_refuses_this_gpu",
        Label.KERNEL_ARCH,
        words(
            r"FlashAttention(?:-\d)? only supports"
            r"|.{0,160}\b(?:requires?|needs) (?:an? )?(?:NVIDIA |CUDA )?(?:SM ?>?=?\d|SM_?\d|compute capability"
            r"|(?:Hopper|Blackwell|Ampere)\b)|.{0,120}(?:is|are) not supported (?:on (?:this GPU|this device|sm_?\d)"
            r"|for the current GPU)"
            r"|Feature '[^']+' requires \.target sm_|.{0,160}only supported on (?:sm_?\d|Hopper|Blackwell)"
            r"|.{0,120}\b(?:not|no) implemented (?:\w+ )?for (?:current )?compute capability"
            r"|.{0,120}\bdoes not support sm_?\d|.{0,80}only supported on .{0,40}compute capability"
        ),
        "RuntimeError: FlashAttention only supports Ampere GPUs or newer.",
        means="this kernel does not exist for this GPU",
        usual=Phase.GRAPH_TARGET,
        raised=True,
    ),
    Rule(
        "kernel_needs_a_larger_gpu",
        Label.KERNEL_ARCH,
        words(r"(?:[\w.]*OutOfResources: )?out of resource: "),
        "triton.runtime.errors.OutOfResources: out of resource: shared memory, Required: 131072, Hardware limit: 10137",
        means="a kernel needs more shared memory or registers than this GPU's multiprocessors have",
        advice=("take another backend (--attention-backend, --moe-runner-backend) or a smaller --page-size",),
        usual=Phase.GRAPH_TARGET,
        source="Triton",
    ),
    Rule(
        "torch_without_this_gpu",
        Label.KERNEL_ARCH,
        words(r".{0,120}with CUDA capability sm_\d+a? is not compatible with the current PyTorch installation"),
        "NVIDIA RTX PRO 6000 Blackwell Server Edition with CUDA capability sm_120 is not compatible with the current "
        "PyTorch installation.",
        weight=Weight.HINT,
        means="torch says, long before anything fails, that it has no kernels for this GPU",
        usual=Phase.SPAWN,
        source="torch",
    ),
)
