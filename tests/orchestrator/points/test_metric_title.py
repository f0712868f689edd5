"""Names of metrics as people write them."""

from __future__ import annotations

import pytest

from orchestrator.points.metric_names import METRICS
from orchestrator.points.metric_title import aim_title, metric_title


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("output_throughput_tok_s", "output throughput"),
        ("output_throughput_tok_s_per_gpu", "output throughput per GPU"),
        ("tok_s_per_user_p50", "speed of a user p50"),
        ("ttft_p99_ms", "TTFT p99"),
        ("gpu_power_w", "GPU power"),
        ("goodput_rps", "goodput"),
        ("accept_length", "accept length"),
        ("my_own_number_ms", "my_own_number_ms"),
    ],
)
def test_a_title_has_no_unit_and_no_underscores(name: str, title: str) -> None:
    assert metric_title(name) == title


def test_no_two_metrics_share_a_title() -> None:
    assert len({metric_title(name) for name in METRICS}) == len(METRICS)


def test_an_aim_has_the_title_of_its_metric_and_an_expression_stays() -> None:
    assert aim_title("output_throughput_tok_s at C=1") == "output throughput at C=1"
    assert aim_title("ttft_p50_ms + tpot_p50_ms at C=1") == "ttft_p50_ms + tpot_p50_ms at C=1"
