"""The keys of `search`: which of the configs of a sweep are started, and how often."""

from __future__ import annotations

from typing import Any, Final, Literal, get_args

from pydantic import Field, model_validator

from orchestrator.key_types import Count, Positive, Strict

Direction = Literal["up", "down", "interval", "none"]
Method = Literal["grid", "ceiling", "halving", "optuna", "pairs"]
METHODS: Final[tuple[Method, ...]] = get_args(Method)
# Key -> the methods that heed it; given with another it is refused. What a search makes no use of, `compare` may still:
# it takes `noise` and `host_spread` where the starts of a run cannot show them, and `plan` reckons a grid by `noise`.
HEEDED_BY: Final[dict[str, tuple[Method, ...]]] = {
    "directions": ("halving", "ceiling"),
    "noise": ("grid", "halving", "ceiling", "optuna"),
    "host_spread": ("grid", "halving", "ceiling", "optuna"),
    "eta": ("halving",),
    "screen": ("halving",),
    "infer": ("halving",),
    "finalists": ("halving",),
    "confidence": ("halving",),
    "max_repeats": ("halving",),
    "budget_trials": ("halving", "optuna"),
    "knobs": ("ceiling",),
    "verify": ("ceiling",),
    "space": ("optuna",),
    "sampler": ("optuna",),
    "best": ("optuna",),
    "best_repeats": ("optuna",),
}
# Starts of an optuna search without a budget of its own.
_OPTUNA_STARTS = 50


def _of(key: str, text: str) -> str:
    """The description of a key, with the methods that heed it."""
    return f"{', '.join(HEEDED_BY[key])}: {text}"


class SpaceRange(Strict):
    """One setting of a space that is too large to list: all values from `low` to `high`."""

    low: float = Field(allow_inf_nan=False, description="Smallest value.")
    high: float = Field(allow_inf_nan=False, description="Largest value.")
    step: Positive | None = Field(
        None, description="Distance of two values, from `low` on; whole numbers throughout make whole settings."
    )
    log: bool = Field(False, description="Small values are tried as finely as large ones; not together with `step`.")


class SearchKeys(Strict):
    """How configs are chosen: all of them, or those that the results so far leave in question (docs/search.md).

    `search: halving` is short for `search: {method: halving}`.
    """

    method: Method = Field(
        "grid",
        description="`grid`: every config, `measure.repeats` times. `halving`: all that may be best, more and more "
        "often, until the best is told apart. `ceiling`: the largest value of a setting that still serves. `optuna`: "
        "for spaces too large to list (extra `optuna`). `pairs`: the two builds of `nightly`, as `specsweep nightly` "
        "asks for by itself.",
    )
    directions: dict[str, Direction] = Field(
        default_factory=dict,
        description=_of(
            "directions",
            "how a setting bears on memory where the built-in table (docs/search.md) is wrong or silent: `up`: more of "
            "it takes more; `down`: less; `interval`: both too little and too much die; `none`: no order.",
        ),
    )
    noise: Positive = Field(
        0.025,
        lt=1,
        description=_of(
            "noise",
            "relative standard deviation of one trial to expect: searches begin with it, `plan` reckons the precision "
            "of a grid by it, and `compare` takes it where each config was started once.",
        ),
    )
    host_spread: Positive = Field(
        0.05,
        lt=1,
        description=_of(
            "host_spread",
            "the same between hosts of one kind: searches begin with it, and `compare` takes it where two runs share "
            "no host.",
        ),
    )
    eta: int = Field(3, ge=2, le=4, description=_of("eta", "one in so many goes on to the next rung."))
    screen: bool = Field(
        True,
        description=_of(
            "screen", "configs that their neighbours put beyond doubt behind are not started. `false`: all are."
        ),
    )
    infer: bool = Field(
        True,
        description=_of(
            "infer",
            "with a config that died for want of memory go all that need more of it, other settings equal. `false`: "
            "they are started.",
        ),
    )
    finalists: int = Field(
        3, ge=2, le=8, description=_of("finalists", "so many are replicated until they are told apart.")
    )
    confidence: float = Field(
        0.98, gt=0.5, lt=1,
        description=_of("confidence", "how sure it must be that nothing is better by more than near_tie."),
    )  # fmt: skip
    max_repeats: Count = Field(8, description=_of("max_repeats", "most starts of one config."))
    budget_trials: Count | None = Field(
        None, description=_of("budget_trials", "most starts in all; halving: no limit by default, optuna: 50.")
    )
    knobs: list[str] = Field(
        default_factory=list,
        max_length=2,
        description=_of(
            "knobs",
            "the axes whose ceiling is searched, one or two (then the whole boundary). Default: the axis whose "
            "direction is known, if there is just one; all other axes are combined with it.",
        ),
    )
    verify: int = Field(
        1,
        ge=0,
        le=5,
        description=_of(
            "verify",
            "so many more starts of both sides of each ceiling, the last value that served and the first that did not, "
            "on other hosts if there are, whatever is predicted. 0: none.",
        ),
    )
    space: dict[str, SpaceRange] = Field(
        default_factory=dict, description=_of("space", "ranges of settings, besides the axes of the sweep.")
    )
    sampler: Literal["tpe", "random"] = Field(
        "tpe",
        description=_of("sampler", "`tpe` learns from what was measured; `random` does not, for comparison."),
    )
    best: Count = Field(4, description=_of("best", "so many of the best are measured again at the end, ..."))
    best_repeats: Count = Field(
        3, description=_of("best_repeats", "... until each has so many starts: the winner's value is not its luck.")
    )

    @property
    def optuna_starts(self) -> int:
        """Most starts of an optuna search in all."""
        return self.budget_trials or _OPTUNA_STARTS

    @model_validator(mode="before")
    @classmethod
    def _short_form(cls, given: Any) -> Any:
        return {"method": given} if isinstance(given, str) else given
