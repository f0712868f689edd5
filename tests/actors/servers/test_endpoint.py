"""Pages of a server: read as text, and never without end."""

from __future__ import annotations

import asyncio

from aiohttp import web

from actors.servers.endpoint import LARGEST_PAGE_BYTES, NOBODY, Endpoint


async def asked(size_bytes: int) -> tuple[int, str]:
    """What comes of a page of so many bytes, which are of no encoding."""

    async def page(_: web.Request) -> web.Response:
        return web.Response(body=b"\xff" * size_bytes, content_type="text/plain")

    app = web.Application()
    app.router.add_get("/metrics", page)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        port = runner.addresses[0][1]
        return await Endpoint(f"http://127.0.0.1:{port}").page("/metrics", 20.0)
    finally:
        await runner.cleanup()


def test_a_page_is_text_whatever_bytes_it_has() -> None:
    assert asyncio.run(asked(3)) == (200, "\ufffd" * 3)


def test_a_page_without_end_is_no_answer() -> None:
    assert asyncio.run(asked(LARGEST_PAGE_BYTES + 1)) == (NOBODY, "more than 4 MiB came")
