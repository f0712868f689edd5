"""One load on a server that runs already, as a whole."""

from __future__ import annotations

from contextlib import aclosing

from actors.load.load_member import MESSAGES
from actors.load.loadgen import LoadGenerator
from actors.load.record_batch import records_of
from orchestrator.records import RequestRecord
from orchestrator.trial import ClientReport, Point, PointSpec


async def load_endpoint(
    url: str, spec: PointSpec, *, generator: LoadGenerator | None = None, point_id: str = "load"
) -> tuple[list[RequestRecord], ClientReport]:
    """All records, warm-up included, and the client's account of itself.

    Pass the `generator` to give it a key or a spool, or to be able to `stop()` it.
    """
    generator = generator or LoadGenerator(engine="attach")
    point = Point(point_id, trial_id="", config_id="", repeat=0, spec=spec)
    records: list[RequestRecord] = []
    report: ClientReport | None = None
    async with aclosing(generator.run(url, point)) as items:
        async for item in items:
            if isinstance(item, ClientReport):
                report = item
            elif not isinstance(item, MESSAGES):
                records.extend(records_of(item))
    assert report is not None, "a run that ends without an exception ends with its report"
    return records, report
