"""By which Python of the head a run is fetched."""

from __future__ import annotations

import pytest

from orchestrator.jobs.fetch_command import _python_of


@pytest.mark.parametrize(
    ("entrypoint", "python"),
    [
        ("exec /opt/venv/bin/python -m orchestrator run scenario.yaml", "/opt/venv/bin/python"),
        ("/opt/venv/bin/python -m orchestrator run a.yaml --evict", "/opt/venv/bin/python"),
        ("exec '/opt/venv/bin/python' -m orchestrator run --resume /runs/a", "/opt/venv/bin/python"),
        ("specsweep run a.yaml", "python"),
        ("", "python"),
    ],
)
def test_a_run_is_fetched_by_the_python_that_ran_it(entrypoint: str, python: str) -> None:
    assert _python_of(entrypoint) == python
