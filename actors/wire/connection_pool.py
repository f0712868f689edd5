"""Connections to one server: made when needed, kept for a moment, counted nowhere against a limit, never by a proxy."""

from __future__ import annotations

import array
import asyncio
import errno
import fcntl
import socket
import ssl
import termios
from collections import deque
from typing import Any

from actors.wire.http_connection import HttpConnection
from actors.wire.server_address import ServerAddress

# Less than the 5 s after which uvicorn, in front of SGLang, closes an idle connection.
_KEEP_ALIVE_S = 3.0
_MOST_SAMPLED = 64
_NEVER_S = 1e6  # requests have limits of their own
# A host that is there answers a probe whatever its server does, so two that stay without an answer are a cut network:
# the connection ends with ETIMEDOUT after three seconds, where it would else wait as long as a request may take.
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES = 1, 1, 2

Resolved = tuple[int, Any]


class ConnectionPool:
    """All connections to one address, the idle ones handed out latest first."""

    def __init__(self, address: ServerAddress) -> None:
        self._address = address
        self._loop = asyncio.get_running_loop()
        self._tls = _tls_context() if address.tls else None
        self._open: set[HttpConnection] = set()
        self._idle: deque[HttpConnection] = deque()
        self._resolved: list[Resolved] = []

    def take(self) -> HttpConnection | None:
        """A connection that was used before and is still open, None if there is none."""
        idle, oldest_s = self._idle, self._loop.time() - _KEEP_ALIVE_S
        while idle:
            connection = idle.pop()
            if connection.fd >= 0:
                if connection.idle_since_s > oldest_s:
                    return connection
                connection.close()
        return None

    async def connect(self) -> HttpConnection:
        """A new connection; OSError with the reason if there is none to be had.

        A name is looked up once. Of its addresses the one that answered first is used from then on.
        """
        addresses = self._resolved or await self._resolve()
        failure: OSError | None = None
        for resolved in addresses:
            try:
                connection = await self._connect_to(*resolved)
            except OSError as error:
                # No address of that family on this host: says less than what the other address had to say.
                if failure is None or failure.errno == errno.EADDRNOTAVAIL:
                    failure = error
                continue
            self._resolved = [resolved]
            return connection
        assert failure is not None, "a name that is resolved has an address"
        raise failure

    def forget(self) -> None:
        """Hand out no connection again that is idle now."""
        while self._idle:
            self._idle.pop().close()

    async def close(self) -> None:
        """Close all connections."""
        for connection in list(self._open):
            connection.close()
        self._idle.clear()
        await asyncio.sleep(0)  # event loops close the sockets in their next round

    def backlog_kib(self) -> float:
        """Bytes that have come and that we have not read, over all connections in use, from a sample of them."""
        busy = [connection for connection in self._open if connection.busy]
        sampled = busy[:: max(len(busy) // _MOST_SAMPLED, 1)][:_MOST_SAMPLED]
        waiting = array.array("i", [0])
        total = 0
        for connection in sampled:
            try:
                fcntl.ioctl(connection.fd, termios.FIONREAD, waiting)
            except OSError:
                continue
            total += waiting[0]
        return total / 1024 * len(busy) / len(sampled) if sampled else 0.0

    async def _resolve(self) -> list[Resolved]:
        host, port = self._address.host, self._address.port
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except socket.gaierror:
            found = await self._loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self._resolved = [(family, address) for family, _, _, _, address in found]
        return self._resolved

    async def _connect_to(self, family: int, address: Any) -> HttpConnection:
        connection = HttpConnection(self._on_idle, self._open.discard)
        given = socket.socket(family, socket.SOCK_STREAM)
        try:
            given.setblocking(False)
            given.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            _probe_when_silent(given)
            await self._loop.sock_connect(given, address)
            await self._open_transport(connection, given)
        except BaseException:
            connection.close()  # a transport may have it already
            given.close()
            raise
        if connection.fd >= 0:
            self._open.add(connection)
        return connection

    async def _open_transport(self, connection: HttpConnection, given: socket.socket) -> None:
        if self._tls is None:
            await self._loop.create_connection(lambda: connection, sock=given)
            return
        await self._loop.create_connection(
            lambda: connection,
            sock=given,
            ssl=self._tls,
            server_hostname=self._address.host.partition("%")[0],
            ssl_handshake_timeout=_NEVER_S,
        )

    def _on_idle(self, connection: HttpConnection) -> None:
        now = self._loop.time()
        connection.idle_since_s = now
        idle = self._idle
        while idle and (idle[0].fd < 0 or idle[0].idle_since_s < now - _KEEP_ALIVE_S):
            idle.popleft().close()
        idle.append(connection)


def _probe_when_silent(given: socket.socket) -> None:
    given.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", _PROBE_AFTER_S),
        ("TCP_KEEPINTVL", _PROBE_EVERY_S),
        ("TCP_KEEPCNT", _PROBES),
        ("TCP_USER_TIMEOUT", 1000 * (_PROBE_AFTER_S + _PROBES * _PROBE_EVERY_S)),  # also while we are sending
    ):
        if hasattr(socket, name):  # not every system has all of them
            given.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def _tls_context() -> ssl.SSLContext:
    """Checked against the system's trust store."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
