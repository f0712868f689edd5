"""`python -m actors.load.load_process`: one member of an ensemble as a child process.

It gets its job and orders as frames on standard input and writes batches, messages and its report to standard output.
It ends with its parent: the end of standard input ends it, whatever it does.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from typing import Any

from actors.load.load_member import End, Release
from actors.load.load_pipe import Broke, Job, packed, read_item
from actors.load.loadgen import LoadGenerator

# A parent that is away for a moment must not stop the load: its pipe may hold this much before we wait.
_MOST_UNSENT = 64 << 20


def main() -> None:
    import uvloop

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches us through our parent
    uvloop.run(_serve())


async def _serve() -> None:
    orders = await _standard_input()
    out = await _standard_output()
    job = await read_item(orders)
    if not isinstance(job, Job):
        return
    options = job.options
    generator = LoadGenerator(
        run_id=options.run_id,
        engine=options.engine,
        attempt=options.attempt,
        api_key=options.api_key,
        headers=options.headers,
        hang_timeout_s=options.hang_timeout_s,
        drain_timeout_s=options.drain_timeout_s,
    )
    obeying = asyncio.create_task(_obey(orders, generator))
    try:
        async for item in generator.run(job.url, job.point, job.shard):
            out.write(packed(item))
            await out.drain()
    except Exception as error:  # noqa: BLE001 - the edge of the process: told to the parent, never swallowed
        out.write(packed(Broke(_told(error))))
    obeying.cancel()
    out.close()
    await out.wait_closed()


async def _obey(orders: asyncio.StreamReader, generator: LoadGenerator) -> None:
    while (order := await read_item(orders)) is not None:
        if isinstance(order, Release):
            generator.release(order.place, order.value)
        elif isinstance(order, End):
            generator.stop(order.why)
    os._exit(1)  # nobody is left to measure for


def _told(error: BaseException) -> str:
    """The first real cause in a group of errors."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return f"{type(error).__name__}: {error}"


async def _standard_input() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    return reader


async def _standard_output() -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    protocol: Any
    transport, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, sys.stdout.buffer)
    transport.set_write_buffer_limits(high=_MOST_UNSENT)
    return asyncio.StreamWriter(transport, protocol, None, loop)


if __name__ == "__main__":
    main()
