"""Rankings of many configs with long names, as a terminal shows them."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from orchestrator.rankings.ranking_table import print_rankings
from orchestrator.rankings.run_ranking import RunRanking, rank_objectives
from tests.orchestrator.rankings.test_ranking import point
from tests.orchestrator.scenario_samples import small_scenario


def printed(count: int) -> str:
    configs: dict[str, dict[str, Any]] = {
        f"c{n}": {"speculative_num_steps": n, "cuda_graph_max_bs_decode": 2 * n, "max_running_requests": 3 * n}
        for n in range(1, count + 1)
    }
    values = [point(c, 1, output_throughput_tok_s=100.0 - n) for n, c in enumerate(configs)]
    rankings = rank_objectives(small_scenario(), configs, values)
    said = io.StringIO()
    print_rankings(RunRanking("r", "sglang", configs, rankings, (), (), ()), Console(file=said, width=140))
    return said.getvalue()


def test_no_setting_of_a_long_name_is_broken_in_the_middle() -> None:
    told = printed(3)

    for whole in ("speculative_num_steps=1,", "cuda_graph_max_bs_decode=2,", "max_running_requests=3 "):
        assert whole in told


def test_a_table_of_hundreds_of_configs_ends_after_twenty_and_says_so() -> None:
    told = printed(200)

    assert "speculative_num_steps=20," in told
    assert "speculative_num_steps=21," not in told
    assert "... and 180 more configs (specsweep rank --json lists all)" in told
