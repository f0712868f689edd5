"""The layers of docs/architecture.md, held by reading the imports."""

from __future__ import annotations

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted([*(ROOT / "orchestrator").glob("*.py"), *(ROOT / "actors").rglob("*.py")])
VOCABULARY = {
    "arrival_check",  # asked of a scenario, and again where load is made
    "dialect", "errors", "options", "outcome", "paths", "records", "schemas", "server_start", "traffic", "trial",
    "host_report", "telemetry",
    "faked_results", "gpu_arch", "sglang_rules",  # asked again on the host, where GPUs and environment are known
    # How a YAML file is read and its faults are told: fault scripts of the emulator are checked like scenarios.
    "model_fault", "yaml_tree",
    "model_folder",  # hosts and the driver look for a model in the same places
}  # fmt: skip
CORE = {
    "arrival_check", "cut_network", "scenario_workload",
    "audit", "bench_serving", "distribution", "percentile_support", "plan_warnings", "point_state", "rates",
    "saturation", "settled", "acceptance", "attention_rules", "auto_choices", "block_draft_rules", "capacity_rules",
    "cell_size", "command_check", "config_shape", "emulated_memory", "estimate", "gpu_memory", "graph_budget",
    "hopeless", "memory_advice", "memory_budget", "memory_calibration", "memory_defaults", "memory_model",
    "model_shape", "pool_budget", "quantization", "weight_budget", "command_template", "config_env", "config_label",
    "dialect", "draw_check", "errors", "extra_body", "faked_check", "diagnosis_page", "failed_lineage",
    "failed_start", "faked_results", "gpu_arch", "host_match", "launch_check", "limits", "lineages", "load_document",
    "host_report", "raylet_settings", "start_command", "cluster_address", "cluster_file", "cluster_finding",
    "cluster_check", "cluster_ports", "cluster_template", "host_warnings", "no_cluster",
    "host_event", "host_watch", "host_class", "gpu_neighbourhood", "container_parts",
    "load_clocks", "load_histogram", "load_spread", "metric_names", "metrics", "model_fault", "options", "outcome",
    "error_text", "first_cause", "span_check", "span_start",
    "phase_budget", "phase_history",
    "planner", "point_metrics", "point_validity", "ranking", "records", "recovery", "recovery_moves", "remedies",
    "request_columns", "resolved_settings", "rule_terms", "run_configs", "run_repairs", "scenario", "scenario_check",
    "scenario_engine", "server_start", "settings", "sglang_adjustments", "sglang_rules", "speculation_proof",
    "speculation_rules", "state_cache_rules", "sweep_check", "scenario_traffic", "sweep_space", "traffic", "trial",
    "workload_check", "workload_traffic", "yaml_tree",
    "offered_trials", "search_state", "asked_trials", "search_account", "search_plan",
    "line_allowance", "trial_estimate",
    "job_log", "not_measured", "run_result", "server_account",
    "attainment", "expression", "expression_sense", "objective_presets", "rate_search", "cost", "pareto",
    "objective_text", "trial_facts",
    "aim", "objective_check", "scenario_objective",
    "search", "scenario_search", "search_table", "grid_search", "pooled_fit", "config_places", "point_need", "doubt",
    "bracket", "staircase", "ceiling_line", "ceiling_lines", "ceiling_search", "first_configs", "halving_decision",
    "halving_search", "memory_order", "optuna_search", "race", "search_check", "search_of", "search_space",
    "metric_title",
    "ranking_remarks", "report_curves", "report_failures", "report_headlines", "report_latency", "report_memory",
    "report_numbers", "report_pareto", "report_part", "report_provenance", "report_ranking", "report_search",
    "report_telemetry", "report_timeline", "report_values",
    "two_way", "student", "outliers", "estimates", "contest", "batch_means", "within_run",
    "aim_precision", "comparison", "drift_check", "evidence", "evidence_notes", "near_tie", "ranking_json",
    "ranking_cells", "ranking_reason", "ranking_row", "supported_digits", "trial_count", "config_spread",
    "deployment", "deploy_text", "deploy_containers", "served_config",
    "head_to_head", "verify_scenario", "reuse_match",
    "depth_curve", "explanation", "explanation_text", "kernel_share", "level_table", "run_explanation", "server_facts",
    "report_document",
    "live_view", "live_state", "time_left", "progress_lines", "watch_state", "live_section",
    "telemetry",
    "report_plots", "report_markdown", "plot_values", "shown_text",
    "plural",
    "change_points", "history_changes", "night", "night_history", "night_rows", "night_segments",
    "expected_changes", "history_lines", "history_report", "history_text",
    "night_evidence", "night_feasibility", "night_noise", "night_rules", "night_verdict",
    "peer_aiperf", "peer_guidellm", "peer_point", "peer_vllm", "export_rows",
    "compared_row", "compared_side", "comparison_report", "run_comparison", "run_environment",
    "engine_build", "junit", "night_scenario", "night_series", "night_text", "nightly_check",
    "nightly_report", "pair_search", "scenario_nightly",
}  # fmt: skip
# Decisions about a server on its host; whoever does what they say is elsewhere.
DECISIONS = {"life_event", "life_state", "life_end", "lifecycle"}
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


def roots(names: set[str]) -> set[str]:
    return {name.split(".")[0] for name in names}


@pytest.mark.parametrize("path", [m for m in MODULES if m.parts[-2] != "orchestrator"], ids=str)
def test_actors_know_only_the_vocabulary_of_the_driver(path: Path) -> None:
    used = {n.split(".")[1] for n in imports(path) if n.startswith("orchestrator.")}
    modules = {u for u in used if (ROOT / "orchestrator" / f"{u}.py").exists()}

    assert modules <= VOCABULARY


@pytest.mark.parametrize("name", sorted(CORE))
def test_the_core_does_no_io_and_knows_neither_ray_nor_pyarrow_nor_a_clock(name: str) -> None:
    assert not roots(imports(ROOT / "orchestrator" / f"{name}.py")) & OUTSIDE


@pytest.mark.parametrize("name", sorted(DECISIONS))
def test_what_is_decided_about_a_server_does_no_io_and_knows_no_clock(name: str) -> None:
    used = imports(ROOT / "actors" / f"{name}.py")

    assert not roots(used) & (OUTSIDE | {"asyncio", "os", "pathlib", "signal"})
    own = {u.split(".")[1] for u in used if u.startswith("actors.")}
    assert own <= DECISIONS


def test_ray_is_known_at_the_edges_only() -> None:
    knowing = {m.relative_to(ROOT).as_posix() for m in MODULES if "ray" in roots(imports(m))}

    assert knowing == {
        "orchestrator/slots/actor_watch.py",
        "orchestrator/slots/cluster.py",
        "orchestrator/slots/ray_connection.py",
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
