"""What the documents say is what the program does."""

from __future__ import annotations

import ast
import inspect
import json
import re
import textwrap
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
import yaml

from actors.servers.launch import free_port
from orchestrator.cli import main
from orchestrator.clusters.cluster_ports import FIXED, SERVER_PORTS, WORKER_PORTS
from orchestrator.clusters.raylet_settings import TUNED
from orchestrator.nights.expected_changes import expected_changes
from orchestrator.outcome import Label
from orchestrator.pages.diagnosis_page import diagnosis_page
from orchestrator.pages.lifecycle_page import lifecycle_page
from orchestrator.pages.metrics_page import metrics_page
from orchestrator.pages.recovery_page import recovery_page
from orchestrator.pages.reference_pages import faults_page, rules_page, scenario_page
from orchestrator.scenarios.night_scenario import night_scenario
from orchestrator.scenarios.scenario import json_schema
from orchestrator.scenarios.scenario_file import load_scenario, scenario_from_tree
from orchestrator.scenarios.sweep_space import build_pairs
from orchestrator.scenarios.yaml_tree import YamlTree

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
CHANGES = ROOT / "scenarios" / "CHANGES.yaml"
SCENARIOS = sorted((ROOT / "scenarios").glob("[a-z]*.yaml"))


def test_the_scenario_reference_is_what_the_models_say() -> None:
    assert (ROOT / "docs/scenario.md").read_text(encoding="utf-8") == scenario_page()
    assert json.loads((ROOT / "docs/scenario.schema.json").read_text(encoding="utf-8")) == json_schema()


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.name)
def test_every_shipped_scenario_is_valid_for_the_program_and_for_the_schema(path: Path) -> None:
    load_scenario(path)
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), json_schema())


def test_the_shipped_night_on_real_servers_compares_what_its_results_say() -> None:
    (pair,) = build_pairs(night_scenario(load_scenario(ROOT / "scenarios/nightly-real-sglang-cpu.yaml")))

    before, now = pair.reference.as_dict(), pair.candidate.as_dict()
    assert (before["max_total_tokens"], before.get("disable_radix_cache")) == (4096, None)
    assert (now["max_total_tokens"], now["disable_radix_cache"]) == (3481, True)


def test_expected_changes_that_are_shipped_and_shown_are_valid() -> None:
    shown = re.search(r"```yaml\n(changes:.*?)```", (ROOT / "docs/history.md").read_text(encoding="utf-8"), re.DOTALL)

    assert expected_changes(CHANGES.read_bytes(), str(CHANGES)) == ()
    assert shown is not None
    assert [change.shift for change in expected_changes(shown[1].encode(), "docs")] == [-0.03]


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_page_of_the_architecture_has_every_package_in_its_own_words() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    told = dict(re.findall(r"^\| `((?:orchestrator|actors)/\w+)/` \| (.*?) \|", page, re.M))
    made = {
        path.parent.relative_to(ROOT).as_posix(): ast.get_docstring(ast.parse(path.read_text("utf-8"))) or ""
        for top in ("orchestrator", "actors")
        for path in (ROOT / top).glob("*/__init__.py")
    }
    assert sorted(told) == sorted(made)
    others = {"actors/diagnosis", "actors/emulator"}  # whose docstrings are pages of their own
    assert {k: v for k, v in told.items() if k not in others} == {k: v for k, v in made.items() if k not in others}


def test_modules_that_the_page_of_the_architecture_names_exist() -> None:
    page = (ROOT / "docs/architecture.md").read_text("utf-8")
    modules = {path.name for top in ("orchestrator", "actors") for path in (ROOT / top).rglob("*.py")}
    named = {name.rsplit("/", 1)[-1] for name in re.findall(r"`([\w/]+\.py)`", page)}
    assert len(named) > 100
    assert named - {"test_architecture.py"} <= modules


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_files_that_pages_name_exist(path: Path) -> None:
    named = re.findall(
        r"`((?:orchestrator|actors|tests|scenarios|docs|benchmarks)/[\w./*-]+)`", path.read_text("utf-8")
    )

    assert [name for name in named if not list(ROOT.glob(name.rstrip("/")))] == []


