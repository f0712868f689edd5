"""The token of a cluster, where Ray looks for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator.errors import BadInput


def cluster_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """The cluster's token, from where Ray looks for it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token."""
    if environ.get("RAY_AUTH_MODE") == "disabled":
        return None
    if token := environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    told = environ.get("RAY_AUTH_TOKEN_PATH")
    file = Path(told).expanduser() if told else Path.home() / ".ray" / "auth_token"
    try:
        return file.read_text(encoding="utf-8").strip() or None
    except OSError as error:
        if told:
            raise BadInput(f"RAY_AUTH_TOKEN_PATH {told}: cannot be read: {error.strerror}") from None
        return None
