"""A search by optuna over spaces that are too large to list: draws, results, and the best once more. Pure.

Its study is made anew from the table whenever something is asked: so a resumed run goes on where it was, values are
those adjusted for hosts by all that is known by then, and the same table asks for the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any, Literal

from orchestrator.errors import BadInput
from orchestrator.scenarios.config_label import config_labels
from orchestrator.searches.config_places import places_of
from orchestrator.searches.halving_decision import Verdict
from orchestrator.searches.pooled_fit import Spread, pooled_fit
from orchestrator.searches.race import RaceGoal, observations_of
from orchestrator.searches.search import Ask, Dead, Scored, Step, Told
from orchestrator.searches.search_space import Between, Listed, Space, draw_of
from orchestrator.searches.search_table import SearchTable
from orchestrator.trial import EngineConfig

# A draw that was made before, or that has no config, is drawn again so often.
_MOST_DRAWS = 50
# Spaces of no more combinations are listed: what chance leaves out is drawn as well, and their end is known.
_MOST_LISTED = 1000


@dataclass(frozen=True, slots=True)
class OptunaRules:
    """The keys of the search, see scenario_search.SearchKeys."""

    budget_trials: int = 50
    sampler: Literal["tpe", "random"] = "tpe"
    best: int = 4
    best_repeats: int = 3
    seed: int = 1
    spread: Spread = field(default_factory=Spread)

    @property
    def first_starts(self) -> int:
        """Starts before the best are measured again."""
        return max(1, self.budget_trials - self.again)

    @property
    def again(self) -> int:
        """Further starts of the best of one objective."""
        return self.best * (self.best_repeats - 1)


class OptunaSearch:
    """Draws configs from a space. BadInput if optuna is not installed. `before`: steps of earlier starts of the run."""

    def __init__(
        self, space: Space, goals: Sequence[RaceGoal], rules: OptunaRules, before: Sequence[Step] = ()
    ) -> None:
        self._optuna = _optuna()
        self._space, self._goals, self._rules = space, goals, rules
        self._table = SearchTable()
        self._configs: dict[str, EngineConfig] = {}
        self._draws: dict[str, dict[str, Any]] = {}
        self._refused = [dict(step.facts["draw"]) for step in before if step.name == "refused"]
        self._exhausted = any(step.name == "exhausted" for step in before)
        self._steps: list[Step] = []

    def tell(self, config: EngineConfig, repeat: int, told: Told) -> None:
        if self._is_known(config):
            self._table.tell(config, repeat, told)

    def recall(self, config: EngineConfig, repeat: int, *, broke: bool = False) -> None:
        """Also what broke: what it measured counts, and another draw would cost one more start."""
        del broke
        if self._is_known(config):
            self._table.recall(config, repeat)

    def _is_known(self, config: EngineConfig) -> bool:
        if config.config_id not in self._configs:
            draw = draw_of(config, self._space)
            if draw is None:
                return False
            self._configs[config.config_id], self._draws[config.config_id] = config, draw
        return True

    def ask(self, slots: int) -> tuple[Ask, ...]:
        return (*self._table.recalled(), *self._fresh(slots))

    def _fresh(self, slots: int) -> tuple[Ask, ...]:
        room = min(slots - self._table.waiting, self._rules.budget_trials - self._table.asked)
        if room <= 0:
            return ()
        left = self._rules.first_starts - len(self._draws)
        if left > 0 and not self._exhausted:
            asks = [Ask(config, 0, "draw") for config in self._drawn(min(room, left))]
            if asks:
                return self._table.give(asks)
        # The best are known when all draws are told.
        return self._table.give(self._again()[:room]) if not self._open_draws() else ()

    @property
    def done(self) -> bool:
        if self._table.waiting:
            return False
        if self._table.asked >= self._rules.budget_trials:
            return True
        drawn = len(self._draws) >= self._rules.first_starts or self._exhausted or self._is_used_up()
        return drawn and not self._again()

    @property
    def steps(self) -> tuple[Step, ...]:
        return tuple(self._steps)

    @property
    def verdicts(self) -> Mapping[str, Verdict]:
        """Objective -> how it stands by now: by the configs that were started most."""
        return {goal.name: self._verdict(goal) for goal in self._goals}

    def _open_draws(self) -> bool:
        return any(self._table.pending(c) and c not in self._table.told for c in self._draws)

    # --- draws ---

    def _drawn(self, count: int) -> list[EngineConfig]:
        """So many new configs, fewer if the space has no more."""
        few = self._whole is not None and len(self._left_over()) <= count  # nothing is left to choose
        found = [] if few else self._sampled(count)
        for config, draw in self._left_over()[: count - len(found)]:
            self._configs[config.config_id], self._draws[config.config_id] = config, draw
            found.append(config)
        self._exhausted = len(found) < count
        if self._exhausted and self._whole is None:
            self._steps.append(Step("exhausted", f"no further config was found in {_MOST_DRAWS * count} draws"))
        return found

    def _sampled(self, count: int) -> list[EngineConfig]:
        """So many new configs of the sampler's choice, fewer if it does not come upon them."""
        study = self._study()
        found: list[EngineConfig] = []
        distributions = self._distributions()
        for _ in range(_MOST_DRAWS * count):
            if len(found) == count:
                break
            trial = study.ask(distributions)
            draw = {name: _value(axis, trial.params[name]) for name, axis in self._space.axes.items()}
            made = self._space.make(draw)
            if isinstance(made, str):
                self._refuse(draw, made)
                trial.set_constraint("runs", 1.0)
                study.tell(trial, self._worst({}))
            elif made.config_id in self._configs:
                study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            else:
                self._configs[made.config_id], self._draws[made.config_id] = made, draw
                found.append(made)
        return found

    def _distributions(self) -> dict[str, Any]:
        return {name: _distribution(self._optuna, axis) for name, axis in self._space.axes.items()}

    @cached_property
    def _whole(self) -> dict[EngineConfig, dict[str, Any]] | None:
        """All configs of a small space, each with its draw; None of a large one."""
        draws = self._space.draws(_MOST_LISTED)
        if draws is None:
            return None
        made = [(self._space.make(draw), draw) for draw in reversed(draws)]
        return {config: draw for config, draw in made if not isinstance(config, str)}

    def _left_over(self) -> list[tuple[EngineConfig, dict[str, Any]]]:
        """Of a small space what was not drawn."""
        return [(c, draw) for c, draw in (self._whole or {}).items() if c.config_id not in self._configs]

    def _is_used_up(self) -> bool:
        """Whether a small space has no more: also where a search was only told, as of a resumed run."""
        return self._whole is not None and not self._left_over()

    def _refuse(self, draw: dict[str, Any], why: str) -> None:
        if draw in self._refused:
            return
        self._refused.append(draw)
        said = ", ".join(f"{name}={value}" for name, value in draw.items())
        self._steps.append(Step("refused", f"{said} is not started: {why}", facts={"draw": draw}))

    def _study(self) -> Any:
        """A study of all that is known: what was measured, what cannot run, what is on its way."""
        optuna, rules = self._optuna, self._rules
        seed = rules.seed * 100_003 + len(self._draws)
        tpe = rules.sampler == "tpe"
        sampler = optuna.samplers.TPESampler(seed=seed) if tpe else optuna.samplers.RandomSampler(seed=seed)
        directions = ["maximize"] * len(self._goals)
        study = optuna.create_study(directions=directions, sampler=sampler)
        if not tpe:
            return study
        values = self._values()
        worst = self._worst(values)
        for config_id, draw in self._draws.items():
            study.add_trial(self._trial(draw, config_id, values.get(config_id), worst))
        for draw in self._refused:
            study.add_trial(self._trial(draw, None, None, worst))
        return study

    def _trial(
        self, draw: dict[str, Any], config_id: str | None, values: list[float] | None, worst: list[float]
    ) -> Any:
        optuna, states = self._optuna, self._optuna.trial.TrialState
        given: dict[str, Any] = {"values": values or worst, "constraints": {"runs": -1.0 if values else 1.0}}
        if config_id is not None and values is None and self._undecided(config_id):
            state = states.RUNNING if self._table.pending(config_id) else states.FAIL
            given = {"state": state}
        axes = self._space.axes
        return optuna.trial.create_trial(
            params={name: _param(axes[name], value) for name, value in draw.items()},
            distributions=self._distributions(),
            **given,
        )

    def _undecided(self, config_id: str) -> bool:
        """Whether nothing says that a config cannot run or fails its limits."""
        results = self._table.told.get(config_id, {}).values()
        return not any(isinstance(told, Dead | Scored) for told in results)

    def _values(self) -> dict[str, list[float]]:
        """Config id -> its value for each objective, in logs, larger is better, adjusted for hosts; only where it has
        all of them.
        """
        by_goal = [self._adjusted(goal) for goal in self._goals]
        return {c: [of[c] for of in by_goal] for c in self._draws if all(c in of for of in by_goal)}

    def _adjusted(self, goal: RaceGoal, starts: int | None = None) -> dict[str, float]:
        """Config id -> mean of its values in logs, less what its hosts add; with `starts` of its first so many only."""
        scored = {c: [s for _, s in self._table.scored(c)][:starts] for c in self._draws}
        seen = observations_of(goal, {c: of for c, of in scored.items() if of})
        if not seen:
            return {}
        configs = [self._configs[c] for c in dict.fromkeys(o.config_id for o in seen)]
        hosts = pooled_fit(seen, places_of(configs), maximize=goal.maximize, spread=self._rules.spread).hosts
        sign = 1.0 if goal.maximize else -1.0
        by_config: dict[str, list[float]] = {}
        for o in seen:
            by_config.setdefault(o.config_id, []).append(sign * math.log(o.value) - hosts[o.host])
        return {c: math.fsum(of) / len(of) for c, of in by_config.items()}

    def _worst(self, values: Mapping[str, list[float]]) -> list[float]:
        """A value that no measured config falls below."""
        return [min((of[i] for of in values.values()), default=0.0) - 1.0 for i in range(len(self._goals))]

    # --- the best once more ---

    def _again(self) -> list[Ask]:
        """Further starts of the best of each objective."""
        asks = []
        for config_id in self._finalists():
            if self._table.done_with(config_id, self._rules.best_repeats, 1 << 30):
                continue
            have = len(self._table.scored(config_id)) + self._table.pending(config_id)
            number = self._table.next_repeat(config_id)
            lacking = self._rules.best_repeats - have
            asks += [Ask(self._configs[config_id], number + i, "the best once more") for i in range(lacking)]
        return sorted(asks, key=lambda ask: ask.repeat)

    def _finalists(self) -> list[str]:
        """The best by their first starts: which they are must not change when they are measured again."""
        found: dict[str, None] = {}
        for goal in self._goals:
            value = self._adjusted(goal, 1)
            found |= dict.fromkeys(sorted(value, key=lambda c: (-value[c], c))[: self._rules.best])
        return list(found)

    def _verdict(self, goal: RaceGoal) -> Verdict:
        value = self._adjusted(goal)
        if not value:
            return Verdict(goal.name, None, (), False, None, "nothing was measured that passes every limit")
        finalists = [c for c in self._finalists() if c in value]
        again = [c for c in finalists if len(self._table.scored(c)) >= self._rules.best_repeats]
        ranked = sorted(again or list(value), key=lambda c: (-value[c], c))
        labels = config_labels({c: self._configs[c].as_dict() for c in value})
        starts = len(self._table.scored(ranked[0]))
        text = f"{labels[ranked[0]]} is the best of {len(value)} that were drawn, by {starts} starts"
        return Verdict(goal.name, ranked[0], tuple(ranked[: self._rules.best]), False, None, text)


