"""Captures of graphs that failed for another reason than memory, an illegal access or a missing kernel."""

from __future__ import annotations

from actors.diagnosis.rule import Rule, Weight, words
from orchestrator.outcome import Label, Phase

RULES = (
    Rule(
        "prefill_graph_failed",
        Label.CAPTURE_ERROR,
        words(r"Fail when using backend: "),
        "Fail when using backend: breakable for prefill runner.",
        means="the graph of the prefill could not be captured",
        advice=("try --cuda-graph-backend-prefill=disabled",),
        usual=Phase.GRAPH_TARGET,
    ),
    Rule(
        "operation_not_allowed_in_capture",
        Label.CAPTURE_ERROR,
        words(
            r".{0,80}(?:operation not permitted when stream is capturing"
            r"|operation failed due to a previous error during"
            r" capture|Cannot call CUDAGeneratorImpl::current_seed during CUDA graph capture"
            r"|dependency created on uncaptured work in another stream)"
        ),
        "RuntimeError: CUDA error: operation not permitted when stream is capturing",
        means="something was done while a graph was captured that must not be done then",
        usual=Phase.GRAPH_TARGET,
        source="CUDA",
    ),
    Rule(
        "compiler_of_torch_failed",
        Label.CAPTURE_ERROR,
        words(r"torch\._(?:dynamo|inductor)\.\S*(?:Error|Failed|Unsupported)\b"),
        "torch._dynamo.exc.BackendCompilerFailed: backend='<function>' raised:",
        weight=Weight.HINT,
        means="torch could not compile a part of the model",
        advice=("leave --enable-torch-compile out",),
        usual=Phase.GRAPH_TARGET,
        source="torch",
    ),
)

GRAPH_FAILED = Rule(
    "graph_capture_failed",
    Label.CAPTURE_ERROR,
    words(r"Capture [\w -]*?(?:graph|draft extend) failed: |Piecewise CUDA Graph failed with error: "),
    "Exception: Capture cuda graph failed: head_dim 96 is not supported by the attention backend",
    means="a graph could not be captured, and memory was not the reason",
    usual=Phase.GRAPH_TARGET,
)
