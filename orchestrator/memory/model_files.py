"""A model's config.json and the bytes of its weights: from a folder, the hub's cache, or a config given by itself.

Nothing is downloaded. Weight files are read for their headers only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from orchestrator.errors import BadInput
from orchestrator.memory.config_shape import model_shape
from orchestrator.memory.memory_model import ModelFacts
from orchestrator.memory.model_folder import model_folder
from orchestrator.memory.weight_budget import Checkpoint

# Names of tensors of bundled drafts: Qwen, GLM, MiMo ("mtp"), EAGLE-like exports ("nextn").
DRAFT_WORDS = ("mtp", "nextn")
MOST_HEADER_BYTES = 100 * 2**20


def model_facts(path: str, config: str | None = None, draft: str | None = None) -> ModelFacts | None:
    """What files tell of a model; None where there is no config.json to read.

    `path` is a folder or a hub name that is in the local cache, `config` a config.json or its folder. BadInput for a
    `config` that is not there or is none.
    """
    folder = model_folder(path)
    file = config_file(config) if config else (folder / "config.json" if folder else None)
    if file is None or not file.is_file():
        return None
    told = _json(file)
    weights = checkpoint_of(folder or file.parent, layers=_layers(told))
    draft_folder = model_folder(draft) if draft else None
    draft_told = _json(draft_folder / "config.json") if draft_folder else None
    return ModelFacts(
        shape=model_shape(told),
        checkpoint=weights,
        draft_shape=model_shape(draft_told) if draft_told else None,
        draft_checkpoint=checkpoint_of(draft_folder) if draft_folder else None,
    )


def config_file(given: str) -> Path:
    """The config.json that a path names; BadInput if there is none."""
    path = Path(given).expanduser()
    file = path / "config.json" if path.is_dir() else path
    if not file.is_file():
        raise BadInput(f"{given}: no such file; give a model's config.json or the folder that holds it")
    return file


def checkpoint_of(folder: Path, layers: int | None = None) -> Checkpoint | None:
    """Bytes of the weights in a folder; None if it has none. Exact where safetensors files are there."""
    files = sorted(folder.glob("*.safetensors"))
    if files:
        sizes = dict(size for file in files for size in _tensors(file))
        draft = sum(size for name, size in sizes.items() if _is_draft(name, layers))
        return Checkpoint(sum(sizes.values()), draft) if sizes else None
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        total = _json(index).get("metadata", {}).get("total_size")
        return Checkpoint(int(total)) if total else None
    return None


def _is_draft(name: str, layers: int | None) -> bool:
    """By name, or a layer beyond the target's (DeepSeek appends its draft as one more)."""
    words = name.lower().split(".")
    if any(word.startswith(DRAFT_WORDS) for word in words):
        return True
    if layers is None or "visual" in words or "vision_tower" in words:
        return False
    return any(before == "layers" and after.isdigit() and int(after) >= layers for before, after in pairwise(words))


def _tensors(file: Path) -> Iterator[tuple[str, int]]:
    """(name, bytes) of each tensor, from the header of a safetensors file."""
    with file.open("rb") as stream:
        head = stream.read(8)
        length = struct.unpack("<Q", head)[0] if len(head) == 8 else 0
        if not 2 <= length <= MOST_HEADER_BYTES:
            raise BadInput(f"{file}: is no safetensors file; was it fetched whole?")
        try:
            told = json.loads(stream.read(length))
        except ValueError as error:
            raise BadInput(f"{file}: its header cannot be read: {error}; was it fetched whole?") from None
    for name, tensor in told.items():
        if name != "__metadata__":
            begin, end = tensor["data_offsets"]
            yield name, end - begin


def _layers(config: dict[str, Any]) -> int | None:
    inner = config.get("text_config")
    told = inner if isinstance(inner, dict) else config
    layers = told.get("num_hidden_layers")
    return layers if isinstance(layers, int) else None


def _json(file: Path) -> dict[str, Any]:
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadInput(f"{file}: cannot be read as JSON: {error}; was it fetched whole?") from None
    if not isinstance(told, dict):
        raise BadInput(f"{file}: is no JSON object; is it the config.json of a model?")
    return told
