"""The token of a cluster, where Ray looks for it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

from orchestrator.paths import user_file


def cluster_token(environ: Mapping[str, str] = os.environ) -> str | None:
    """The cluster's token, from where Ray looks for it: RAY_AUTH_TOKEN, RAY_AUTH_TOKEN_PATH, ~/.ray/auth_token."""
    if environ.get("RAY_AUTH_MODE") == "disabled":
        return None
    if token := environ.get("RAY_AUTH_TOKEN"):
        return token.strip()
    if told := environ.get("RAY_AUTH_TOKEN_PATH"):
        with user_file(f"RAY_AUTH_TOKEN_PATH {told}", "read"):
            return _token_in(Path(told).expanduser())
    with contextlib.suppress(OSError):
        return _token_in(Path.home() / ".ray" / "auth_token")
    return None


def _token_in(file: Path) -> str | None:
    return file.read_text(encoding="utf-8").strip() or None
