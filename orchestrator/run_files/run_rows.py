"""The rows of a run as ranking takes them: computed from the raw tables, or kept from the last time where the files are
the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
from pydantic_core import from_json, to_json

from orchestrator.paths import RunPaths
from orchestrator.run_files import dataset
from orchestrator.run_files.compute_pool import ComputePool
from orchestrator.run_files.derived_rows import DerivedRows, file_marks
from orchestrator.run_files.point_table import MeasuredPoint, measured_point, point_tasks, store_points, summarised
from orchestrator.run_files.run_configs import Asked, RunConfig, asked_configs
from orchestrator.scenarios.scenario import Scenario
from orchestrator.sglang.server_account import ServerAccount, account_of
from orchestrator.trial import content_hash


class RunRows:
    """Reads one run. What it computed is kept when it is left without an error; `anew` forgets what was kept before.
    `unkept`: why it could not be, which takes nothing from what was read.

    Rows whose files are damaged or gone are left out: who needs them says so.
    """

    def __init__(self, paths: RunPaths, *, anew: bool = False, pool: ComputePool | None = None) -> None:
        self._paths = paths
        self._pool = pool or ComputePool()
        names = ("configs", "trials", "loads", "points")
        self._derived = {name: DerivedRows(paths.derived(name), anew=anew) for name in names}
        self._seen: dict[str, dict[str, str]] = {}
        self._points: list[MeasuredPoint] = []
        self.unkept: OSError | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._pool.__exit__(kind, error, at)
        if kind is None:
            try:
                self._store()
            except OSError as fault:
                self.unkept = fault

    def _store(self) -> None:
        if self._derived["points"].differs or not self._paths.points.exists():
            store_points(self._paths, self._points)
        for derived in self._derived.values():
            derived.store()

    def asked_configs(self, scenario: Scenario) -> Asked:
        """`run_configs.asked_configs`: of ten thousand configs it takes seconds to check each again."""
        key = content_hash(scenario.model_dump(mode="json"), 64)
        told = self._computed("configs", {"asked": key}, {"asked": scenario}, _asked_json)
        return {config_id: (settings, env) for config_id, settings, env in from_json(told["asked"])}

    def trials(self) -> list[dict[str, Any]]:
        """The rows of `trials`, by repeat and time; `account` has what `resolved_json` comes to, None without one."""
        rows = [row for told in self._table("trials", _digested_trials).values() for row in from_json(told)]
        for row in rows:
            row["account"] = None if row["account"] is None else ServerAccount.of_json(row["account"])
        return sorted(rows, key=lambda t: (t["repeat"], t["began_at"]))

    def loads(self) -> list[dict[str, Any]]:
        """The rows of `loads`, in the order of measuring."""
        rows = [row for told in self._table("loads", _loads).values() for row in from_json(told)]
        return sorted(rows, key=lambda row: (row["began_at"], row["point_id"]))

    def points(
        self,
        scenario: Scenario,
        configs: Mapping[str, RunConfig],
        loads: Iterable[dict[str, Any]],
        counted: Mapping[str, int],
    ) -> list[MeasuredPoint]:
        """As `point_table.measured_points`, but what is kept is not computed again."""
        of_loads, of_requests = self._marks("loads"), self._marks("requests")
        found = point_tasks(self._paths, scenario, configs, loads, counted)
        tasks = {task.name: task for _, task in found if task.name in of_requests}
        keys = {name: f"{of_loads[name]} {of_requests[name]} {task.asks}" for name, task in tasks.items()}
        told = self._computed("points", keys, tasks, summarised)
        points = [measured_point(load, told[task.name]) for load, task in found if task.name in told]
        self._points += points
        return points

    def _marks(self, table: str) -> dict[str, str]:
        """Of the files as they were when the table was first asked for."""
        if table not in self._seen:
            self._seen[table] = file_marks(self._paths.table(table))
        return self._seen[table]

    def _table(self, name: str, read: Callable[[str], bytes | None]) -> dict[str, bytes]:
        folder = self._paths.table(name)
        marks = self._marks(name)
        return self._computed(name, marks, {stem: str(folder / f"{stem}.parquet") for stem in marks}, read)

    def _computed(
        self, table: str, keys: Mapping[str, str], tasks: Mapping[str, Any], compute: Callable[[Any], bytes | None]
    ) -> dict[str, bytes]:
        """By name what `compute` makes of each task, or what is kept for its key; without those it makes nothing of."""
        found = self._derived[table].kept(keys)
        missing = [name for name in keys if name not in found]
        fresh = self._pool.map(compute, [tasks[name] for name in missing])
        found |= {name: value for name, value in zip(missing, fresh, strict=True) if value is not None}
        fresh_rows = {name: found[name] for name in missing if name in found}
        self._derived[table].keep({name: key for name, key in keys.items() if name in found}, fresh_rows)
        return {name: found[name] for name in keys if name in found}


def _asked_json(scenario: Scenario) -> bytes:
    return to_json([(config_id, *told) for config_id, told in asked_configs(scenario).items()])


def _loads(file: str) -> bytes | None:
    return _rows_json(file, lambda row: row)


def _digested_trials(file: str) -> bytes | None:
    return _rows_json(file, _digested)


def _digested(row: dict[str, Any]) -> dict[str, Any]:
    account = account_of(row)
    del row["resolved_json"]
    return row | {"account": account}


def _rows_json(file: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> bytes | None:
    """None for a damaged file."""
    try:
        rows = dataset.read_file(file).to_pylist()
    except (OSError, pa.ArrowInvalid):
        return None
    return to_json([change(row) for row in rows], inf_nan_mode="constants")
