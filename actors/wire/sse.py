"""Network reads -> payloads of server-sent events, at byte level. Pure."""

from __future__ import annotations

import orjson

_BOM = b"\xef\xbb\xbf"


class EventSplitter:
    """Cuts a stream into events, however the network cut it: a read may hold half an event or many.

    Nothing is decoded here, so a character that is split over two reads is whole again in its payload. An event is
    given with the read that ends it, whichever of `\\n`, `\\r\\n` and `\\r` its lines end with. `between_events`: an
    event has ended, and no other has begun.
    """

    __slots__ = ("_after_return", "_first", "_parts", "between_events", "waiting_bytes")

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._first = True
        self._after_return = False
        self.waiting_bytes = 0
        self.between_events = False

    def feed(self, data: bytes) -> list[bytes]:
        """The `data` payloads of the events that end in this read, in order."""
        payloads = self._split(data)
        self.between_events = not (self._first or self.waiting_bytes or self._after_return)
        return payloads

    def finish(self) -> list[bytes]:
        """The payload of what is left when the stream has ended; it may be an event that was cut."""
        return self._payloads([self._taken()])

    @property
    def untouched(self) -> bool:
        """Whether no event has ended yet."""
        return self._first

    @property
    def inside_event(self) -> bool:
        """Whether an event has begun that is no comment."""
        return any(part.strip(b"\n") for part in self._parts) and not self.rest.lstrip(b"\n").startswith(b":")

    @property
    def rest(self) -> bytes:
        """What has come since the last event ended."""
        return b"".join(self._parts)

    def _split(self, data: bytes) -> list[bytes]:
        data = self._with_plain_line_ends(data)
        if not data:
            return []
        parts = self._parts
        if b"\n\n" not in data and not (parts and parts[-1].endswith(b"\n") and data.startswith(b"\n")):
            self._wait(data)
            return []
        events = (self._taken() + data).split(b"\n\n")
        rest = events.pop()
        if rest:
            self._wait(rest)
        return self._payloads(events)

    def _wait(self, part: bytes) -> None:
        self._parts.append(part)
        self.waiting_bytes += len(part)

    def _taken(self) -> bytes:
        rest = self.rest
        self._parts.clear()
        self.waiting_bytes = 0
        return rest

    def _with_plain_line_ends(self, data: bytes) -> bytes:
        """Data with `\\n` line ends. A `\\r` at the end of a read has ended its line, whatever follows."""
        if self._after_return and data:
            self._after_return = False
            if data.startswith(b"\n"):
                data = data[1:]
        if b"\r" in data:
            self._after_return = data.endswith(b"\r")
            data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        return data

    def _payloads(self, events: list[bytes]) -> list[bytes]:
        if self._first and events:
            self._first = False
            events[0] = events[0].removeprefix(_BOM)
        found = []
        for event in events:
            if event.startswith(b"data: {") and b"\n" not in event:
                found.append(event[6:])
            elif payload := _payload(event):
                found.append(payload)
        return found


def _payload(event: bytes) -> bytes:
    """Joined `data` lines of one event, without blanks around them: some servers keep a connection alive with `data:`.

    Empty for comments, `event:` or `id:` lines alone, and blank lines. That an event is named `error` is not in its
    data; it is given as an error object.
    """
    lines, name = [], b""
    for line in event.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line.startswith(b"data: ") else line[5:])
        elif line.startswith(b"event:"):
            name = line[6:].strip()
    payload = b"\n".join(lines).strip()
    return _as_error(payload) if name == b"error" and payload else payload


def _as_error(payload: bytes) -> bytes:
    """The error object of an event that is named `error`, whatever its data is."""
    try:
        told = orjson.loads(payload)
    except orjson.JSONDecodeError:
        told = payload.decode("utf-8", "replace")
    return payload if isinstance(told, dict) and told.get("error") else orjson.dumps({"error": told or "unknown"})
