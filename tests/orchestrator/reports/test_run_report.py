"""The report of a stored run: what it decides comes first, and nothing in it is more than text."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from rich.console import Console

from orchestrator.cli import main
from orchestrator.documents.report_document import Code, Facts, Plot, ReportDocument, Table
from orchestrator.outcome import Diagnosis, Label, Phase, PhaseFact
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.reports import report_command
from orchestrator.reports import run_report as run_report_module
from orchestrator.reports.report_command import leave_reports
from orchestrator.reports.report_memory import FREE
from orchestrator.reports.report_part import MOST_HIGHLIGHTED
from orchestrator.reports.run_report import run_report
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.server_start import LaunchSpec, ServerDied, StartEvent
from tests.fakes.slot import FakeSlot
from tests.orchestrator.report_checks import assert_is_whole, block_named, blocks_of, text_of
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import conducted_on, finished_run, sweep_on

EVIDENCE = (
    "RuntimeError: <script>window.owned = 1</script> </script> javascript:alert(1) \u202egnp.exe \x1b[31mred\x1b[0m "
    + "x" * 10_000
)
NO_REPAIRS: dict[str, Any] = {"recovery": {"mode": "off"}}


def depth(spec: LaunchSpec) -> int:
    return int(dict(spec.settings).get("speculative_num_steps", 0))  # type: ignore[arg-type]


class DeepDies(FakeSlot):
    """A server of depth 2 dies in its KV cache, with a line of its log that wants to be more than text."""

    def launch(self, spec: LaunchSpec) -> Iterator[StartEvent]:
        if depth(spec) != 2:
            yield from super().launch(spec)
            return
        self.launched.append(spec.trial_id)
        phases = (
            PhaseFact(Phase.DIST_INIT, 0.0, 1.0, 94.3),
            PhaseFact(Phase.WEIGHTS, 1.0, 5.0, 33.3),
            PhaseFact(Phase.KV_POOL, 5.0),
        )
        yield ServerDied(spec.trial_id, Diagnosis(Label.KV_BUDGET, Phase.KV_POOL, EVIDENCE, 12, -9), phases, 6.0)


def slot(name: str = "a", **options: Any) -> DeepDies:
    """Depth 1 is the fastest."""
    return DeepDies(name, slowness=lambda spec, point: 1.0 if depth(spec) == 1 else 2.0, **options)


def reported(root: Path) -> ReportDocument:
    return run_report(root, rank_run(root))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """3 configs x 2 levels, of which the deepest could not run."""
    return finished_run(tmp_path_factory.mktemp("runs") / "small", small_scenario(**NO_REPAIRS), slot())


@pytest.fixture(scope="module")
def document(root: Path) -> ReportDocument:
    return reported(root)


def test_a_report_is_whole(document: ReportDocument) -> None:
    assert_is_whole(document)


def test_the_pick_its_reason_and_how_to_start_it_come_first(document: ReportDocument) -> None:
    (headline,) = document.headlines

    assert headline.label == "fast: highest output throughput at C=1 (chat)"
    assert headline.verdict == "speculative_num_steps=1"
    assert re.fullmatch(r"\d+ tok/s ± \d+\.\d%", headline.figure)
    assert headline.text.startswith("The next, speculative_num_steps=0, is ")
    facts = block_named(document, "pick-0")
    assert isinstance(facts, Facts)
    assert dict(facts.rows)["runner-up"].startswith("speculative_num_steps=0: ")
    commands = [block.text for block in blocks_of(document) if isinstance(block, Code)]
    assert any("--speculative-num-steps 1" in command for command in commands)


def test_emulated_numbers_are_no_evidence_and_the_report_says_so_above_everything(document: ReportDocument) -> None:
    assert document.warnings == (
        "engine=emulator: modelled servers, no GPU was measured; never compare these numbers with real ones",
    )
    assert document.headlines[0].tone == "warn"


def test_sections_go_from_the_decision_to_where_it_comes_from(document: ReportDocument) -> None:
    assert [section.section_id for section in document.sections] == [
        "ranking", "speed", "load", "depth", "memory", "latency", "failures", "slots", "starts", "telemetry", "points",
        "environment", "commands", "words",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("description", "asked"),
    [
        ("How deep should it\n  speculate? Runs emulated.", "How deep should it speculate? "),
        ("SGLang 0.5.23 on CPUs. More.", "SGLang 0.5.23 on CPUs. "),
        ("no sentence", ""),
        ("", ""),
        ("x" * 200 + ".", ""),
    ],
)
def test_what_a_scenario_asks_stands_below_the_title(description: str, asked: str) -> None:
    assert run_report_module.question(description) == asked


def test_words_are_told_to_whom_a_report_is_sent(document: ReportDocument) -> None:
    words = block_named(document, "words-facts")
    assert isinstance(words, Facts)
    assert {"C=16", "P(best)", "accept length"} <= {word for word, _ in words.rows}
    assert "pair" not in dict(words.rows)


def test_the_ranking_has_every_config_and_marks_the_pick(document: ReportDocument) -> None:
    table = block_named(document, "ranking-fast")
    assert isinstance(table, Table)

    assert [row[1].text for row in table.rows] == ["speculative_num_steps=1", "speculative_num_steps=0"]
    assert table.marked == (0,)
    dead = block_named(document, "infeasible")
    assert isinstance(dead, Table)
    assert [(row[0].text, row[1].text, row[2].text) for row in dead.rows] == [
        ("speculative_num_steps=2", "kv_budget", "kv_pool")
    ]


def test_a_line_of_a_log_is_text_and_nothing_but_text(document: ReportDocument) -> None:
    (shown,) = [b for b in blocks_of(document) if isinstance(b, Code) and b.caption == "Evidence (1 start)"]

    assert shown.text.startswith(EVIDENCE[:200])
    assert shown.text.endswith(f"... ({len(EVIDENCE) - 2000:,} more characters)")
    assert len(text_of(document)) < 200_000  # no cell holds the line whole


def test_memory_shows_what_a_config_had_when_it_died(document: ReportDocument) -> None:
    plot = block_named(document, "memory-plot")
    assert isinstance(plot, Plot)

    bars = {(s.name, y): (base, x) for s in plot.series for y, base, x in zip(s.y, s.base, s.x, strict=True)}
    assert bars["weights", "\u2717 speculative_num_steps=2"] == (0.0, 61.0)
    assert bars[FREE, "\u2717 speculative_num_steps=2"] == (61.0, 33.3)


def test_failures_are_grouped_by_diagnosis_with_the_names_of_their_logs(document: ReportDocument) -> None:
    table = block_named(document, "diagnoses")
    assert isinstance(table, Table)

    assert [(row[0].text, row[2].text, row[4].text, row[5].text) for row in table.rows] == [
        ("kv_budget", "1", "kv_pool", "infeasible")
    ]
    assert "/server.log.zst, line 12" in text_of(document)


def test_a_run_that_goes_on_says_that_its_picks_may_change(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path / "run", small_scenario())
    sweep_on(run, small_scenario(), [FakeSlot("a")])  # and the driver is killed

    root = tmp_path / "run"
    found = run_report(root, rank_run(root), place=Path("/share/run"))  # as seen by who watches a copy

    assert_is_whole(found)
    assert found.warnings[1] == (
        "The run is not complete: what is missing may change the picks (specsweep run --resume /share/run)"
    )
    assert run_report(root, rank_run(root), is_live=True).warnings[1] == (
        "The run goes on: what is missing may change the picks."
    )
    run.close(complete=False)


def test_a_run_in_which_nothing_could_run_has_a_report_without_a_pick(tmp_path: Path) -> None:
    dying = FakeSlot("a", lambda name, spec: Label.MODEL_MISSING)

    found = reported(finished_run(tmp_path / "run", small_scenario(), dying))

    assert_is_whole(found)
    assert [(h.verdict, h.tone) for h in found.headlines] == [("no pick", "bad")]


def test_a_run_that_never_began_has_a_report_too(tmp_path: Path) -> None:
    RunDirectory.create(tmp_path / "run", small_scenario()).close(complete=False)

    assert_is_whole(reported(tmp_path / "run"))


def test_a_search_tells_what_it_asked_and_what_it_left_behind(tmp_path: Path) -> None:
    scenario = small_scenario(search={"method": "halving", "budget_trials": 4}, **NO_REPAIRS)
    run = RunDirectory.create(tmp_path / "run", scenario)
    conducted_on(run, scenario, [slot()])
    run.close(complete=True)

    found = reported(tmp_path / "run")

    assert_is_whole(found)
    asked = block_named(found, "search-asked")
    assert isinstance(asked, Table)
    assert {row[4].text for row in asked.rows} == {"measured", "kv_budget"}


def test_classes_of_hosts_stay_apart(tmp_path: Path) -> None:
    scenario = small_scenario(**NO_REPAIRS)
    run = RunDirectory.create(tmp_path / "run", scenario)
    run.keep_classes(("8x GPU", "4x GPU"))
    slots = []
    for name, host_class in (("a", "8x GPU"), ("b", "4x GPU")):
        own = slot(name)
        own.facts = type(own.facts)(name, name, ("0",), host_class=host_class)
        slots.append(own)
    conducted_on(run, scenario, slots)  # type: ignore[arg-type]
    run.close(complete=True)

    found = reported(tmp_path / "run")

    assert_is_whole(found)
    assert [headline.label.rpartition(" on ")[2] for headline in found.headlines] == ["8x GPU", "4x GPU"]


def test_no_secret_of_a_scenario_is_in_its_report(tmp_path: Path) -> None:
    engine = {
        "kind": "emulator",
        "settings": {"speculative_algorithm": "NEXTN"},
        "env": {"MY_TOKEN": "hush-hush-1"},
        "extra_args": ["--api-key", "hush-hush-2"],
    }
    root = finished_run(tmp_path / "run", small_scenario(engine=engine), FakeSlot("a"))

    told = text_of(reported(root))

    assert "hush-hush" not in told
    assert "MY_TOKEN" in told


def test_of_many_configs_a_dozen_stand_out_and_the_others_are_muted(tmp_path: Path) -> None:
    scenario = small_scenario(
        sweep={"axes": {"speculative_num_steps": [1], "max_running_requests": list(range(1, 17))}}
    )
    root = finished_run(tmp_path / "run", scenario, FakeSlot("a", batches=1, account=_own_account))

    found = reported(root)

    assert_is_whole(found)
    plot = block_named(found, "curve-0-concurrency-output_throughput_tok_s")
    assert isinstance(plot, Plot)
    assert len([series for series in plot.series if series.tone == "plain"]) == MOST_HIGHLIGHTED
    assert len([series for series in plot.series if series.tone == "muted"]) == 4
    assert {series.group for series in plot.series if series.tone == "muted"} == {"other configs"}


def _own_account(spec: LaunchSpec) -> dict[str, Any]:
    """Servers that differ, or one would stand for all."""
    return {"version": "0.5.23", "max_running_requests": dict(spec.settings)["max_running_requests"]}


def test_a_section_that_cannot_be_made_says_so_and_the_others_are_there(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(part: object) -> list[Any]:
        raise KeyError("odd")

    monkeypatch.setattr(run_report_module, "failure_blocks", broken)

    found = reported(root)

    (failures,) = [section for section in found.sections if section.section_id == "failures"]
    assert [getattr(b, "text", "") for b in failures.blocks] == ["This section could not be made: KeyError: 'odd'"]
    assert len(found.sections) == 14


def said_by(root: Path) -> str:
    said = io.StringIO()
    leave_reports(root, rank_run(root), Console(file=said, width=300))
    return said.getvalue()


def test_a_ranked_run_leaves_a_page_and_markdown_and_says_where(root: Path) -> None:
    assert said_by(root) == f"Report: {root / 'report.html'}\n"
    assert (root / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (root / "report.md").read_text(encoding="utf-8").startswith("# small\n")


def test_a_report_that_cannot_be_written_is_told_and_ends_nothing(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(report_command, "write_whole", full)

    assert said_by(root) == (
        "The report was not written: No space left on device\n"
        f"The run has all that it needs; try again: specsweep report {root}\n"
    )


def test_the_command_writes_where_it_is_told_and_prints_markdown(root: Path, tmp_path: Path) -> None:
    written = CliRunner().invoke(main, ["report", str(root), "--out", str(tmp_path / "mine.html")])
    printed = CliRunner().invoke(main, ["report", str(root), "--md", "--out", "-"])

    assert (written.exit_code, printed.exit_code) == (0, 0)
    assert (tmp_path / "mine.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert printed.stdout.startswith("# small\n")


def test_what_is_no_run_and_what_cannot_be_written_is_bad_input(root: Path, tmp_path: Path) -> None:
    no_run = CliRunner().invoke(main, ["report", str(tmp_path)])
    no_folder = CliRunner().invoke(main, ["report", str(root), "--out", str(root / "manifest.json" / "x.html")])

    assert (no_run.exit_code, no_folder.exit_code) == (2, 2)
    assert "is not a run directory" in no_run.stderr
    assert "cannot be written" in no_folder.stderr


def test_rank_for_machines_prints_json_alone_and_leaves_the_report(root: Path) -> None:
    (root / "report.md").unlink(missing_ok=True)

    said = CliRunner().invoke(main, ["rank", str(root), "--json"])

    assert json.loads(said.stdout)["run"] == "small"
    assert (root / "report.md").exists()


def test_declared_fronts_are_drawn_and_listed(tmp_path: Path) -> None:
    front = {
        "name": "speed-and-answer",
        "axes": [{"maximize": "output_throughput_tok_s"}, {"minimize": "ttft_p50_ms"}],
        "at": {"concurrency": 1},
    }
    root = finished_run(tmp_path / "run", small_scenario(pareto=[front], **NO_REPAIRS), slot())

    found = reported(root)

    assert_is_whole(found)
    plot, table = block_named(found, "front-0"), block_named(found, "front-table-0")
    assert isinstance(plot, Plot)
    assert isinstance(table, Table)
    assert plot.title == "speed-and-answer: higher and lower is better"
    assert table.rows[table.marked[0]][0].text == "speculative_num_steps=1"


def test_a_repaired_config_is_no_further_config_of_the_sweep(tmp_path: Path) -> None:
    found = reported(finished_run(tmp_path / "run", small_scenario(), slot()))

    assert found.subtitle.startswith("org/model. 3 configs, 6 starts, 4 points. ")


def test_names_of_hosts_and_models_are_text_too(tmp_path: Path) -> None:
    name = "<img src=x onerror=alert(1)>"
    scenario = small_scenario(model={"path": f"org/{name}", "bundled_draft": True}, **NO_REPAIRS)
    root = finished_run(tmp_path / "run", scenario, slot(name, host=name))

    found = reported(root)

    assert_is_whole(found)
    assert f"org/{name}. 3 configs" in found.subtitle
    hosts = block_named(found, "hosts")
    assert isinstance(hosts, Table)
    assert hosts.rows[0][0].text == name
    said_by(root)
    page = (root / "report.html").read_text(encoding="utf-8")
    assert "<img" not in page
    assert "<script>window.owned" not in page