def _optuna() -> ModuleType:
    try:
        import optuna
    except ImportError:
        raise BadInput(
            "search.method: optuna needs the package optuna: pip install 'specsweep[optuna]' (>=5,<6) on the driver"
        ) from None
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    module: ModuleType = optuna
    return module


def _distribution(optuna: ModuleType, axis: Listed | Between) -> Any:
    of = optuna.distributions
    if isinstance(axis, Listed):
        # Values may be lists, and ordered ones need not be evenly spaced: their numbers in the list are drawn.
        last = len(axis.values) - 1
        return of.IntDistribution(0, last) if axis.ordered else of.CategoricalDistribution(list(range(last + 1)))
    high = (
        axis.low + axis.step * axis.steps if axis.step else axis.high
    )  # optuna warns of a range that does not end there
    if axis.whole:
        return of.IntDistribution(int(axis.low), int(high), log=axis.log, step=int(axis.step or 1))
    return of.FloatDistribution(axis.low, high, log=axis.log, step=axis.step)


def _value(axis: Listed | Between, param: Any) -> Any:
    if isinstance(axis, Listed):
        return axis.values[param]
    return int(param) if axis.whole else axis.rounded(float(param))


def _param(axis: Listed | Between, value: Any) -> Any:
    """Of a value that was rounded the one that optuna knows: a step of the range, from end to end."""
    if isinstance(axis, Listed):
        return axis.values.index(value)
    if axis.whole or axis.step is None:
        return value
    return axis.low + axis.step * min(max(round((value - axis.low) / axis.step), 0), axis.steps)
