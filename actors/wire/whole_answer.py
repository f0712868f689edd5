"""An answer that is wanted whole: what side endpoints of a server say."""

from __future__ import annotations

import asyncio

from actors.wire.http_connection import Exchange, HttpConnection

# Far above the metrics of any server; an answer without end must not fill our memory.
_MOST_BYTES = 2**26


class WholeAnswer(Exchange):
    """Collects a body."""

    __slots__ = ("_body", "_error", "_size")

    def __init__(self) -> None:
        super().__init__(asyncio.get_running_loop().create_future())
        self._body: list[bytes] = []
        self._size = 0
        self._error: Exception | None = None

    @classmethod
    async def over(cls, connection: HttpConnection, message: bytes) -> tuple[int | None, str]:
        """Send a request and return status and text of the answer; OSError if it is not whole."""
        answer = cls()
        connection.send(message, answer)
        await answer.waiter
        if answer._error is not None:
            raise ConnectionError(f"no whole answer: {answer._error}") from answer._error
        return answer.status, b"".join(answer._body).decode("utf-8", "replace")

    def answered(self) -> None:
        self.keeps = False  # the connection is closed by whoever asked, even if the server would keep it

    def take(self, body: bytes) -> None:
        self._size += len(body)
        if self._size > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES >> 20} MiB")
        self._body.append(body)

    def finish(self, error: Exception | None) -> None:
        self._error = error
        self.wake()
