"""Arrow schemas of the dataset, shared by the load actors (which build batches) and the driver (which stores them)."""

from __future__ import annotations

from functools import cache
from typing import Any

from orchestrator import SCHEMA_VERSION


@cache
def request_schema() -> Any:
    """Schema of `requests`: identity, then the fields of RequestRecord. Nanoseconds count from the point's start."""
    import pyarrow as pa

    text, count, flag, nanos = pa.string(), pa.int32(), pa.bool_(), pa.int64()
    return pa.schema(
        [
            ("run_id", text),
            ("trial_id", text),
            ("point_id", text),
            ("config_id", text),
            ("engine", text),
            ("attempt", count),
            ("request_index", count),
            ("warmup", flag),
            ("scheduled_ns", nanos),
            ("sent_ns", nanos),
            ("first_token_ns", nanos),
            ("end_ns", nanos),
            ("chunk_ns", pa.list_(nanos)),
            ("chunk_tokens", pa.list_(count)),
            ("in_flight", count),
            ("requested_output_tokens", count),
            ("prompt_tokens", count),
            ("cached_tokens", count),
            ("output_tokens", count),
            ("verify_ct", count),
            ("correct_drafts", count),
            ("proposed_drafts", count),
            ("retractions", count),
            ("finish_reason", text),
            ("status", text),
            ("http_status", count),
            ("error", text),
            ("prompt_hash", text),
            ("traffic", text),  # files of earlier releases lack it and the next
            ("session_index", count),
            ("turn", count),
            ("asked_input_tokens", count),
            ("queue_ms", pa.float64()),
        ],
        metadata={"specsweep_schema": str(SCHEMA_VERSION), "table": "requests"},
    )


@cache
def loads_schema() -> Any:
    """Schema of `loads`: one row per point, the load actor's account of itself and of the server's counters."""
    import pyarrow as pa

    text, count, number = pa.string(), pa.int32(), pa.float64()
    return pa.schema(
        [
            ("run_id", text),
            ("trial_id", text),
            ("point_id", text),
            ("config_id", text),
            ("engine", text),
            ("attempt", count),
            ("repeat", count),
            ("workload", text),
            ("level_kind", text),
            ("level", number),
            ("input_tokens", count),
            ("output_tokens", count),
            ("slot", text),
            ("host", text),
            ("began_at", text),
            ("client_json", text),
            ("host_class", text),  # files of earlier releases lack it and the next
            ("reused_from", text),
        ],
        metadata={"specsweep_schema": str(SCHEMA_VERSION), "table": "loads"},
    )


@cache
def trials_schema() -> Any:
    """Schema of `trials`: one row per server start. Settings and what the server resolved are JSON texts.

    Columns are added at the end; a reader of older runs finds the last ones missing.
    """
    import pyarrow as pa

    text, count, number = pa.string(), pa.int32(), pa.float64()
    phase = pa.struct(
        [("phase", text), ("began_s", number), ("ended_s", number), ("free_gib", number), ("detail", text)]
    )
    return pa.schema(
        [
            ("run_id", text),
            ("trial_id", text),
            ("config_id", text),
            ("engine", text),
            ("attempt", count),
            ("repeat", count),
            ("slot", text),
            ("host", text),
            ("gpu_ids", pa.list_(text)),
            ("began_at", text),
            ("settings_json", text),
            ("resolved_json", text),
            ("engine_version", text),
            ("start_s", number),
            ("phases", pa.list_(phase)),
            ("outcome", text),
            ("label", text),
            ("phase", text),
            ("evidence", text),
            ("line_number", count),
            ("exit_code", count),
            ("points", count),
            ("notes", pa.list_(text)),  # files of earlier releases lack it and the next
            ("slot_refused", text),
            ("repaired_from", text),
            ("repair_json", text),
            ("host_class", text),
            ("reused_from", text),
            ("software_json", text),
        ],
        metadata={"specsweep_schema": str(SCHEMA_VERSION), "table": "trials"},
    )


@cache
def telemetry_schema(table: str) -> Any:
    """Schema of `telemetry_gpu`, a row per GPU and moment, or of `telemetry_server`, a row per host and moment.

    Times and values as in orchestrator/telemetry.py.
    """
    import pyarrow as pa

    text, count, number = pa.string(), pa.int32(), pa.float64()
    moment = [
        ("run_id", text),
        ("trial_id", text),
        ("config_id", text),
        ("engine", text),
        ("attempt", count),
        ("slot", text),
        ("host", text),
        ("rank", count),
        ("at_s", number),
        ("unix_s", number),
        ("lived_s", number),
    ]
    gpu = [
        ("gpu", text),
        ("memory_used_gib", number),
        ("memory_total_gib", number),
        ("power_w", number),
        ("power_limit_w", number),
        ("sm_clock_mhz", count),
        ("temperature_c", count),
        ("utilization_percent", count),
        ("throttle", pa.list_(text)),
        ("ecc_errors", pa.int64()),
    ]
    server = [
        ("running_requests", count),
        ("queued_requests", count),
        ("retracted_requests", count),
        ("used_tokens", pa.int64()),
        ("token_usage", number),
        ("generation_tok_s", number),
        ("cache_hit_rate", number),
        ("accept_length", number),
        ("processes", count),
        ("rss_gib", number),
        ("cpu_cores", number),
    ]
    own = {"telemetry_gpu": gpu, "telemetry_server": server}[table]
    return pa.schema([*moment, *own], metadata={"specsweep_schema": str(SCHEMA_VERSION), "table": table})
