"""Where a history is: a folder, or a URI that pyarrow opens; and what may be shown of it, which is no password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote

import pyarrow as pa
import pyarrow.fs as pafs

from actors.servers.launch import conceal
from orchestrator.error_text import first_line
from orchestrator.errors import BadInput
from orchestrator.trial import SECRET_NAME

# Whatever pyarrow raises: network and rights are OSError, a few of Azure's are ArrowException and nothing more.
PLACE_ERRORS = (OSError, ValueError, NotImplementedError, pa.ArrowException)
_URI = re.compile(r"^(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+)://")
_NO_FOLDER = re.compile(r"^(?:file|s3|gs|gcs|abfss?|hdfs):", re.IGNORECASE)
_WITHOUT_FOLDERS = frozenset({"s3", "gcs", "abfs"})
# Google's client tries for 15 minutes where nobody answers, or no account is there to ask with.
_GCS_RETRY_S = 60
_SHORTEST_SECRET = 8


@dataclass(frozen=True, slots=True)
class HistoryPlace:
    """`root` without a slash at its end; `location` as it was given, which may hold a key."""

    filesystem: Any
    root: str
    location: str = ""

    @property
    def is_local(self) -> bool:
        return isinstance(self.filesystem, pafs.LocalFileSystem)

    @property
    def has_folders(self) -> bool:
        """Object stores have none: a part needs none to be made, and rights to make one may be missing."""
        return self.filesystem.type_name not in _WITHOUT_FOLDERS

    @property
    def shown(self) -> str:
        """As messages and reports call it."""
        return without_secrets(self.location or self.root, self.location)

    def told(self, error: Exception) -> str:
        """An error in a line, without what is secret of the place."""
        return without_secrets(first_line(error), self.location)


def place_of(location: str) -> HistoryPlace:
    """A folder, or a URI (file://, s3://, gs://, abfs://, hdfs://). BadInput for others."""
    uri = _URI.match(location)
    if uri is None:
        if _NO_FOLDER.match(location):
            raise BadInput(f"history {without_secrets(location, location)}: a URI has two slashes: s3://BUCKET/FOLDER")
        root = str(Path(location).expanduser().absolute())
        return HistoryPlace(pafs.LocalFileSystem(), root.rstrip("/"), location)
    known = uri["scheme"].lower() + location[uri.end("scheme") :]
    if known.startswith(("gs://", "gcs://")) and "retry_limit_seconds=" not in known:
        known += f"{'&' if '?' in known else '?'}retry_limit_seconds={_GCS_RETRY_S}"
    try:
        filesystem, root = pafs.FileSystem.from_uri(known)
    except PLACE_ERRORS as error:
        told = without_secrets(f"history {location}: is no place that can be opened: {first_line(error)}", location)
        raise BadInput(told) from None
    return HistoryPlace(filesystem, root.rstrip("/"), location)


def without_secrets(text: str, location: str) -> str:
    """Text without the key of a location (`s3://ID:KEY@bucket`, `?client_secret=...`), however it stands there."""
    uri = _URI.match(location)
    if uri is None:
        return conceal(text)
    address, _, query = location[uri.end() :].partition("?")
    user, at, _ = address.rpartition("@")
    hidden = set[str]()
    if at and ":" in user:  # a name alone is none: abfs://container@account
        text = text.replace(f"{user}@", "***@")
        hidden.add(user.partition(":")[2])
    hidden |= {value for name, value in parse_qsl(query) if SECRET_NAME.search(name)}
    hidden |= {part.partition("=")[2] for part in query.split("&") if SECRET_NAME.search(part.partition("=")[0])}
    hidden |= {unquote(secret) for secret in hidden}
    return conceal(text, frozenset(secret for secret in hidden if len(secret) >= _SHORTEST_SECRET))
