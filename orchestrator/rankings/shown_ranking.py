"""The ranking of a run for whoever looks at it: also of a run that belongs to somebody else, or on a full disk."""

from __future__ import annotations

import sys
from pathlib import Path

from orchestrator.rankings.run_ranking import RunRanking, rank_run


def shown_ranking(root: Path, *, anew: bool = False) -> RunRanking:
    """`rank_run`; what the directory does not take is told in a line, and takes nothing from what is shown."""
    result = rank_run(root, anew=anew)
    if result.unkept is not None:
        why = result.unkept.why.strerror or str(result.unkept.why)
        print(f"specsweep: {root}: nothing of this ranking can be kept there: {why}", file=sys.stderr)  # noqa: T201
    return result
