"""The search that measures every config. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.searches.search import Ask, Step, Told
from orchestrator.searches.search_table import SearchTable
from orchestrator.trial import EngineConfig


class GridSearch:
    """Every config so many times, all first starts before any second, all asked at once: nothing depends on a result.

    One that is told dead before is not started again; a start that broke is not made up for: the sweep tried it twice.
    """

    def __init__(self, configs: Sequence[EngineConfig], repeats: int) -> None:
        self._table = SearchTable()
        self._todo = [Ask(config, repeat) for repeat in range(repeats) for config in configs]
        self._asked = False

    def ask(self, slots: int) -> tuple[Ask, ...]:
        del slots
        if self._asked:
            return ()
        self._asked = True
        again = self._table.recalled()
        return again + self._table.give(ask for ask in self._todo if self._table.dead(ask.config.config_id) is None)

    def tell(self, config: EngineConfig, repeat: int, told: Told) -> None:
        self._table.tell(config, repeat, told)

    def recall(self, config: EngineConfig, repeat: int, *, broke: bool = False) -> None:
        """What broke is asked with all others."""
        if not broke:
            self._table.recall(config, repeat)

    @property
    def done(self) -> bool:
        return self._asked and not self._table.waiting

    @property
    def steps(self) -> tuple[Step, ...]:
        return ()
