"""The reasons that operators gave by hand for their picks, told for the tables that they had."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.level_table import LevelTable
from orchestrator.objectives.scenario_objective import Objective
from orchestrator.rankings.explanation import Died, Explanation, Material, explain
from orchestrator.rankings.explanation_text import explanation_json, explanation_lines
from orchestrator.rankings.ranking import rank
from orchestrator.rankings.ranking_row import Ranking
from orchestrator.rankings.server_facts import ServerFacts, server_facts
from orchestrator.scenarios.config_label import run_labels
from orchestrator.trial import LoadLevel, Repaired

SPEED = "output_throughput_tok_s"
C1, C16, C32 = (LoadLevel("concurrency", float(n)) for n in (1, 16, 32))


def depth(steps: int, **more: Any) -> dict[str, Any]:
    if not steps:
        return dict(more)
    return {
        "speculative_algorithm": "EAGLE", "speculative_num_steps": steps, "speculative_eagle_topk": 1,
        "speculative_num_draft_tokens": steps + 1, **more,
    }  # fmt: skip


def value(config: str, level: LoadLevel, repeat: int = 0, **metrics: float) -> PointValue:
    return PointValue(config, "chat", level, repeat, metrics)


def objective(name: str, level: LoadLevel, **keys: Any) -> Objective:
    told = {"name": name, "maximize": SPEED, "at": {"concurrency": int(level.value)}, **keys}
    return Objective.model_validate(told)


# Report A: output tokens per second by depth and users, accepted tokens per step.
REPORT_A = {1: {C1: 123.0}, 3: {C1: 234.0, C32: 1979.0}, 4: {C1: 277.0, C16: 1596.0}, 5: {C1: 282.0, C16: 1119.0}}
ACCEPTED = {1: 1.95, 3: 3.4, 4: 4.1, 5: 4.6}
AGENTIC = objective("agentic", C1, near_tie=0.02, tie_breakers=[{"maximize": SPEED, "at": {"concurrency": 16}}])
BALANCED = objective("balanced", C32)
A_SETTINGS = {f"d{n}": depth(n) for n in (1, 3, 4, 5, 10)}
A_VALUES = [
    value(f"d{n}", level, output_throughput_tok_s=v, accept_length=ACCEPTED[n])
    for n, levels in REPORT_A.items()
    for level, v in levels.items()
]


def told(
    wanted: Objective, settings: dict[str, dict[str, Any]], values: list[PointValue],
    others: tuple[Objective, ...] = (), **more: Any,
) -> tuple[Explanation, list[str]]:  # fmt: skip
    measured = {v.config_id for v in values}
    labels = run_labels(settings, more.get("repairs", {}))

    def ranking(of: Objective) -> Ranking:
        rows = {c: s for c, s in settings.items() if c in measured}
        return rank(of, rows, values, workload="chat", labels=labels)

    material = Material(values, settings, labels, near_ties={wanted.name: wanted.near_tie}, **more)
    found = explain(ranking(wanted), material, [ranking(o) for o in (wanted, *others)])
    assert found is not None
    return found, explanation_lines(found)


def test_depth_4_is_explained_by_what_5_loses_at_16_users_and_by_where_the_gain_of_a_step_ends() -> None:
    died = [Died("d10", "kv_budget", "kv_pool")]
    explanation, lines = told(AGENTIC, A_SETTINGS, A_VALUES, (BALANCED,), died=died)

    assert explanation.config_id == "d4"
    assert lines == [
        "speculative_num_steps=5 (runner-up) is 1.8% better at C=1 (282 against 277 tok/s), but 29.9% worse at C=16 "
        "(1119 against 1596 tok/s).",
        "It is the best in output_throughput_tok_s at C=16; given up elsewhere: 1.8% at C=1 (277 against 282 tok/s of "
        "speculative_num_steps=5).",
        "Depth at C=1: 1: 123 tok/s (accepts 1.95); 3: 234 tok/s (+37.9% a step, accepts 3.40); 4: 277 tok/s (+18.4% a "
        "step, accepts 4.10); 5: 282 tok/s (+1.8% a step, accepts 4.60); more than 4 adds less than 2.0%.",
        "Depth at C=16: 4: 1596 tok/s (accepts 4.10); 5: 1119 tok/s (-29.9% a step, accepts 4.60); it peaks at 4 and "
        "falls after it.",
        "What would change the pick: the objective balanced picks speculative_num_steps=3; a near_tie below 1.8% picks "
        "speculative_num_steps=5; with more memory speculative_num_steps=10 (kv_budget in kv_pool), which did not fit.",
    ]


def test_depth_3_is_explained_for_the_balanced_load() -> None:
    explanation, lines = told(BALANCED, A_SETTINGS, A_VALUES, (AGENTIC,))

    assert explanation.config_id == "d3"
    assert [(g.level, g.best_id, round(g.given_up, 3)) for g in explanation.curve] == [
        (C1, "d5", 0.205),
        (C32, "d3", 0),
    ]
    assert "the objective agentic picks speculative_num_steps=4" in lines[-1]


# Report B: MTP of depth 1 speeds one user up by 47 % and does nothing for sixteen, whose batch it halves.
B_SETTINGS = {"plain": depth(0, max_running_requests=256), "mtp": depth(1, max_running_requests=256)}
B_VALUES = [
    value("plain", C1, output_throughput_tok_s=11.36, server_running_max=1),
    value("plain", C16, output_throughput_tok_s=23.0, server_running_max=16),
    value("mtp", C1, output_throughput_tok_s=16.7, server_running_max=1),
    value("mtp", C16, output_throughput_tok_s=22.9, server_running_max=8, server_token_usage_max=0.009),
]
B_SERVERS = {
    "plain": ServerFacts(696021, 16, 29.4, "capped by memory"),
    "mtp": ServerFacts(448510, 8, 2.33, "capped by memory"),
}


def test_mtp_is_explained_by_the_gain_for_one_user_and_by_the_halved_batch_of_sixteen() -> None:
    wanted = objective("throughput", C16)
    _, lines = told(wanted, B_SETTINGS, B_VALUES, servers=B_SERVERS)

    assert (
        "speculative_num_steps=1 (runner-up) is 47.0% better at C=1 (16.70 against 11.36 tok/s), but 0.4% worse at C=16"
        in (lines[0])
    )
    assert (
        "At C=16 speculative_num_steps=1 ran at most 8 of 16 requests (its limit is 8, capped by memory), "
        "speculative_num_steps=0 ran 16: drafting and verifying take memory from the KV cache (448,510 tokens against "
        "696,021)."
    ) in lines
    assert "Depth at C=16: 0: 23 tok/s; 1: 22.90 tok/s (-0.4% a step); speculation gains nothing here." in lines


def test_the_headroom_and_the_repair_of_a_winner_are_told() -> None:
    repaired = Repaired("asked", "asked", (("mem_fraction_static", 0.7, 0.62),), "less")
    settings = {"plain": B_SETTINGS["plain"], "asked": B_SETTINGS["mtp"],
                "mtp": {**B_SETTINGS["mtp"], "mem_fraction_static": 0.62}}  # fmt: skip
    explanation, lines = told(
        objective("single", C1), settings, B_VALUES, servers=B_SERVERS, repairs={"mtp": repaired},
        died=[Died("asked", "oom_graph_draft", "graph_draft", "mtp")],
    )  # fmt: skip

    assert explanation.repaired == "asked mem_fraction_static 0.7, served at 0.62"
    assert (
        "Headroom: a KV cache of 448,510 tokens, of which at most 0.9% were in use; 2.3 GiB free on a GPU after graph "
        "capture; at most 8 requests at once." in lines
    )
    assert "It died as it was asked and served after a repair: asked mem_fraction_static 0.7, served at 0.62." in lines
    # The repaired config differs in memory as well and is still the depth that was asked for.
    assert [[p.depth for p in curve.points] for curve in explanation.depths] == [[0, 1], [0, 1]]
    assert not [a for a in explanation.alternatives if a.kind == "memory"]


def test_a_faster_config_that_fails_a_limit_is_told_with_its_limit() -> None:
    values = [
        value("d1", C1, output_throughput_tok_s=100, ttft_p95_ms=90),
        value("d5", C1, output_throughput_tok_s=300, ttft_p95_ms=900),
    ]
    _, lines = told(objective("o", C1, limits=["ttft_p95_ms <= 500"]), A_SETTINGS, values)

    assert lines[-1] == (
        "What would change the pick: without its limit speculative_num_steps=5 is better, which fails "
        "ttft_p95_ms <= 500 (is 900)."
    )


def test_times_are_better_when_they_are_shorter_by_the_share_of_speed() -> None:
    values = [value("plain", C1, tpot_p50_ms=88.0), value("mtp", C1, tpot_p50_ms=60.0)]
    wanted = Objective.model_validate({"name": "o", "minimize": "tpot_p50_ms", "at": {"concurrency": 1}})
    explanation, _ = told(wanted, B_SETTINGS, values)

    (curve,) = explanation.depths
    assert curve.points[1].gain_per_step == pytest.approx(88 / 60 - 1)
    assert explanation.rivals[0].better[0][3] == pytest.approx(60 / 88 - 1)


@pytest.mark.parametrize(
    ("speeds", "end"),
    [
        ((100, 150, 149), "; more than 3 adds nothing."),
        ((100, 150, 140), "; it peaks at 3 and falls after it."),
        ((100, 150, 151), "; more than 3 adds less than 2.0%."),
        ((100, 150, 170), "; it rises up to 5, the deepest that was measured."),
    ],
)
def test_a_curve_is_told_by_where_it_ends_to_pay(speeds: tuple[int, ...], end: str) -> None:
    values = [value(f"d{n}", C1, output_throughput_tok_s=v) for n, v in zip((1, 3, 5), speeds, strict=True)]
    _, lines = told(objective("o", C1), A_SETTINGS, values)

    assert next(line for line in lines if line.startswith("Depth")).endswith(end)


def test_a_gain_that_rounds_to_nothing_has_no_minus() -> None:
    values = [value(f"d{n}", C1, output_throughput_tok_s=v) for n, v in ((1, 150.0), (3, 149.99))]
    _, lines = told(objective("o", C1), A_SETTINGS, values)

    assert next(line for line in lines if line.startswith("Depth")).startswith(
        "Depth at C=1: 1: 150 tok/s; 3: 150.0 tok/s (+0.0% a step)"
    )


def test_long_names_are_cut_to_what_tells_the_named_configs_apart() -> None:
    settings = {
        f"c{steps}-{running}-{graphs}": depth(
            steps, max_running_requests=running, cuda_graph_max_bs_decode=graphs, mem_fraction_static=0.8 + steps / 100
        )
        for steps in (1, 3) for running in (16, 64) for graphs in (8, 32)
    }  # fmt: skip
    values = [value(c, C1, output_throughput_tok_s=100.0 + i) for i, c in enumerate(settings)]
    _, lines = told(objective("o", C1, near_tie=0.0), settings, values)

    assert lines[0].startswith("cuda_graph_max_bs_decode=8 (runner-up) is 0.9% worse at C=1")


def test_void_points_explain_nothing_and_repeats_are_averaged_on_the_log_scale() -> None:
    values = [value("d1", C1, 0, output_throughput_tok_s=100.0), value("d1", C1, 1, output_throughput_tok_s=400.0),
              value("d3", C1, output_throughput_tok_s=100.0),
              replace(value("d3", C1, 1, output_throughput_tok_s=9e9), void_reasons=("client",))]  # fmt: skip
    explanation, _ = told(objective("o", C1), A_SETTINGS, values)

    (gap,) = explanation.curve
    assert gap.value == pytest.approx(200)
    assert gap.given_up == 0


def test_a_tree_of_drafts_is_only_compared_with_trees_of_its_width_and_with_no_speculation() -> None:
    settings = {
        "plain": {"page_size": 1},
        "t2": {**depth(3, page_size=1), "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8},
        "t5": {**depth(5, page_size=1), "speculative_eagle_topk": 4, "speculative_num_draft_tokens": 8},
        "chain": depth(4, page_size=1),
    }
    values = [value(c, C1, output_throughput_tok_s=v) for c, v in zip(settings, (1.0, 2.0, 3.0, 2.5), strict=True)]
    explanation, _ = told(objective("o", C1), settings, values)

    assert [[p.config_id for p in curve.points] for curve in explanation.depths] == [["plain", "t2", "t5"]]


def test_a_ranking_without_a_winner_has_no_explanation_and_one_config_alone_is_no_comparison() -> None:
    values = [value("d1", C1, output_throughput_tok_s=100.0)]
    nothing = rank(objective("o", C16), {"d1": depth(1)}, values, workload="chat")
    assert explain(nothing, Material(values, {"d1": depth(1)}, {})) is None

    explanation, lines = told(objective("o", C1), {"d1": depth(1)}, values)
    assert (explanation.rivals, explanation.depths, explanation.runner_up, lines) == ((), (), None, [])


def test_what_servers_told_is_the_least_of_their_starts() -> None:
    def trial(tokens: int, running: int, *free: float | None) -> dict[str, Any]:
        account = {
            "max_total_num_tokens": tokens, "max_running_requests": 256,
            "internal_states": [{"effective_max_running_requests_per_dp": running}],
        }  # fmt: skip
        phases = [{"phase": "kv_pool", "free_gib": gib} for gib in free]
        told = {"resolved_json": json.dumps(account), "settings_json": '{"max_running_requests": 256}'}
        return {"outcome": "measured", "phases": phases, **told}

    facts = server_facts([trial(100, 50, 30.0, 2.5, None), trial(90, 45, 28.0, 2.9)])

    assert facts == ServerFacts(90, 45, 2.5, "the KV cache holds 100 tokens")


def test_machines_get_the_same_as_readers() -> None:
    explanation, lines = told(AGENTIC, A_SETTINGS, A_VALUES)
    found = explanation_json(explanation)

    assert found["curve"] == [
        {"at": {"concurrency": 1.0}, "value": 277.0, "best": 282.0, "best_config": "d5",
         "given_up": pytest.approx(5 / 277)},
        {"at": {"concurrency": 16.0}, "value": 1596.0, "best": 1596.0, "best_config": "d4", "given_up": 0.0},
    ]  # fmt: skip
    assert len(lines) == len(found["text"])  # type: ignore[arg-type]


def test_of_many_configs_without_memory_three_are_named() -> None:
    dead = {f"m{n}": {**A_SETTINGS["d10"], "max_running_requests": n} for n in range(9)}
    died = [Died(config_id, "kv_budget", "kv_pool") for config_id in dead]
    _, lines = told(AGENTIC, {**A_SETTINGS, **dead}, A_VALUES, died=died)

    assert lines[-1].count("with more memory") == 3
    assert lines[-1].endswith("; and 6 more that memory held back.")


def test_at_rates_configs_are_compared_by_what_a_user_gets_and_not_by_the_arrivals() -> None:
    rate = LoadLevel("rate", 8.0)
    values = [
        PointValue(f"d{n}", "chat", rate, 0, {"output_throughput_tok_s": 512.0 - n, "tok_s_per_user_p50": 100.0 * n})
        for n in (1, 3)
    ]

    assert LevelTable("max_rate_rps", True, "chat", values).metric == "tok_s_per_user_p50"
    assert LevelTable("output_throughput_tok_s", True, "chat", values).metric == "output_throughput_tok_s"
    assert LevelTable("max_rate_rps", True, "chat", A_VALUES).metric == "output_throughput_tok_s"
