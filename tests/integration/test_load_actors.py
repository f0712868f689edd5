"""Several Ray load actors that offer one point together."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from benchmarks.kill_rig import KillRig
from tests.fakes.scripted_endpoint import ScriptedEndpoint, native_answer
from tests.fakes.served_script import served
from tests.integration.programs import ROOT

pytestmark = [pytest.mark.ray, pytest.mark.timeout(400)]


def test_two_load_actors_offer_one_point_and_a_killed_one_ends_it_with_what_came_kept(cluster: KillRig) -> None:
    # Past the warm-up, and before one of them could have sent all of its share while the other stood still.
    six = range(20, 26)
    with served(ScriptedEndpoint(lambda n, body: native_answer(3, pause_s=0.02), together=six)) as server:
        driver = subprocess.run(
            [sys.executable, "-m", "tests.fakes.ray_load", cluster.address, server.url],
            capture_output=True, text=True, cwd=ROOT, timeout=200, check=False,
        )  # fmt: skip
    assert driver.returncode == 0, driver.stderr
    told = json.loads(driver.stdout)

    whole = told["whole"]
    assert (whole["requests"], whole["processes"], whole["stopped_by"]) == (60, 2, "requests")
    assert (whole["peak"], whole["flushed"], whole["broken"]) == (6, True, None)
    assert sorted(index for warm, index, *_ in whole["rows"] if not warm) == list(range(60))
    assert {status for *_, status, _ in whole["rows"]} == {"ok"}
    assert len({prompt for *_, prompt in whole["rows"]}) == len(whole["rows"])

    torn = told["torn"]
    assert torn["broken"].startswith("load actor 2 of 2 was lost:")
    assert (torn["stopped_by"], torn["processes"]) == ("cancelled", 1)
    indices = [index for _, index, *_ in torn["rows"]]
    assert len(indices) == len(set(indices))
    assert {index % 2 for index in indices} == {0, 1}  # those of the dead one too
