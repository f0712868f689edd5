"""What tokens cost: by hand, and None where something is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.objectives.cost import with_cost
from orchestrator.points.metrics import summarise
from orchestrator.points.point_metrics import PointMetrics
from orchestrator.trial import LoadLevel
from tests.orchestrator.literal_records import request


def metrics(speed: float | None) -> PointMetrics:
    measured = summarise([request(0.0, [10.0, 20.0])], level=LoadLevel("concurrency", 1.0))
    return replace(measured, output_throughput_tok_s=speed)


def test_a_million_tokens_of_four_gpus_at_two_a_gpu_hour() -> None:
    """1,000 tok/s are 3.6 million tokens an hour, for 4 x 2.00: 2.222 a million. 2,000 W / 1,000 tok/s: 2 J a token."""
    found = with_cost(metrics(1000.0), 4, 2.0, 2000.0)

    assert found.output_throughput_tok_s_per_gpu == 250.0
    assert found.cost_per_million_output_tokens == pytest.approx(2.2222, rel=1e-4)
    assert (found.gpu_power_w, found.joules_per_output_token, found.output_tokens_per_joule) == (2000.0, 2.0, 0.5)


def test_what_is_not_known_is_none() -> None:
    on_cpu = with_cost(metrics(1000.0), 0, 2.0)
    stuck = with_cost(metrics(None), 4, 2.0, 2000.0)

    assert (on_cpu.output_throughput_tok_s_per_gpu, on_cpu.cost_per_million_output_tokens) == (None, None)
    assert with_cost(metrics(1000.0), 4).cost_per_million_output_tokens is None
    assert (stuck.cost_per_million_output_tokens, stuck.joules_per_output_token, stuck.gpu_power_w) == (
        None,
        None,
        2000.0,
    )
    assert on_cpu.absent()["joules_per_output_token"] == (
        "the server's GPUs tell no power (servers on CPU, emulated GPUs, no NVML)"
    )
