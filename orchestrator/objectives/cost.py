"""What tokens cost: per GPU, in money, in energy. Pure."""

from __future__ import annotations

from dataclasses import replace

from orchestrator.points.point_metrics import PointMetrics


def with_cost(
    metrics: PointMetrics, gpus: int, gpu_hour_cost: float | None = None, gpu_power_w: float | None = None
) -> PointMetrics:
    """The metrics of a point with those per GPU, per cost and per joule; None where GPUs, price or power are unknown.

    `gpus` are those of the whole server, `gpu_power_w` is that of all of them together.
    """
    speed = metrics.output_throughput_tok_s
    if not speed:
        return replace(metrics, gpu_power_w=gpu_power_w)
    power = gpu_power_w or None
    return replace(
        metrics,
        output_throughput_tok_s_per_gpu=speed / gpus if gpus else None,
        cost_per_million_output_tokens=gpu_hour_cost * gpus / (speed * 3600) * 1e6 if gpu_hour_cost and gpus else None,
        gpu_power_w=gpu_power_w,
        joules_per_output_token=power / speed if power else None,
        output_tokens_per_joule=speed / power if power else None,
    )
