"""How Ray has to be started on every host for a benchmark, setting by setting, and what its absence costs. Pure.

They go into the environment of each `ray start`: what the head alone is given (`--system-config`) makes the head see a
lost host sooner, but a host that is cut off then still keeps its servers for minutes.
"""

from __future__ import annotations

from collections.abc import Mapping

MOST_NICENESS = 0
MOST_OOM_SCORE = 0
OPEN_FILES = 65536

# Servers inherit these two from the raylet. Ray's own defaults are nice 15 and oom_score_adj 1000.
PRIORITY = {"RAY_worker_niceness": "0", "RAY_worker_oom_score_adjustment": "0"}

# Seen by the head: a host that does not answer. 19 s instead of 62.
DETECTION = {
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "3000",
    "RAY_health_check_failure_threshold": "5",
}

# Seen by a host: that it is cut off. About 25 s until its raylet ends, instead of minutes.
ISOLATION = {
    "RAY_grpc_client_keepalive_time_ms": "5000",
    "RAY_grpc_client_keepalive_timeout_ms": "5000",
    "RAY_grpc_keepalive_time_ms": "5000",
    "RAY_grpc_keepalive_timeout_ms": "5000",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "20",
    "RAY_raylet_liveness_self_check_interval_ms": "2000",
}

ACCESS = {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}

# What `specsweep cluster init` writes.
TUNED = {**ACCESS, **PRIORITY, **DETECTION, **ISOLATION}

_DEFAULTS = {
    "RAY_health_check_period_ms": 3000.0,
    "RAY_health_check_timeout_ms": 10000.0,
    "RAY_health_check_failure_threshold": 5.0,
}
# A host that does not answer for so long is lost to a benchmark anyway.
SLOW_DETECTION_S = 30.0


def detection_s(settings: Mapping[str, str]) -> float:
    """Seconds until the head gives up a host that was cut off: its checks time out one after another."""
    period, timeout, threshold = (_number(settings, name) for name in _DEFAULTS)
    return (threshold * timeout + (threshold - 1) * period) / 1000


def missing_isolation(settings: Mapping[str, str]) -> list[str]:
    """Settings without which a host that is cut off keeps its servers."""
    return [name for name in ISOLATION if name not in settings]


def _number(settings: Mapping[str, str], name: str) -> float:
    try:
        return float(settings[name])
    except (KeyError, ValueError):
        return _DEFAULTS[name]
