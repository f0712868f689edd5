"""What is used up on our own side is told as ours, never as the server's fault."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from actors.wire.client import StreamClient
from actors.wire.client_limit import is_client_limit, limit_text
from orchestrator.records import RequestRecord, RequestStatus
from tests.actors.load_specs import ask, run, spec
from tests.fakes.raw_server import RawServer, whole
from tests.fakes.scripted_endpoint import DONE, native

GOOD = whole(native("a", 1, {"type": "stop"}) + DONE)


@pytest.mark.parametrize("runner", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_no_file_left_is_a_client_limit_with_its_value(runner: Callable[[Any], Any]) -> None:
    async def go() -> tuple[RequestRecord, int, RequestRecord]:
        async with RawServer(lambda n: [GOOD]) as server, StreamClient(server.url, spec()) as client:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            limit = max(map(int, os.listdir("/proc/self/fd")))  # noqa: PTH208 - names of open files
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            held = []
            try:
                while True:  # gaps below the limit
                    try:
                        held.append(os.dup(0))
                    except OSError:
                        break
                refused = await ask(client)
            finally:
                for fd in held:
                    os.close(fd)
                resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            return refused, limit, await ask(client)

    refused, limit, good = runner(go())
    assert (refused.status, good.status) == (RequestStatus.CLIENT_LIMIT, RequestStatus.OK)
    assert refused.error == (
        f"EMFILE: this load process may open {limit} files, and each stream needs one; raise its limit "
        "(ulimit -Hn, LimitNOFILE=, docker --ulimit nofile=), or spread the load over more processes"
    )


@pytest.mark.parametrize("number", [errno.EADDRNOTAVAIL, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM])
def test_every_limit_of_ours_is_told_as_ours(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> RequestRecord:
        async with RawServer(lambda n: [GOOD]) as server, StreamClient(server.url, spec()) as client:

            async def refuse(*_given: Any) -> None:
                raise OSError(number, os.strerror(number))

            monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", refuse)
            return await ask(client)

    record: RequestRecord = run(go())
    assert (record.status, record.http_status) == (RequestStatus.CLIENT_LIMIT, None)
    assert record.error is not None
    assert record.error.startswith(f"{errno.errorcode[number]}: the load host has no ")


def test_the_range_of_ports_is_told() -> None:
    with open("/proc/sys/net/ipv4/ip_local_port_range", encoding="ascii") as file:  # noqa: PTH123 - of the kernel
        low, high = file.read().split()
    told = limit_text(OSError(errno.EADDRNOTAVAIL, ""))
    assert f"net.ipv4.ip_local_port_range is {low} {high}" in told


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.ECONNRESET, errno.EHOSTUNREACH, errno.ETIMEDOUT, None])
def test_what_the_server_or_the_net_refuses_is_no_limit_of_ours(number: int | None) -> None:
    assert not is_client_limit(OSError(number, "") if number else OSError("ssl"))


def test_a_client_raises_its_soft_limit_of_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard // 2, hard))
    try:

        async def go() -> tuple[int, int]:
            async with StreamClient("http://127.0.0.1:9", spec()):
                return resource.getrlimit(resource.RLIMIT_NOFILE)

        assert asyncio.run(go()) == (hard, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
