"""A server's base URL -> where to connect and what the requests' first lines and headers say. Pure."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from orchestrator.errors import BadInput

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """`host` is a name or a bare IP address. `base` is the path before those of the API, `query` what follows them.

    `credentials` is the value of an Authorization header if the URL has a user, else empty.
    """

    host: str
    port: int
    tls: bool
    base: str = ""
    query: str = ""
    credentials: str = ""

    @property
    def named(self) -> str:
        """The value of the Host header: the port only where it is not the usual one."""
        host = self.host.partition("%")[0]
        shown = f"[{host}]" if ":" in host else host
        return shown if self.port == _PORTS["https" if self.tls else "http"] else f"{shown}:{self.port}"

    def target(self, path: str) -> str:
        """What a request for `path` of the API asks for."""
        return f"{self.base}{path}{'?' + self.query if self.query else ''}"


def read_address(url: str) -> ServerAddress:
    """The address in a URL; BadInput if it is none of http or https, with a host and a possible port."""
    try:
        parts = urlsplit(url.strip())
        port = parts.port
        host = unquote(parts.hostname or "").encode("ascii" if ":" in (parts.hostname or "") else "idna").decode()
    except ValueError as error:
        raise BadInput(f"{_shown(url)}: is no URL of a server: {error}") from None
    if parts.scheme not in _PORTS or not host:
        raise BadInput(f"{_shown(url)}: is no URL of a server; write http://HOST:PORT or https://HOST:PORT")
    credentials = ""
    if parts.username is not None:
        user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = "Basic " + base64.b64encode(user.encode()).decode()
    tls = parts.scheme == "https"
    return ServerAddress(host, port or _PORTS[parts.scheme], tls, parts.path.rstrip("/"), parts.query, credentials)


def _shown(url: str) -> str:
    """The URL without a user and password that it may hold."""
    head, at, tail = url.rpartition("@")
    return f"{head.partition('://')[0]}://***@{tail}" if at else url
