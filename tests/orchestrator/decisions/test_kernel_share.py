"""Shares of time by class of kernel, and what tuning one can give: from traces of the torch profiler."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.decisions.explain_command import read_shares
from orchestrator.decisions.kernel_share import kernel_class, share_lines, trace_shares
from orchestrator.errors import BadInput


def kernel(name: str, dur: float, ts: float = 0.0) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": ts, "dur": dur, "pid": 0, "tid": 7}


def operator(name: str, ts: float, dur: float, tid: int = 1) -> dict[str, Any]:
    return {"ph": "X", "cat": "cpu_op", "name": name, "ts": ts, "dur": dur, "pid": 1, "tid": tid}


def test_where_gemms_take_6_percent_no_tuning_of_them_gives_more_than_6_point_4() -> None:
    events = [
        kernel("void flash::sparse_decode_kernel<cutlass::bfloat16_t>(Params)", 63.0),
        kernel("deep_gemm::fp8_gemm_kernel", 6.0),
        kernel("void at::native::vectorized_elementwise_kernel<4>", 31.0),
        operator("aten::linear", 0.0, 1000.0),
    ]
    shares = trace_shares([events])

    assert shares is not None
    assert shares.device == "gpu"
    assert {c.name: (round(c.share, 3), round(c.bound, 3)) for c in shares.classes} == {
        "attention": (0.63, 2.703),
        "norm and activation": (0.31, 1.449),
        "gemm": (0.06, 1.064),
    }
    assert share_lines(shares)[-1] == (
        "  gemm: 6.0% of the time; tuning it gives at most 6.4% (deep_gemm::fp8_gemm_kernel 6.0%)"
    )


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "communication"),
        ("void sglang::cross_device_reduce_1stage<__nv_bfloat16, 4>", "communication"),
        ("fused_moe_kernel", "moe"),
        ("void topkGatingSoftmax<float, 8>", "moe"),
        ("deep_gemm::m_grouped_fp8_gemm_contiguous", "moe"),
        ("void flashinfer::BatchDecodeWithPagedKVCacheKernel<1, 2>", "attention"),
        ("_fwd_grouped_kernel_stage1", "attention"),
        ("flash_fwd_splitkv_mla_kernel", "attention"),
        ("build_tree_efficient", "draft"),
        ("void flashinfer::sampling::TopKTopPSamplingFromProbKernel", "sampling"),
        ("nvjet_tst_128x64_64x8_1x2_h_bz_TNT", "gemm"),
        ("void cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16>", "gemm"),
        ("sm90_xmma_gemm_bf16bf16_bf16f32", "gemm"),
        ("_w8a8_block_fp8_matmul", "gemm"),
        ("void flashinfer::norm::FusedAddRMSNormKernel", "norm and activation"),
        ("per_token_group_quant_8bit_kernel", "norm and activation"),
        ("Memcpy DtoD (Device -> Device)", "copy and layout"),
        ("sgl_kernel::decode_attention_cpu", "attention"),
        ("aten::mm", "gemm"),
        ("a kernel of tomorrow", "other"),
    ],
)  # fmt: skip
def test_kernels_are_told_apart_by_their_names(name: str, cls: str) -> None:
    assert kernel_class(name) == cls


def test_an_operator_on_the_cpu_counts_without_those_inside_it() -> None:
    events = [
        operator("aten::linear", 0, 100),
        operator("aten::matmul", 10, 80),
        operator("aten::mm", 20, 60),
        operator("sgl_kernel::decode_attention_cpu", 100, 300),
        operator("aten::mm", 0, 50, tid=2),
    ]
    shares = trace_shares([events])

    assert shares is not None
    assert shares.device == "cpu"
    assert {c.name: c.seconds for c in shares.classes} == pytest.approx({"attention": 300e-6, "gemm": 150e-6})
    assert shares.busy_s == pytest.approx(450e-6)
    assert share_lines(shares)[-1] == "  A CPU's shares say nothing about a GPU's."


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 30)), min_size=1, max_size=12))
def test_own_times_add_up_to_the_time_in_which_any_operator_ran(spans: list[tuple[int, int]]) -> None:
    nested: list[tuple[int, int]] = []  # only what nests properly, as calls do
    for begin, length in spans:
        end = begin + length
        if all(e <= begin or end <= b or (b <= begin and end <= e) or (begin <= b and e <= end) for b, e in nested):
            nested.append((begin, end))
    shares = trace_shares([[operator(f"op{i}", b, e - b) for i, (b, e) in enumerate(nested)]])

    assert shares is not None
    covered = {t for b, e in nested for t in range(b, e)}
    assert shares.busy_s == pytest.approx(len(covered) / 1e6)


def test_traces_of_all_ranks_are_read_from_a_folder_plain_or_gzipped(tmp_path: Path) -> None:
    whole = {"schemaVersion": 1, "traceEvents": [kernel("gemm", 30.0), {"ph": "M", "name": "process_name"}]}
    (tmp_path / "point").mkdir()
    (tmp_path / "point" / "1-TP-0.trace.json").write_text(json.dumps(whole))
    (tmp_path / "point" / "1-TP-1.trace.json.gz").write_bytes(gzip.compress(json.dumps(whole).encode()))

    assert read_shares([tmp_path]).busy_s == pytest.approx(60e-6)


def test_what_is_no_trace_is_refused_with_what_to_give(tmp_path: Path) -> None:
    empty, cut, other = tmp_path / "a.trace.json", tmp_path / "b.trace.json.gz", tmp_path / "c.json"
    empty.write_text('{"traceEvents": []}')
    cut.write_bytes(gzip.compress(b'{"traceEvents": []}')[:-9])
    other.write_text('{"events": 1}')

    with pytest.raises(BadInput, match="no such file; traces are on the server's host"):
        read_shares([tmp_path / "none.json"])
    with pytest.raises(BadInput, match="holds neither GPU kernels nor CPU operators"):
        read_shares([empty])
    with pytest.raises(BadInput, match="is not JSON, plain or gzipped"):
        read_shares([cut])
    with pytest.raises(BadInput, match="has no `traceEvents`"):
        read_shares([other])
    (tmp_path / "folder").mkdir()
    with pytest.raises(BadInput, match=r"has no \*.trace.json"):
        read_shares([tmp_path / "folder"])


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "cat": "kernel", "dur": 5.0, "ts": 0.0},
        {"ph": "X", "cat": "kernel", "name": "a", "dur": 5.0},
        {"ph": "X", "cat": "kernel", "name": "a", "dur": float("nan"), "ts": 0.0},
        {"ph": "X", "cat": "kernel", "name": "a", "dur": -5.0, "ts": 0.0},
        {"ph": "X", "cat": "cpu_op", "name": "a", "dur": 5.0, "ts": None},
    ],
)
def test_an_event_that_does_not_say_what_and_when_is_no_event(event: dict[str, Any]) -> None:
    assert trace_shares([[event]]) is None
    both = trace_shares([[event, kernel("gemm", 5.0)]])

    assert both is not None
    assert (both.device, both.busy_s) == ("gpu", 5e-6)
