"""`specsweep load`: one running endpoint under one load, as a table or JSON."""

from __future__ import annotations

import asyncio
import json
import math
import os
import urllib.parse
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

from rich.console import Console

from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.metrics import PointMetrics, summarise
from orchestrator.point_view import print_point
from orchestrator.trial import ClientReport, LoadLevel, PointSpec
from orchestrator.workload_check import DATASETS

Api = Literal["generate", "completions", "chat"]


@dataclass(frozen=True)
class LoadRequest:
    """The arguments of `load`, parsed."""

    url: str
    api: str
    model: str | None
    concurrency: int | None
    rate: float | None
    max_concurrency: int | None
    requests: int | None
    duration: float | None
    warmup: float
    dataset: str
    input_tokens: int
    output_tokens: int
    temperature: float
    timeout: float
    api_key_env: str | None
    slo: str | None
    seed: int
    as_json: bool


def load_and_print(request: LoadRequest, console: Console) -> None:
    """Load the endpoint and print what was measured; SpecsweepError if no request succeeded."""
    _check(request)
    metrics, client = asyncio.run(_measure(request))
    document = load_document(request, metrics, client)
    if request.as_json:
        console.file.write(json.dumps(document, indent=1) + "\n")
    else:
        print_point(metrics, document, console)
    if not metrics.requests_ok:
        raise SpecsweepError(f"no request to {request.url} succeeded: {metrics.errors}")


def _check(request: LoadRequest) -> None:
    if request.concurrency is not None and request.rate is not None:
        raise BadInput("give one of --concurrency (closed loop) and --rate (open loop)")
    if request.requests is not None and request.duration is not None:
        raise BadInput("give one of --requests and --duration")
    if request.max_concurrency is not None and request.rate is None:
        raise BadInput("--max-concurrency is for --rate; with --concurrency the level is the limit")
    if not all(math.isfinite(x) for x in (request.duration or 0, request.rate or 0, request.warmup, request.timeout)):
        raise BadInput("--duration, --rate, --warmup and --timeout are finite numbers")
    parts = urllib.parse.urlsplit(request.url)
    if parts.scheme not in {"http", "https"} or not parts.netloc:
        raise BadInput(f"--url {request.url}: write http://HOST:PORT")
    if request.dataset.startswith("file:"):
        if not Path(request.dataset.removeprefix("file:")).is_file():
            raise BadInput(f"--dataset {request.dataset}: no such file")
    elif request.dataset not in DATASETS:
        raise BadInput(f"--dataset {request.dataset}: allowed: {', '.join(DATASETS)}, file:PATH")
    slo_limits(request.slo)
    if request.api_key_env is not None and request.api_key_env not in os.environ:
        raise BadInput(f"--api-key-env {request.api_key_env}: there is no such environment variable")


async def _measure(request: LoadRequest) -> tuple[PointMetrics, ClientReport]:
    from actors.loadgen import LoadGenerator, load_endpoint
    from actors.served_api import find_api

    api_key = os.environ[request.api_key_env] if request.api_key_env else None
    url = request.url.rstrip("/")
    try:
        endpoint = await find_api(url, request.api, request.model, api_key)
    except ConnectionError as error:
        raise SpecsweepError(f"--url {request.url}: {error}") from None
    level = (
        LoadLevel("rate", request.rate)
        if request.rate is not None
        else LoadLevel("concurrency", float(request.concurrency or 1))
    )
    spec = PointSpec(
        workload="load",
        level=level,
        api=cast(Api, endpoint.api),
        dataset=request.dataset,
        input_tokens=request.input_tokens,
        output_tokens=request.output_tokens,
        warmup_s=request.warmup,
        warmup_requests=1,
        duration_s=None if request.requests is not None else (request.duration or 30.0),
        requests=request.requests,
        temperature=request.temperature,
        ignore_eos=True,
        request_timeout_s=request.timeout,
        max_concurrency=request.max_concurrency,
        model=endpoint.model,
        seed=request.seed,
    )
    records, client = await load_endpoint(url, spec, generator=LoadGenerator(engine="attach", api_key=api_key))
    return summarise(records, level=level, client=client, request_limits=slo_limits(request.slo)), client


def slo_limits(text: str | None) -> dict[str, float] | None:
    """`ttft_ms=500,tpot_ms=20` -> limits per request; BadInput for anything else."""
    if text is None:
        return None
    limits = {}
    for part in text.split(","):
        name, _, value = part.partition("=")
        try:
            limits[name.strip()] = float(value)
        except ValueError:
            raise BadInput(f"--slo {text}: write e.g. ttft_ms=500,tpot_ms=20") from None
    if unknown := set(limits) - {"ttft_ms", "tpot_ms", "e2e_ms"}:
        raise BadInput(f"--slo {text}: {', '.join(sorted(unknown))} is not one of ttft_ms, tpot_ms, e2e_ms")
    return limits


def load_document(request: LoadRequest, metrics: PointMetrics, client: ClientReport) -> dict[str, Any]:
    """What `--json` prints: null where a thing could not be measured, never 0."""
    return {
        "url": request.url,
        **metrics.plain(),
        "duration_s": client.duration_s,
        "client": {
            "cpu_s": client.cpu_s,
            "cpu_share": client.cpu_s / client.duration_s / max(client.processes, 1) if client.duration_s else None,
            "loop_lag_ms_p99": client.loop_lag_p99_ms,
            "processes": client.processes,
            "gc_pause_ms_max": client.gc_pause_max_ms,
            "backlog_kib_p99": client.backlog_p99_kib,
        },
        "valid": metrics.valid,
    }
