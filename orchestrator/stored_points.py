"""The points of a run as its `points` table has them: what `rank` computed, read back."""

from __future__ import annotations

from orchestrator import dataset
from orchestrator.aim import PointValue
from orchestrator.metric_names import METRICS
from orchestrator.paths import RunPaths
from orchestrator.trial import LoadLevel


def stored_values(paths: RunPaths, host_class: str = "") -> list[PointValue]:
    """In the order of measuring; of one class of hosts where one is named."""
    rows = dataset.read_rows(paths, "points")
    rows = [row for row in rows if not host_class or row.get("host_class") == host_class]
    return [
        PointValue(
            config_id=row["config_id"],
            workload=row["workload"],
            level=LoadLevel(row["level_kind"], row["level"]),
            repeat=row["repeat"],
            metrics={name: row[name] for name in METRICS if name in row},
            void_reasons=tuple(row["void_reasons"] or ()),
            trial_id=row["trial_id"],
            host=row["host"],
        )
        for row in sorted(rows, key=lambda row: row["began_at"])
    ]
