"""A driver whose slot loads a server with two load actors, one of which dies the second time.

`python -m tests.fakes.ray_load ADDRESS URL` prints what came as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any

from orchestrator.scenarios.scenario import Slots
from orchestrator.slots.ray_connection import Connection, connect
from orchestrator.slots.slot_port import TrialBroken
from orchestrator.trial import ClientReport, LoadLevel, Point
from tests.actors.load_specs import spec


def main(address: str, url: str) -> None:
    cluster = connect(Connection(address), "ray-load")
    try:
        (slot,) = cluster.grant_slots(Slots.model_validate({"gpus": 1, "count": 1}), "emulator", 60.0)
        whole = Point("p1", "t1", "c1", 0, spec(level=LoadLevel("concurrency", 6), requests=60, warmup_requests=4))
        told = {"whole": _told(slot.run_point(url, whole, 1, 2))}
        endless = Point("p2", "t1", "c1", 0, spec(level=LoadLevel("concurrency", 6), requests=100_000))
        told["torn"] = _told(_killing(slot, slot.run_point(url, endless, 1, 2)))
        print(json.dumps(told))  # noqa: T201
    finally:
        cluster.close()


def _killing(slot: Any, items: Iterator[Any]) -> Iterator[Any]:
    """The items of a point whose second member is killed once some of each member have come."""
    import ray

    came: set[int] = set()
    for item in items:
        yield item
        if came != {0, 1} and not isinstance(item, ClientReport):
            came |= {index % 2 for index in item.column("request_index").to_pylist()}
            if came == {0, 1}:
                ray.kill(slot._loads[1][0])


def _told(items: Iterator[Any]) -> dict[str, Any]:
    rows: list[dict[str, Any]] = []
    told: dict[str, Any] = {"broken": None}
    try:
        for item in items:
            if isinstance(item, ClientReport):
                told |= {"requests": item.requests, "processes": item.processes, "stopped_by": item.stopped_by,
                         "peak": item.peak_concurrency, "flushed": item.cache_flushed}  # fmt: skip
            else:
                rows += item.select(["warmup", "request_index", "status", "prompt_hash"]).to_pylist()
    except TrialBroken as error:
        told["broken"] = str(error)
    return told | {"rows": [tuple(row.values()) for row in rows]}


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
