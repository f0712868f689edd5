"""Which ranking of a run a question is about, and which config of it: by objective, class of hosts, id. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.errors import BadInput
from orchestrator.rankings.ranking_row import Ranking, Row
from orchestrator.rankings.run_ranking import RunRanking


def decided_ranking(result: RunRanking, objective: str | None, host_class: str | None = None) -> Ranking:
    """The one ranking that is meant; BadInput with what there is where that is open.

    Without a name: the only objective, or all of them if they have the same winner. `host_class`: a part of the
    class's text is enough.
    """
    found = [r for r in result.rankings if objective in (None, r.objective)]
    if not found:
        raise BadInput(f"--objective {objective}: the run has {_names(r.objective for r in result.rankings)}")
    classes = list(dict.fromkeys(r.host_class for r in found))
    if host_class is not None:
        found = [r for r in found if host_class.lower() in r.host_class.lower()]
        classes = list(dict.fromkeys(r.host_class for r in found))
        if not found:
            known = [r.host_class for r in result.rankings if r.host_class]
            raise BadInput(
                f"--host-class {host_class}: the run has {_names(known)}"
                if known
                else f"--host-class {host_class}: the run has hosts of one class: leave it out"
            )
    if len(classes) > 1:
        raise BadInput(
            f"the run has rankings for several classes of hosts: give --host-class, a part of {_names(classes)}"
        )
    winners = {r.winner.config_id if r.winner else None for r in found}
    if len(winners) > 1:
        raise BadInput(
            f"the objectives have different winners: give --objective, one of {_names(r.objective for r in found)}"
        )
    return found[0]


def decided_row(result: RunRanking, ranking: Ranking, config: str | None) -> Row:
    """The winner, or the config whose id begins like that; BadInput where there is none."""
    if config is None:
        if ranking.winner is None:
            raise BadInput(f"{result.run}: objective {ranking.objective} has {ranking.reason}")
        return ranking.winner
    found = [row for row in ranking.rows if row.config_id.startswith(config) and row.value is not None]
    if len(found) != 1:
        ids = [row.config_id for row in ranking.rows if row.value is not None]
        what = "is not one config" if found else "no measured config has such an id"
        raise BadInput(f"--config {config}: {what}; measured for {ranking.objective}: {_names(ids)}")
    return found[0]


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{n}`" for n in dict.fromkeys(names))
