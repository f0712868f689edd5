"""What whole runs share: a small scenario, emulated GPUs, and a Ray cluster that outlives its drivers."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from actors.gpus.gpu_ledger import GpuLedger
from benchmarks.kill_rig import KillRig
from tests.integration.programs import QUICK, end_started, started_rig


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    """Also where a fixture failed, which a fixture would not hear of."""
    try:
        return (yield)
    finally:
        end_started()


@pytest.fixture(scope="session")
def scenario(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """QUICK in a file."""
    path = tmp_path_factory.mktemp("scenario") / "quick.yaml"
    path.write_text(QUICK)
    return path


@pytest.fixture(scope="session")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> GpuLedger:
    """Two GPUs of 96 GiB."""
    return GpuLedger.create(tmp_path_factory.mktemp("ledger"), [96.0, 96.0])


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory, ledger: GpuLedger) -> Iterator[KillRig]:
    """A head and a node with two GPUs that outlive their drivers, as a real cluster does."""
    with started_rig(tmp_path_factory.mktemp("cluster"), ledger, with_jobs=False) as rig:
        yield rig
