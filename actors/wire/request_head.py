"""First line and headers of requests to one server, and what must never be shown of them. Pure."""

from __future__ import annotations

import re

from actors.wire.server_address import ServerAddress
from orchestrator.errors import BadInput

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
# These say how the message is cut and what comes back; another value would break the client.
_OWN = frozenset({"accept-encoding", "connection", "content-length", "expect", "keep-alive", "te", "transfer-encoding",
                  "upgrade"})  # fmt: skip
# Shorter values, such as a flag, are no secrets and stand in many texts.
_SECRET_LENGTH = 6


class RequestHead:
    """What all requests to a server begin with. Headers that are given replace ours of the same name."""

    def __init__(self, address: ServerAddress, api_key: str | None, headers: tuple[tuple[str, str], ...]) -> None:
        self._address = address
        given = {name.lower(): (name, checked_header(name, value)) for name, value in headers}
        authorization = f"Bearer {api_key}" if api_key else address.credentials
        ours = {"host": ("Host", address.named), "accept": ("Accept", "*/*")}
        if authorization:
            ours["authorization"] = ("Authorization", checked_header("Authorization", authorization))
        merged = ours | given
        self._json = "" if "content-type" in merged else "Content-Type: application/json\r\n"
        self._lines = "".join(f"{name}: {value}\r\n" for name, value in merged.values())
        secrets = {authorization, *(value for _, value in given.values())}
        secrets |= {secret.partition(" ")[2] for secret in secrets}
        self._secrets = sorted((s for s in secrets if len(s) >= _SECRET_LENGTH), key=len, reverse=True)

    def beginning(self, method: str, path: str) -> bytes:
        """A request up to what differs from one message to the next."""
        line = f"{method} {self._address.target(path)} HTTP/1.1\r\n"
        return (line + self._lines + "Accept-Encoding: identity\r\n").encode("latin-1")

    def message(self, beginning: bytes, body: bytes | None, *, keep: bool) -> bytes:
        """A whole request. With `keep` the connection is to be used again. A body of None is none at all."""
        closing = b"" if keep else b"Connection: close\r\n"
        if body is None:
            return beginning + closing + b"\r\n"
        return b"%b%b%bContent-Length: %d\r\n\r\n%b" % (beginning, self._json.encode(), closing, len(body), body)

    def without_secrets(self, text: str) -> str:
        """A text that a server sent, which may repeat what it was sent."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text


def checked_header(name: str, value: str) -> str:
    """The value as it is sent; BadInput, without it, if it cannot be."""
    if not _NAME.fullmatch(name) or name.lower() in _OWN:
        raise BadInput(f"header {name!r}: cannot be set; the client sets it itself, or it is no name of a header")
    if not value.isprintable() or not _is_latin(value):
        raise BadInput(f"header {name}: its value holds a line end or another character that no header can hold")
    return value.strip()


def _is_latin(value: str) -> bool:
    try:
        value.encode("latin-1")
    except UnicodeEncodeError:
        return False
    return True
