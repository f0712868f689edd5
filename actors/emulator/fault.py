"""What all faults of a script have in common: strict keys, and the servers that they are for."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from orchestrator.sglang.options import canonical_name, did_you_mean, known_options

FloodLine = Literal["plain", "long", "bar", "ansi", "invalid_utf8"]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]
Value = bool | int | float | str


class Strict(BaseModel):
    """Frozen, no unknown keys, no silent conversion."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class Fault(Strict):
    """What every fault has."""

    when: dict[str, Value | list[Value]] = Field(
        default_factory=dict,
        description="Only on servers whose resolved settings have these values (a value or a list of values), so that "
        "one script breaks one config of a sweep. `speculative_num_steps: 0` is the config without speculation.",
    )
    starts: Count | None = Field(
        None,
        description="Only in the first so many starts of a trial, so that a second attempt goes well. The starts are "
        "counted in `SCRIPT.starts` beside the script, which must be writable.",
    )

    @field_validator("when")
    @classmethod
    def _known_settings(cls, when: dict[str, Any]) -> dict[str, Any]:
        for name in when:
            if canonical_name(name) not in known_options():
                raise ValueError(f"'{name}' is no setting of a server{did_you_mean(name, list(known_options()))}")
        return {canonical_name(name): value for name, value in when.items()}


class Lasting(Fault):
    """A fault that ends: after a time, or once a file is there, so that whoever watches decides when."""

    seconds: Seconds | None = Field(None, description="How long; the start speed-up does not shorten it.")
    until: str | None = Field(
        None,
        min_length=1,
        description="Instead of `seconds`: until this file is there; relative to the script. It holds a server where a "
        "test wants it.",
    )

    @model_validator(mode="after")
    def _ends_in_one_way(self) -> Self:
        if (self.seconds is None) == (self.until is None):
            raise ValueError("wants either `seconds` or `until`")
        return self


def applies(fault: Fault, settings: dict[str, Any]) -> bool:
    """Whether a server with these resolved settings has this fault."""
    for name, wanted in fault.when.items():
        given = settings.get(name)
        if given is None and name == "speculative_num_steps":
            given = 0
        if given not in (wanted if isinstance(wanted, list) else [wanted]):
            return False
    return True
