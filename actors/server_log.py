"""The log file of one server: read whole, cut to what the server itself wrote, packed without secrets."""

from __future__ import annotations

from pathlib import Path

from actors.launch import conceal


class ServerLog:
    """A file that may not be there yet; None for a server that we did not start."""

    def __init__(self, path: Path | None) -> None:
        self._path = path

    def whole(self) -> bytes:
        return self._path.read_bytes() if self._path is not None and self._path.exists() else b""

    def lines(self) -> int:
        return self.whole().count(b"\n")

    def of_server(self, began: int, ended: int | None) -> bytes:
        """The bytes from `began` to `ended` (None: the end), with empty lines for what came before."""
        log = self.whole()
        return b"\n" * log[:began].count(b"\n") + log[began:ended]

    def packed(self, secrets: frozenset[str]) -> bytes:
        """Secrets replaced, zstd-compressed."""
        import zstandard

        text = conceal(self.whole().decode("utf-8", errors="replace"), secrets)
        return zstandard.ZstdCompressor(level=9).compress(text.encode())
