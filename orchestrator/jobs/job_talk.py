"""A conversation with the head of a cluster about its jobs, as commands have it: one after the other."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from orchestrator.clusters.cluster_token import cluster_token
from orchestrator.errors import SpecsweepError
from orchestrator.jobs.job_client import ConnectionLost, JobClient, dashboard_address

T = TypeVar("T")


def client_of(address: str | None) -> JobClient:
    """The jobs of the cluster at an address; ClusterRefusal within seconds if it cannot be talked to."""
    client = JobClient(dashboard_address(address), cluster_token())
    talk(client.check())
    return client


def talk(talking: Coroutine[Any, Any, T]) -> T:
    """Run a conversation with the head; SpecsweepError if the head stops answering."""
    try:
        return asyncio.run(talking)
    except ConnectionLost as error:
        raise SpecsweepError(f"the head does not answer any more ({error}); what runs there goes on") from None
