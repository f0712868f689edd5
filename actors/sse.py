"""Network reads -> payloads of server-sent events, at byte level. Pure."""

from __future__ import annotations


class EventSplitter:
    """Cuts a stream into events, however the network cut it: a read may hold half an event or many.

    Nothing is decoded here, so a character that is split over two reads is whole again in its payload.
    """

    __slots__ = ("_rest",)

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """The `data` payloads of the events that end in this read, in order."""
        if self._rest:
            data = self._rest + data
        held = b""
        if b"\r" in data:
            data, held = _with_plain_line_ends(data)
        events = data.split(b"\n\n")
        self._rest = events.pop() + held
        return _payloads(events)

    def finish(self) -> list[bytes]:
        """The payload of what is left when the stream has ended; it may be an event that was cut."""
        rest = self._rest.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        self._rest = b""
        return _payloads([rest])

    @property
    def rest(self) -> bytes:
        """What has come since the last event ended."""
        return self._rest


def _with_plain_line_ends(data: bytes) -> tuple[bytes, bytes]:
    """(data with `\\n` line ends, a last `\\r` that waits for what follows it)."""
    held = b"\r" if data.endswith(b"\r") else b""
    body = data[:-1] if held else data
    return body.replace(b"\r\n", b"\n").replace(b"\r", b"\n"), held


def _payloads(events: list[bytes]) -> list[bytes]:
    found = []
    for event in events:
        if event.startswith(b"data: ") and b"\n" not in event:
            found.append(event[6:])
        else:
            payload = _payload(event)
            if payload is not None:
                found.append(payload)
    return found


def _payload(event: bytes) -> bytes | None:
    """Joined `data` lines of one event; None for comments, `event:` or `id:` lines alone, and blank lines."""
    lines = []
    for line in event.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line.startswith(b"data: ") else line[5:])
    return b"\n".join(lines) if lines else None