def commands_of(group: click.Group, above: tuple[str, ...] = ()) -> dict[tuple[str, ...], set[str]]:
    """Every command of ours by its words, with its flags."""
    found: dict[tuple[str, ...], set[str]] = {}
    for name, command in group.commands.items():
        words = (*above, name)
        if isinstance(command, click.Group):
            found |= commands_of(command, words)
        else:
            flags = {flag for option in command.params for flag in (*option.opts, *option.secondary_opts)}
            found[words] = {*flags, "--help"}
    return found


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_commands_and_flags_that_pages_show_exist(path: Path) -> None:
    known = commands_of(main)
    text = path.read_text(encoding="utf-8")
    calls = re.findall(r"(?:specsweep|-m orchestrator) ([a-z][^`\n·;|]*)", text)
    for call in calls:
        words = call.split()
        name = next((n for n in (tuple(words[:2]), tuple(words[:1])) if n in known), None)
        if name is None or name == ("emulator",):
            continue
        for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", call):
            assert flag in known[name], f"{path.name}: specsweep {' '.join(name)} has no {flag}"


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_commands_at_the_start_of_a_line_exist(path: Path) -> None:
    names = {words[0] for words in commands_of(main)}
    called = re.findall(
        r"(?:`|^    )(?:\S+/)?(?:specsweep|python -m orchestrator) ([a-z][a-z-]+)", path.read_text("utf-8"), re.M
    )

    assert [name for name in called if name not in names] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_into_a_page_lead_to_a_heading_there(path: Path) -> None:
    for file, anchor in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", path.read_text(encoding="utf-8")):
        page = (path.parent / file if file else path).read_text(encoding="utf-8")
        headings = {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.+)$", page, re.M)}
        assert anchor in headings, f"{path.name}: {file} has no heading #{anchor}"


def test_ports_that_pages_name_are_those_that_ray_is_given() -> None:
    """Ports of security.md, but for ssh and those that only Ray's environment sets, are those of a cluster file."""
    page = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    table = page[page.index("| port |") : page.index("A firewall that")]
    named = {int(word) for row in re.findall(r"^\| ([\d, -]+) \|", table, re.M) for word in re.findall(r"\d+", row)}

    assert named - {22, 44217, 44227} == {known.port for known in FIXED} | {*WORKER_PORTS, *SERVER_PORTS}


def test_settings_of_ray_that_operations_explains_are_all_that_a_cluster_file_has() -> None:
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    told = dict(re.findall(r"`(RAY_[a-zA-Z_]+)=([\w.]+)`", page))

    assert told == {name: value for name, value in TUNED.items() if name != "RAY_USAGE_STATS_ENABLED"}


def test_servers_get_the_ports_that_pages_name() -> None:
    """Slots look 320 ports apart from 20000 on; 39 of them lie below Linux's own range."""
    given = inspect.signature(free_port).parameters

    first, spacing = given["base"].default, given["spacing"].default
    assert (first, first + 39 * spacing - 1) == SERVER_PORTS


def test_the_rules_page_is_what_the_rules_say() -> None:
    assert (ROOT / "docs/rules.md").read_text(encoding="utf-8") == rules_page()


def test_the_metrics_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs/metrics.md").read_text(encoding="utf-8") == metrics_page()


def examples_of(page: str) -> list[dict[str, Any]]:
    """The scenario parts that a page shows, indented by four."""
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", page, re.M)
    return [found for block in blocks if isinstance(found := yaml.safe_load(textwrap.dedent(block)), dict)]


@pytest.mark.parametrize("number", range(6))
def test_scenario_parts_that_the_page_of_objectives_shows_are_valid(number: int) -> None:
    examples = examples_of((ROOT / "docs/objectives.md").read_text(encoding="utf-8"))
    assert len(examples) == 6
    slo = {"ttft_ms": 500}
    chat = {"name": "chat", "concurrency": [1, 4, 16, 32], "rates": [4.0], "slo": slo}
    workloads = [chat, {"name": "code", "rates": [1.0], "slo": slo}] if "of code" in str(examples[number]) else [chat]
    base: dict[str, Any] = {
        "name": "x",
        "model": {"path": "m"},
        "engine": {"kind": "emulator"},
        "slots": {"gpus": 4},
        "workloads": workloads,
        "measure": {"duration_s": 60},
        "objectives": [{"name": "o", "maximize": "kv_tokens"}],
    }
    shown = examples[number]
    for objective in shown.get("objectives", ()):
        objective.setdefault("workload", "chat")

    scenario_from_tree(YamlTree("page.yaml", base | shown))


def test_the_page_of_recovery_is_what_the_policy_says_and_has_every_label() -> None:
    page = (ROOT / "docs/recovery.md").read_text(encoding="utf-8")

    assert page == recovery_page()
    assert [label for label in Label if f"| `{label}` |" not in page] == []


def test_the_page_of_faults_is_what_the_models_say() -> None:
    assert (ROOT / "docs/emulator-faults.md").read_text(encoding="utf-8") == faults_page()


def test_the_page_of_a_servers_life_is_what_the_state_machine_does() -> None:
    assert (ROOT / "docs/lifecycle.md").read_text(encoding="utf-8") == lifecycle_page()


def test_the_page_of_the_diagnosis_is_what_its_rules_say() -> None:
    assert (ROOT / "docs/diagnosis.md").read_text(encoding="utf-8") == diagnosis_page()
