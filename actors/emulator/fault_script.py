"""The script of faults that `--emulator-faults` reads: YAML, checked before anything starts.

Unknown keys are errors, as in a scenario. Field descriptions of the models are the text of docs/emulator-faults.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Discriminator, Field, Tag, ValidationError, model_validator

from actors.emulator.fault import Fault, Strict
from actors.emulator.serving_fault import (
    SERVING_FAULTS,
    Crawl,
    Cut,
    Die,
    DoneMark,
    DropConnection,
    Empty,
    EndpointFault,
    ErrorEvent,
    Hang,
    HttpError,
    LogFlood,
    Reframe,
    SlowDeath,
    SlowFirstByte,
    Stall,
    Truncate,
    Usage,
)
from actors.emulator.start_fault import (
    START_FAULTS,
    FloodedStart,
    HangingStart,
    IgnoredSigterm,
    LabelledEnd,
    Orphan,
    ReplayedLog,
    SilentEnd,
    SlowStart,
)
from orchestrator.errors import BadInput
from orchestrator.scenarios.model_fault import first_fault
from orchestrator.scenarios.yaml_tree import parse_yaml


def _start_kind(value: Any) -> str | None:
    """The class that the keys of a start fault mean."""
    if isinstance(value, Fault):
        return type(value).__name__
    kind = next((kind for kind in START_FAULTS if isinstance(value, dict) and kind in value), None)
    return START_FAULTS[kind].__name__ if kind else None


def _serving_kind(value: Any) -> str | None:
    if isinstance(value, Fault):
        return type(value).__name__
    kind = value.get("fault") if isinstance(value, dict) else None
    return SERVING_FAULTS[kind].__name__ if isinstance(kind, str) and kind in SERVING_FAULTS else None


def _as_list(value: Any) -> Any:
    """A single fault is a list of one."""
    return [value] if isinstance(value, dict) else value


StartEntry = Annotated[
    Annotated[LabelledEnd, Tag("LabelledEnd")] | Annotated[ReplayedLog, Tag("ReplayedLog")]
    | Annotated[SilentEnd, Tag("SilentEnd")] | Annotated[HangingStart, Tag("HangingStart")]
    | Annotated[SlowStart, Tag("SlowStart")] | Annotated[FloodedStart, Tag("FloodedStart")]
    | Annotated[IgnoredSigterm, Tag("IgnoredSigterm")] | Annotated[Orphan, Tag("Orphan")],
    Discriminator(_start_kind, custom_error_type="fault_kind", custom_error_message="{error}",
                  custom_error_context={"error": f"wants one of the keys {', '.join(START_FAULTS)}"}),
]  # fmt: skip
ServingEntry = Annotated[
    Annotated[Stall, Tag("Stall")] | Annotated[Hang, Tag("Hang")] | Annotated[SlowDeath, Tag("SlowDeath")]
    | Annotated[Crawl, Tag("Crawl")]
    | Annotated[Die, Tag("Die")] | Annotated[LogFlood, Tag("LogFlood")] | Annotated[Cut, Tag("Cut")]
    | Annotated[Truncate, Tag("Truncate")] | Annotated[ErrorEvent, Tag("ErrorEvent")]
    | Annotated[HttpError, Tag("HttpError")] | Annotated[Empty, Tag("Empty")]
    | Annotated[SlowFirstByte, Tag("SlowFirstByte")] | Annotated[DropConnection, Tag("DropConnection")]
    | Annotated[Reframe, Tag("Reframe")] | Annotated[Usage, Tag("Usage")] | Annotated[DoneMark, Tag("DoneMark")]
    | Annotated[EndpointFault, Tag("EndpointFault")],
    Discriminator(_serving_kind, custom_error_type="fault_kind", custom_error_message="{error}",
                  custom_error_context={"error": f"wants `fault:` with one of {', '.join(SERVING_FAULTS)}"}),
]  # fmt: skip


class FaultScript(Strict):
    """The faults of emulated servers. Each entry strikes on its own; several may strike the same server or request."""

    seed: int = Field(1, ge=0, description="Of probabilities and of the places where frames are split.")
    start: Annotated[list[StartEntry], BeforeValidator(_as_list)] = Field(
        default_factory=list, description="Faults before the server is ready; one may stand without a list."
    )
    serving: Annotated[list[ServingEntry], BeforeValidator(_as_list)] = Field(
        default_factory=list, description="Faults from ready on; one may stand without a list."
    )

    @model_validator(mode="after")
    def _something(self) -> FaultScript:
        if not self.start and not self.serving:
            raise ValueError("has no fault; give `start` or `serving`")
        return self


def load_fault_script(path: Path) -> FaultScript:
    """Read and check a fault script. Raises BadInput, with file, line and key where a line is at fault."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BadInput(f"{path}: the fault script cannot be read: {error.strerror}") from None
    tree = parse_yaml(data, str(path))
    try:
        script = FaultScript.model_validate(tree.value)
    except ValidationError as error:
        raise first_fault(tree, error, FaultScript) from None
    for entry in script.start:
        if isinstance(entry, ReplayedLog) and not (path.parent / entry.replay).is_file():
            raise BadInput(
                f"{path}: replay: {path.parent / entry.replay}: no such file (paths are relative to the script)"
            )
    return script
