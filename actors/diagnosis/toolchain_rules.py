"""Kernels that are compiled at the first use: compilers, headers and libraries."""

from __future__ import annotations

from actors.diagnosis.rule import Rule, words
from orchestrator.outcome import Label, Phase

RULES = (
    Rule(
        "build_failed",
        Label.JIT_TOOLCHAIN,
        words(
            r"(?!.*No space left)(?:Ninja build failed|Error building extension|Command '\[[^\]]{0,60}(?:ninja"
            r"|nvcc|hipcc|gcc|g\+\+|cc"
            r"|clang)'"
            r"|Command '\S{0,300}/(?:ptxas|nvcc|hipcc|gcc|g\+\+|clang) "
            r"|.{0,80}\bfatal error: \S+\.(?:h|hpp|cuh)\b: No such file|nvcc fatal|ptxas (?:fatal|error)"
            r"|NVCC compilation failed|.{0,60}\bcompilation (?:terminated|failed)\b|collect2: error"
            r"|.{0,60}cannot find -l"
            r"|Failed to find C compiler|.{0,60}nvrtc: error|FAILED: (?:\[code=\d+\] )?\S+\.(?:o|so)\b)"
        ),
        "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
        means="a kernel was to be compiled on this host, and the compiler failed",
        usual=Phase.GRAPH_TARGET,
        source="torch, FlashInfer",
    ),
    Rule(
        "compiler_missing",
        Label.JIT_TOOLCHAIN,
        words(
            r"\[Errno 2\] No such file or directory: '(?:\S*/)?(?:ninja|nvcc|hipcc|gcc|g\+\+|cc|c\+\+|ptxas|cuobjdump)'"
            r"|Cannot find CUDA_HOME\b|CUDA_HOME (?:(?:environment variable )?is not set|does not exist)"
            r"|.{0,80}\bNVCC(?: compiler)? (?:is |was )?not found|Could not find (?:nvcc|CUDA)"
            r"|Ninja is required to load C\+\+ extensions|(?:\S+: )?(?:\d+: )?\S*(?:ninja|nvcc): (?:command )?not found"
            r"|assert cuda_home is not None"
        ),
        "FileNotFoundError: [Errno 2] No such file or directory: 'ninja'",
        means="a kernel was to be compiled on this host, and there is no compiler",
        usual=Phase.GRAPH_TARGET,
        source="torch, FlashInfer",
    ),
    Rule(
        "library_missing",
        Label.JIT_TOOLCHAIN,
        words(r"lib(?:cuda|nv|cudnn|cublas|nccl|numa|roc|hip|amd)[\w.-]*\.so[\w.]*: cannot open shared object file"),
        "ImportError: libnvrtc.so.12: cannot open shared object file: No such file or directory",
        means="a library of the GPU toolkit is not where the loader looks",
        advice=("install the toolkit libraries of the CUDA (ROCm) version that the wheels were built for",),
        usual=Phase.ARGS,
        source="loader",
    ),
)
