"""Two hosts do the work in half the time of one."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.integration.host_runs import began, ended, two_hosts
from tests.integration.programs import assert_each_once, events

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]


def seconds(root: Path) -> float:
    """From the first start of a server to the end of a run."""

    def at(event: dict[str, Any], key: str) -> datetime:
        return datetime.fromisoformat(event[key])

    first = min(at(e["place"], "began_at") for e in events(root, "trial_started"))
    return (at(events(root, "run_ended")[0], "at") - first).total_seconds()


def test_two_hosts_take_about_half_the_time_of_one() -> None:
    with two_hosts() as rig:
        steady = ("--set", "measure.duration_s=4", "--set", "workloads.0.concurrency=[1]")
        both, on_two = began(rig, "two", *steady)
        ended(both)
        alone, on_one = began(rig, "one", *steady, "--set", "slots.count=1")
        ended(alone)

        hosts = [e["place"]["host"] for e in events(on_two, "trial_started")]
        assert sorted(hosts) == ["h1", "h1", "h2", "h2"]
        assert len({e["place"]["host"] for e in events(on_one, "trial_started")}) == 1
        # 0.5 if the starts of servers did not wait for each other: all hosts share the cores of this machine.
        assert seconds(on_two) / seconds(on_one) < 0.8
        assert_each_once(on_two, 4)
        assert rig.marked() == []
