"""A network that is cut under a connection is found out within seconds, whatever time a request may take."""

from __future__ import annotations

import asyncio
import os
import socket

from actors.wire.connection_pool import ConnectionPool
from actors.wire.server_address import read_address


def test_a_silent_connection_is_probed_every_second_and_given_up_after_three() -> None:
    async def go() -> dict[str, int]:
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        pool = ConnectionPool(read_address(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
        connection = await pool.connect()
        names = ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
        with socket.socket(fileno=os.dup(connection.fd)) as same:
            options = {name: same.getsockopt(socket.IPPROTO_TCP, getattr(socket, name)) for name in names}
            options["SO_KEEPALIVE"] = same.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        await pool.close()
        server.close()
        return options

    assert asyncio.run(go()) == {
        "TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 2, "TCP_USER_TIMEOUT": 3000, "SO_KEEPALIVE": 1,
    }  # fmt: skip
