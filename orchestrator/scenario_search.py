"""The keys of `search`: which of the configs of a sweep are started, and how often."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, model_validator

from orchestrator.scenario_engine import Strict


class SearchKeys(Strict):
    """How configs are chosen: all of them, or those that the results so far leave in question.

    `search: halving` is short for `search: {method: halving}`.
    """

    method: Literal["grid"] = Field(
        "grid",
        description="`grid`: every config, `measure.repeats` times.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return {"method": given} if isinstance(given, str) else given
