"""The second field campaign on the emulator: memory verdicts, their repair, and speeds through the real load path."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from actors.loadgen import load_endpoint
from orchestrator import dataset
from orchestrator.metrics import PointMetrics, summarise
from orchestrator.paths import RunPaths
from orchestrator.planner import make_plan
from orchestrator.progress import Progress
from orchestrator.ranking_table import print_rankings
from orchestrator.run_directory import RunDirectory
from orchestrator.run_ranking import rank_run
from orchestrator.scenario_file import load_scenario
from orchestrator.sweep import Sweep
from orchestrator.trial import LoadLevel, PointSpec
from orchestrator.trial_launch import launch_spec
from tests.actors.emulator.running import READY, emulator
from tests.fakes.local_slot import LocalSlot

SCENARIO = Path(__file__).resolve().parents[2] / "scenarios/deepseek-v4-flash-mtp.yaml"
# The same question with few and short answers; a speed is not asked here.
QUICK = (
    "sweep.axes.speculative_num_steps=[1]", "workloads.0.output_tokens=16", "measure={warmup_s: 0, requests: 2}",
)  # fmt: skip

MODEL = "--model-path deepseek-ai/DeepSeek-V4-Flash --tp-size 4 --max-running-requests 256 --enable-metrics"
MTP = " --speculative-algorithm EAGLE --speculative-num-steps 1 --speculative-eagle-topk 1"
MTP += " --speculative-num-draft-tokens 2"
FITS = " --mem-fraction-static 0.60 --cuda-graph-max-bs-decode 16"


# The four questions: engine flags, users at once. Each server is asked 64 tokens a user.
QUESTIONS = {"plain-1": ("", 1), "mtp-1": (MTP, 1), "plain-16": ("", 16), "mtp-16": (MTP, 16)}


@dataclass(frozen=True)
class Answer:
    """What one server did for its users, and what it had logged."""

    metrics: PointMetrics
    log: str


async def load(port: int, concurrency: int) -> PointMetrics:
    level = LoadLevel("concurrency", float(concurrency))
    spec = PointSpec(
        workload="chat",
        level=level,
        api="generate",
        dataset="random_text",
        input_tokens=256,
        output_tokens=64,
        warmup_s=0,
        warmup_requests=0,
        duration_s=None,
        requests=concurrency,
        temperature=0,
        ignore_eos=True,
        request_timeout_s=200,
    )
    records, client = await load_endpoint(f"http://127.0.0.1:{port}", spec)
    return summarise(records, level=level, client=client)


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """All four at the same time, each on a server of its own: their steps take a tenth of a second and more."""
    with ExitStack() as stack:
        servers = {
            name: stack.enter_context(emulator(tmp_path_factory.mktemp(name), MODEL + FITS + flags, speedup=60))
            for name, (flags, _) in QUESTIONS.items()
        }
        for server in servers.values():
            server.wait_for(READY, 60)

        async def ask() -> list[PointMetrics]:
            return await asyncio.gather(*(load(servers[name].port, users) for name, (_, users) in QUESTIONS.items()))

        measured = asyncio.run(ask())
        return {name: Answer(m, servers[name].log) for name, m in zip(servers, measured, strict=True)}


@pytest.mark.parametrize(("kind", "tpot_ms"), [("plain", 88.0), ("mtp", 88 / 1.47)])
def test_one_user_sees_the_reported_time_per_token(answers: dict[str, Answer], kind: str, tpot_ms: float) -> None:
    assert answers[f"{kind}-1"].metrics.value("tpot_p50_ms") == pytest.approx(tpot_ms, rel=0.05)


@pytest.mark.parametrize("kind", ["plain", "mtp"])
def test_sixteen_users_share_23_tokens_per_second_with_or_without_speculation(
    answers: dict[str, Answer], kind: str
) -> None:
    answer = answers[f"{kind}-16"]

    assert answer.metrics.output_tokens_total == 16 * 64
    assert answer.metrics.value("output_throughput_tok_s") == pytest.approx(23, rel=0.05)
    assert ("from the requested 256 to 8" in answer.log) is (kind == "mtp")


@pytest.fixture(scope="module")
def repaired(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """The run directory of the shipped scenario in short, what its progress said, and its tables."""
    scenario = load_scenario(SCENARIO, QUICK)
    said, printed = (Console(file=io.StringIO(), width=300) for _ in range(2))
    run = RunDirectory.create(tmp_path_factory.mktemp("runs") / "report-b", scenario)
    plan = make_plan(scenario, 1)
    with LocalSlot(run.run_id, 5) as slot, Progress(plan, [slot.facts.name], said) as progress:
        result = Sweep(plan, [slot], run, lambda t: launch_spec(scenario, run.run_id, t), progress).run()
    run.close(complete=result.complete)
    print_rankings(rank_run(run.paths.root), printed)
    return run.paths.root, said.file.getvalue(), printed.file.getvalue()  # type: ignore[attr-defined]


def test_asked_for_070_it_dies_in_the_draft_graphs_is_repaired_and_measured_in_one_run(
    repaired: tuple[Path, str, str],
) -> None:
    root, said, _ = repaired
    trials: list[dict[str, Any]] = sorted(dataset.read_rows(RunPaths(root), "trials"), key=lambda t: str(t["began_at"]))

    asked, served = trials
    assert [(t["outcome"], t["label"], t["phase"]) for t in trials] == [
        ("infeasible", "oom_graph_draft", "graph_draft"),
        ("measured", None, None),
    ]
    assert served["repaired_from"] == asked["config_id"]
    # 7.50 GiB wanted, 2.30 free, 2 % of 94.97 GiB as margin, of 94.1 GiB that were free before the weights.
    why = "mem_fraction_static 0.7 -> 0.62 (5.20 GiB short and 1.90 GiB margin of 94.10 GiB)"
    assert why in said
    assert json.loads(served["repair_json"])["changes"] == [
        {"name": "cuda_graph_max_bs_decode", "asked": None, "now": 16},
        {"name": "mem_fraction_static", "asked": 0.7, "now": 0.62},
    ]


def test_the_table_tells_what_was_asked_and_what_served(repaired: tuple[Path, str, str]) -> None:
    root, _, printed = repaired
    ranked = json.loads((root / "ranking.json").read_text())
    (row,) = ranked["objectives"]["single-user"]["ranking"]
    story = "cuda_graph_max_bs_decode 16 (was left open); asked mem_fraction_static 0.7, served at 0.62"

    assert ranked["infeasible"] == []
    assert [(c["label"], c["served_as"]) for c in ranked["repaired"]] == [("oom_graph_draft", row["config_id"])]
    assert row["repaired_from"] == ranked["repaired"][0]["config_id"]
    assert "Died as asked, served after repair" in printed
    assert printed.count(story) == 3  # a row of each objective, and the table of what died
