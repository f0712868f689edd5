"""What the keys of files are made of: mappings without unknown keys, and values that several keys have."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Strict(BaseModel):
    """Frozen, no unknown keys, no silent conversion (`"4"` is not 4)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def off_as_written(mode: Any) -> Any:
    """YAML reads a bare `off` as false."""
    return "off" if mode is False else mode
