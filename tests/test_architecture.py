"""The layers of docs/architecture.md, held by reading the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted([*(ROOT / "orchestrator").rglob("*.py"), *(ROOT / "actors").rglob("*.py")])
VOCABULARY = {
    "arrival_check",  # asked of a scenario, and again where load is made
    "dialect", "errors", "options", "outcome", "paths", "records", "schemas", "server_start", "traffic", "trial",
    "host_report", "telemetry",
    "faked_results", "gpu_arch", "sglang_rules",  # asked again on the host, where GPUs and environment are known
    # How a YAML file is read and its faults are told: fault scripts of the emulator are checked like scenarios.
    "model_fault", "yaml_tree",
    "model_folder",  # hosts and the driver look for a model in the same places
}  # fmt: skip
# Modules of orchestrator/ that read, write, wait or print, by package; whoever only calls those for it is one of them.
# All others are the core: no I/O, no Ray, no Arrow, no clock. A package that is not here has no edge.
EDGES = {
    "": "__main__ cli cli_options fitted_table job_place paths provenance redaction schemas stop_signals terminal",
    "clusters": "cluster_cli cluster_command cluster_token ray_schema",
    "decisions": "decision_cli explain_command rank_command verify_command",
    "deployments": "deploy_command",
    "diagnosing": "diagnose_command log_diagnosis",
    "documents": "report_files report_page",
    "exchange":
        "compare_cli compare_command exchange_cli export_command export_format import_command peer_file "
        "run_side stored_run",
    "history": "history_cli history_command history_place history_store",
    "jobs":
        "fetch_command job_cli job_client job_commands job_follow job_package job_talk run_archive "
        "sealed_scenario submit_command",
    "loads": "load_cli load_command load_dataset load_progress load_request",
    "memory": "memory_command memory_forecast memory_view model_files model_folder",
    "nightly": "night_end night_run nightly_cli nightly_command nightly_output",
    "pages": "reference_pages",
    "planning": "trial_launch",
    "points": "point_answers point_view",
    "previews": "plan_command scenario_files",
    "rankings": "pareto_table ranking_table run_ranking shown_ranking",
    "reports": "night_material report_cli report_command report_material run_report telemetry_series",
    "run_files":
        "compute_pool compute_worker dataset derived_rows earlier_runs journal point_table result_file "
        "reuse_command run_directory run_hosts run_lock run_manifest run_notes run_rows run_telemetry",
    "scenarios": "scenario_file",
    "searches": "course",
    "slots":
        "actor_watch cluster head_watch ray_connection ray_ensemble ray_patience ray_slot slot_grant "
        "slot_making slot_source span_log span_slot",
    "starts": "start_history",
    "sweeps":
        "foresight grid_leaders reference_trials run_account run_command run_conductor run_record run_sweep "
        "search_conductor start_memory sweep telemetry_pull trial_queue trial_run trial_score",
    "upkeep": "clean_command eviction_command host_survey hosts_command",
    "watching": "live_file live_table progress run_mirror run_watch watch_cli watch_command watch_feed watch_server",
}  # fmt: skip
# From the ground up: a package imports what stands before it. `orchestrator` itself stands everywhere.
LAYERS = (
    "sglang", "points", "objectives", "scenarios", "clusters", "hosts", "searches", "planning", "recoveries",
    "run_files", "starts", "memory", "estimation", "rankings", "documents", "loads", "pages", "previews", "nights",
    "history", "slots", "upkeep", "jobs", "exchange", "diagnosing", "nightly", "deployments", "reports", "watching",
    "sweeps", "decisions",
)  # fmt: skip
# Whoever may look up: the check of all that a file says, also to a search; and the command of a night, which makes a
# run and its report, and whose series and verdicts reports are made of.
UPWARD = {
    "nightly_command -> report_command",
    "nightly_command -> run_account",
    "nightly_command -> run_command",
    "nightly_command -> run_conductor",
    "scenario_check -> search_check",
    "scenario_check -> search_space",
}
# Decisions about a server on its host; whoever does what they say is elsewhere.
DECISIONS = {"life_event", "life_state", "life_end", "lifecycle"}
OURS = {"actors", "benchmarks", "orchestrator", "tests"}
OUTSIDE = {"ray", "pyarrow", "aiohttp", "subprocess", "socket", "time", "threading", "rich"}


def imports(path: Path, *, top_level_only: bool = False) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found: set[str] = set()
    for node in tree.body if top_level_only else ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


@cache
def names_of(module: str) -> set[str]:
    """What can be imported of a module or package of ours; nothing where there is none."""
    place = ROOT.joinpath(*module.split("."))
    file = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not file.exists():
        return set()
    made = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
    return (
        {node.name for node in made if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
        | {node.id for node in made if isinstance(node, ast.Name)}
        | {alias.asname or alias.name for node in made if isinstance(node, ast.ImportFrom) for alias in node.names}
        | {path.stem for path in place.glob("*") if place.is_dir()}
    )


def roots(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


def package(path: Path) -> str:
    """`nights` of `orchestrator/nights/night.py`; empty for what stands in `orchestrator` itself."""
    return path.relative_to(ROOT).parts[1] if len(path.relative_to(ROOT).parts) > 2 else ""


DRIVER = [m for m in MODULES if m.relative_to(ROOT).parts[0] == "orchestrator" and m.stem != "__init__"]
ON_HOSTS = [m for m in MODULES if m.relative_to(ROOT).parts[0] == "actors"]
CORE = [m for m in DRIVER if m.stem not in EDGES.get(package(m), "").split()]


def test_every_module_bears_a_name_of_its_own_whatever_its_package() -> None:
    names = [m.stem for m in DRIVER]

    assert sorted(names) == sorted(set(names))
    assert {name for edges in EDGES.values() for name in edges.split()} <= set(names)


def test_packages_import_what_stands_below_them() -> None:
    home = {m.stem: package(m) for m in DRIVER}
    upward = {
        f"{path.stem} -> {used}"
        for path in DRIVER
        for used in {part for name in imports(path) if name.startswith("orchestrator.") for part in name.split(".")}
        if home.get(used) and package(path) and LAYERS.index(home[used]) > LAYERS.index(package(path))
    }

    assert set(LAYERS) == set(home.values()) - {""}
    assert upward == UPWARD


@pytest.mark.parametrize("path", ON_HOSTS, ids=str)
def test_actors_know_only_the_vocabulary_of_the_driver(path: Path) -> None:
    used = {part for name in imports(path) if name.startswith("orchestrator.") for part in name.split(".")}

    assert {m.stem for m in DRIVER} & used <= VOCABULARY


@pytest.mark.parametrize("path", CORE, ids=str)
def test_the_core_does_no_io_and_knows_neither_ray_nor_pyarrow_nor_a_clock(path: Path) -> None:
    assert not roots(imports(path)) & OUTSIDE


@pytest.mark.parametrize("name", sorted(DECISIONS))
def test_what_is_decided_about_a_server_does_no_io_and_knows_no_clock(name: str) -> None:
    used = imports(ROOT / "actors" / "servers" / f"{name}.py")

    assert not roots(used) & (OUTSIDE | {"asyncio", "os", "pathlib", "signal"})
    own = {u.split(".")[2] for u in used if u.startswith("actors.servers.")}
    assert own <= DECISIONS
    assert not {u for u in used if u.startswith("actors.") and not u.startswith("actors.servers")}


def test_ray_is_known_at_the_edges_only() -> None:
    knowing = {m.relative_to(ROOT).as_posix() for m in MODULES if "ray" in roots(imports(m))}

    assert knowing == {
        "orchestrator/slots/actor_watch.py",
        "orchestrator/slots/cluster.py",
        "orchestrator/slots/ray_connection.py",
        "orchestrator/slots/ray_patience.py",
        "orchestrator/slots/ray_slot.py",
        "orchestrator/slots/slot_grant.py",
        "orchestrator/slots/ray_ensemble.py",
        "orchestrator/clusters/ray_schema.py",
        "actors/slot_actor.py",
    }


def test_actors_are_created_in_one_place() -> None:
    creating = {m.name for m in MODULES if "ray.remote(" in m.read_text(encoding="utf-8")}

    # The others start tasks: something asked of a host, a spool that is read.
    assert creating == {"slot_grant.py", "cluster.py", "ray_slot.py"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    names = {".".join(m.relative_to(ROOT).with_suffix("").parts): m for m in MODULES}

    # CycleError names the circle.
    TopologicalSorter({name: imports(path) & set(names) - {name} for name, path in names.items()}).prepare()


def test_what_benchmarks_import_of_us_is_there() -> None:
    # Nobody runs all of them at every change.
    lost = [
        f"{path.name}: {node.module}.{alias.name}"
        for path in (ROOT / "benchmarks").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] in OURS
        for alias in node.names
        if alias.name not in names_of(node.module)
    ]

    assert lost == []


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > 55
    }

    assert text.count("\n") <= 330
    assert not long


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from click.testing import CliRunner; from orchestrator.cli import main; "
        "assert CliRunner().invoke(main, ['--help']).exit_code == 0; "
        "print(sorted({'ray', 'pyarrow', 'numpy', 'pydantic', 'aiohttp', 'rich', 'yaml'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT)

    assert said.stdout.strip() == "[]"
