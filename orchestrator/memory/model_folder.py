"""Where a model lies on this host: its folder, or the newest snapshot in the hub's cache. Nothing is downloaded."""

from __future__ import annotations

import os
from pathlib import Path


def model_folder(path: str) -> Path | None:
    """The folder of a model: the path itself, or the newest snapshot of a hub name in the local cache."""
    given = Path(path).expanduser()
    if (given / "config.json").is_file():
        return given
    if not is_hub_name(path):
        return None
    snapshots = _hub_cache() / f"models--{path.replace('/', '--')}" / "snapshots"
    found = sorted(snapshots.glob("*/config.json"), key=lambda file: file.stat().st_mtime)
    return found[-1].parent if found else None


def is_hub_name(path: str) -> bool:
    """Whether a path may be a name on the hub, `owner/model`, and so be fetched where it is not."""
    return path.count("/") == 1 and not path.startswith((".", "/", "~"))


def _hub_cache() -> Path:
    """Where the hub's client keeps models, by its own environment variables."""
    if "HF_HUB_CACHE" in os.environ:
        return Path(os.environ["HF_HUB_CACHE"])
    cache = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface"
    return Path(os.environ.get("HF_HOME") or cache).expanduser() / "hub"
