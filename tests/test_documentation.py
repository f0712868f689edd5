"""What the documents say is what the program does."""

from __future__ import annotations

import json
import re
from pathlib import Path

import jsonschema
import pytest
import yaml
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.diagnosis_page import diagnosis_page
from orchestrator.lifecycle_page import lifecycle_page
from orchestrator.metrics_page import metrics_page
from orchestrator.outcome import Label
from orchestrator.recovery_page import recovery_page
from orchestrator.reference_pages import faults_page, rules_page, scenario_page
from orchestrator.scenario import json_schema
from orchestrator.scenario_file import load_scenario

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*(ROOT / "docs").glob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])
SCENARIOS = sorted((ROOT / "scenarios").glob("*.yaml"))


def test_the_scenario_reference_is_what_the_models_say() -> None:
    assert (ROOT / "docs/scenario.md").read_text(encoding="utf-8") == scenario_page()
    assert json.loads((ROOT / "docs/scenario.schema.json").read_text(encoding="utf-8")) == json_schema()


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda p: p.name)
def test_every_shipped_scenario_is_valid_for_the_program_and_for_the_schema(path: Path) -> None:
    load_scenario(path)
    jsonschema.validate(yaml.safe_load(path.read_text(encoding="utf-8")), json_schema())


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", path.read_text(encoding="utf-8"))

    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_files_that_pages_name_exist(path: Path) -> None:
    named = re.findall(
        r"`((?:orchestrator|actors|tests|scenarios|docs|benchmarks)/[\w./*-]+)`", path.read_text("utf-8")
    )

    assert [name for name in named if not list(ROOT.glob(name.rstrip("/")))] == []


@pytest.mark.parametrize("path", PAGES, ids=lambda p: p.name)
def test_commands_and_flags_that_pages_show_exist(path: Path) -> None:
    for command, rest in re.findall(
        r"specsweep (run|plan|hosts|load|rank|diagnose|emulator|schema)\b([^`\n·]*)", path.read_text()
    ):
        if command == "emulator":
            continue
        known = CliRunner().invoke(main, [command, "--help"]).output
        for flag in re.findall(r"--[a-z][a-z-]+", rest):
            assert flag in known, f"{path.name}: specsweep {command} has no {flag}"


def test_the_rules_page_is_what_the_rules_say() -> None:
    assert (ROOT / "docs/rules.md").read_text(encoding="utf-8") == rules_page()


def test_the_metrics_page_is_what_the_code_says() -> None:
    assert (ROOT / "docs/metrics.md").read_text(encoding="utf-8") == metrics_page()


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
