"""A scripted endpoint in a thread of its own, for clients that are other processes or block."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fakes.scripted_endpoint import ScriptedEndpoint


@contextmanager
def served(endpoint: ScriptedEndpoint) -> Iterator[ScriptedEndpoint]:
    """The endpoint, reachable while the context is open; what it saw may be read at any time."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(endpoint.__aenter__(), loop).result(30)
    try:
        yield endpoint
    finally:
        asyncio.run_coroutine_threadsafe(endpoint.__aexit__(None, None, None), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
