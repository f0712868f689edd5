"""`specsweep load`: one running endpoint under one load, as a table or JSON, and as a dataset if asked."""

from __future__ import annotations

import asyncio
import json
import secrets
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from actors.host.own_folder import own_folder
from orchestrator.errors import RunInterrupted, SpecsweepError
from orchestrator.loads.load_dataset import LoadDataset
from orchestrator.loads.load_document import LoadResult
from orchestrator.loads.load_progress import LoadProgress
from orchestrator.loads.load_request import LoadRequest, slo_limits
from orchestrator.paths import user_file
from orchestrator.points.bench_serving import BACKENDS, LoadArguments, bench_serving_line
from orchestrator.points.metrics import latency_values, summarise
from orchestrator.points.point_view import print_histograms, print_point
from orchestrator.run_files.point_table import columns_of
from orchestrator.terminal import print_json
from orchestrator.trial import ClientReport, Point, PointSpec


def load_and_print(request: LoadRequest, console: Console) -> None:
    """Load the endpoint, print what was measured, and keep it if asked.

    SpecsweepError if no request succeeded, and RunInterrupted after Ctrl-C, both when all is printed.
    """
    import uvloop

    request.check()
    with ExitStack() as stack:
        folder = request.out or stack.enter_context(own_folder("load"))
        dataset = LoadDataset(folder)
        with LoadProgress(Console(stderr=True)) as progress:
            spec, client, faults = uvloop.run(_measure(request, dataset, progress))
        dataset.flush()
        columns = columns_of(dataset.table())
        metrics = summarise(columns, level=spec.level, client=client, request_limits=slo_limits(request.slo))
        result = LoadResult(request.url, spec, metrics, client, tuple(faults))
        document = result.document()
        dataset.describe("load.json", document)
        dataset.describe("client.json", asdict(client))
        if request.as_json:
            print_json(document, console)
        else:
            print_point(document, console)
            if request.histogram:
                print_histograms(latency_values(columns, spec.level), console)
        if request.export_bench_serving is not None:
            _export(request.export_bench_serving, result, columns)
    if client.stopped_by == "cancelled" and not faults:
        raise RunInterrupted("the load was stopped; what was measured is told above")
    if faults:
        raise SpecsweepError("; ".join(faults))
    if not metrics.requests_ok:
        raise SpecsweepError(f"no request to {request.url} succeeded: {metrics.errors}")


async def _measure(
    request: LoadRequest, dataset: LoadDataset, progress: LoadProgress
) -> tuple[PointSpec, ClientReport, list[str]]:
    """Offer the load; what was offered, how the client did, and which of its processes were lost."""
    from actors.wire.served_api import find_api

    url = request.url.rstrip("/")
    try:
        endpoint = await find_api(url, request.api, request.model, request.api_key, request.headers)
    except ConnectionError as error:
        raise SpecsweepError(f"--url {request.url}: {error}") from None
    seed = secrets.randbelow(2**31) if request.seed is None else request.seed
    spec = request.spec(endpoint.api, endpoint.model, seed)
    generator = _generator(request)
    client: ClientReport | None = None
    with _stopping(generator):
        items: AsyncGenerator[Any] = generator.run(url, Point("load", "", "", 0, spec))
        async with aclosing(items):
            async for item in items:
                if isinstance(item, ClientReport):
                    client = item
                else:
                    dataset.append(item)
                    progress.saw(item)
    faults: list[str] = getattr(generator, "faults", [])
    if client is None:
        raise SpecsweepError(f"every load process was lost: {'; '.join(faults)}")
    return spec, client, faults


def _generator(request: LoadRequest) -> Any:
    """This process itself, or children where more than one is asked for."""
    from actors.load.load_pipe import LoadOptions
    from actors.load.load_processes import LoadProcesses
    from actors.load.loadgen import LoadGenerator

    if (request.processes or 1) == 1:
        return LoadGenerator(engine="attach", api_key=request.api_key, headers=request.headers)
    assert request.processes is not None
    options = LoadOptions(engine="attach", api_key=request.api_key, headers=request.headers)
    return LoadProcesses(request.processes, options)


@contextmanager
def _stopping(generator: Any) -> Iterator[None]:
    """The first Ctrl-C or SIGTERM ends the load in order, the second one at once."""
    loop = asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        release()
        generator.stop()

    def release() -> None:
        for number in signals:
            loop.remove_signal_handler(number)

    with suppress(ValueError, RuntimeError):  # not in the main thread: whoever runs us stops us in another way
        for number in signals:
            loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        release()


def _export(file: Path, result: LoadResult, columns: dict[str, Any]) -> None:
    """Append a line as SGLang's own load tool writes it."""
    spec = result.spec
    drawn = not spec.dataset.startswith("file:")
    given = LoadArguments(
        backend=BACKENDS[spec.api],
        dataset=spec.dataset,
        input_tokens=spec.input_tokens if drawn else None,
        output_tokens=spec.output_tokens if drawn else None,
        max_concurrency=spec.max_concurrency if spec.level.open_loop else int(spec.level.value),
    )
    line = bench_serving_line(columns, level=spec.level, client=result.client, given=given)
    with user_file(f"--export-bench-serving {file}", "written"), file.open("a", encoding="utf-8") as handle:
        handle.write(json.dumps(line, allow_nan=False) + "\n")
