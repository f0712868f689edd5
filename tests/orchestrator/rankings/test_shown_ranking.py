"""Runs of somebody else: what is computed of them is shown, though nothing can be written beside them."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import IO

import pytest
from click.testing import CliRunner

from orchestrator import paths
from orchestrator.cli import main
from orchestrator.rankings.run_ranking import rank_run
from tests.fakes.slot import FakeSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import finished_run

TOLD = "nothing of this ranking can be kept there: Read-only file system"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Never ranked."""
    return finished_run(tmp_path / "small", small_scenario(), FakeSlot("a"))


@pytest.fixture
def read_only(root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    new_file = paths._new_file

    def refused(path: Path) -> IO[bytes]:
        if path.is_relative_to(root):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))
        return new_file(path)

    monkeypatch.setattr(paths, "_new_file", refused)
    return root


@pytest.mark.parametrize("command", ["rank", "explain", "deploy"])
def test_a_run_that_may_not_be_written_is_shown_all_the_same_and_one_line_says_so(
    read_only: Path, command: str
) -> None:
    done = CliRunner().invoke(main, [command, str(read_only)])

    assert done.exit_code == 0
    assert "speculative_num_steps" in done.stdout.replace("-", "_")
    assert [line for line in done.stderr.splitlines() if TOLD in line] == [f"specsweep: {read_only}: {TOLD}"]
    assert "report" not in done.output.lower()


def test_json_of_a_run_that_may_not_be_written_is_json(read_only: Path) -> None:
    done = CliRunner().invoke(main, ["rank", str(read_only), "--json"])

    assert done.exit_code == 0
    assert json.loads(done.stdout)["objectives"]


def test_the_report_of_a_run_that_may_not_be_written_has_its_points_and_goes_elsewhere(
    read_only: Path, tmp_path: Path
) -> None:
    out = tmp_path / "report.md"

    done = CliRunner().invoke(main, ["report", str(read_only), "--as", "md", "--out", str(out)])

    assert done.exit_code == 0
    assert "6 points" in out.read_text(encoding="utf-8")


def test_a_report_that_has_no_place_beside_its_run_says_how_to_give_it_one(read_only: Path) -> None:
    done = CliRunner().invoke(main, ["report", str(read_only)])

    assert done.exit_code == 2
    assert f"{read_only}/report.html (give another as --out FILE): cannot be written: Read-only" in done.stderr


def test_a_ranking_that_could_not_be_kept_is_the_same_as_one_that_was(read_only: Path) -> None:
    first = rank_run(read_only)

    assert first.unkept is not None
    assert len(first.unkept.points) == 6
    assert not (read_only / "ranking.json").exists()


@pytest.mark.parametrize(
    ("manifest", "told"),
    [("[]", "is no manifest of a run"), ('{"schema": 1}', "`run_id` is missing"),
     ('{"schema": 1, "run_id": "r", "scenario": {"name": 3}, "starts": []}', "is not one of this release"),
     ('{"schema": 1, "run_id": "r", "scenario": [], "starts": []}', "`scenario` is missing, or of another kind")],
)  # fmt: skip
@pytest.mark.parametrize("command", ["rank", "report", "explain", "deploy"])
def test_a_manifest_of_other_kinds_is_told_in_a_line(tmp_path: Path, command: str, manifest: str, told: str) -> None:
    (tmp_path / "manifest.json").write_text(manifest)

    done = CliRunner().invoke(main, [command, str(tmp_path)])

    assert done.exit_code == 2
    assert told in done.stderr


@pytest.mark.parametrize("hosts", ['{"vm": 3}', '{"vm": null}', '{"vm": {"cpu": 3}}', "[]"])
def test_facts_of_hosts_of_other_kinds_are_none(root: Path, hosts: str) -> None:
    (root / "hosts.json").write_text(hosts)

    done = CliRunner().invoke(main, ["compare", str(root), str(root)])

    assert done.exit_code == 0
