"""What is tried, on which slot, in which order."""

from __future__ import annotations

import time
from collections import Counter

from orchestrator.planning.planner import make_plan
from orchestrator.planning.trial_estimate import sglang_start_s
from orchestrator.planning.trial_launch import launch_spec
from orchestrator.scenarios.config_label import config_labels
from orchestrator.scenarios.sweep_space import combinations, expand, meets
from orchestrator.server_start import UserCommand
from orchestrator.trial import EngineConfig, freeze_settings
from tests.orchestrator.scenario_samples import small_scenario


def test_depth_0_leaves_every_speculation_setting_out_and_other_depths_give_all_three_numbers() -> None:
    configs = [c.as_dict() for c in expand(small_scenario())]

    assert configs == [
        {"max_running_requests": 48, "tp_size": 1},
        *(
            {
                "max_running_requests": 48,
                "speculative_algorithm": "NEXTN",
                "speculative_eagle_topk": 1,
                "speculative_num_draft_tokens": steps + 1,
                "speculative_num_steps": steps,
                "tp_size": 1,
            }
            for steps in (1, 2)
        ),
    ]


def test_axes_multiply_zipped_axes_move_together_and_conditions_leave_out() -> None:
    sweep = small_scenario(
        sweep={
            "axes": {"speculative_num_steps": [1, 2, 3]},
            "zip": [{"mem_fraction_static": [0.8, 0.9], "cuda_graph_max_bs": [32, 16]}],
            "exclude": [{"speculative_num_steps": ">= 3", "mem_fraction_static": 0.9}],
            "include": [{"speculative_num_steps": 7}],
        }
    ).sweep

    assert [tuple(c.values()) for c in combinations(sweep)] == [
        (1, 0.8, 32), (1, 0.9, 16), (2, 0.8, 32), (2, 0.9, 16), (3, 0.8, 32), (7,),
    ]  # fmt: skip


def test_a_condition_knows_old_spellings_lists_and_comparisons() -> None:
    config = {"cuda_graph_max_bs_decode": 16, "page_size": 64}

    assert meets(config, {"cuda_graph_max_bs": 16})
    assert meets(config, {"page_size": [1, 64], "cuda_graph_max_bs": "< 17"})
    assert not meets(config, {"page_size": 1})
    assert not meets(config, {"tp_size": 1})


def test_combinations_that_come_to_the_same_settings_are_one_config() -> None:
    scenario = small_scenario(
        sweep={"configs": [{"speculative_num_steps": 0}, {"speculative_num_steps": 0, "speculative_eagle_topk": 1}]}
    )

    assert len(list(expand(scenario))) == 1


def test_settings_that_differ_only_in_load_share_one_server_start() -> None:
    plan = make_plan(small_scenario(), 2)

    assert len(plan.trials) == 3
    assert plan.points == 6
    assert {tuple(str(p.spec.level) for p in t.points) for t in plan.trials} == {("C=1", "C=4")}


def test_repeats_are_further_trials_with_their_own_points() -> None:
    plan = make_plan(small_scenario(measure={"duration_s": 5, "repeats": 3}), 2)

    assert len(plan.trials) == 9
    assert len({p.point_id for t in plan.trials for p in t.points}) == 18


def test_the_order_within_a_slot_comes_from_the_seed_alone() -> None:
    sweep = {"axes": {"speculative_num_steps": list(range(20))}}

    def order(seed: int) -> list[str]:
        return [t.trial_id for t in make_plan(small_scenario(sweep=sweep, seed=seed), 1).slots[0]]

    assert order(1) == order(1)
    assert order(1) != order(2)
    assert sorted(order(1)) == sorted(order(2))
    assert order(1) != sorted(
        order(1), key=lambda t: [c.config_id for c in expand(small_scenario(sweep=sweep))].index(t[:12])
    )


def test_dear_starts_are_spread_so_that_slots_finish_together() -> None:
    sweep = {"axes": {"speculative_num_steps": [0, 2], "cuda_graph_max_bs": [8, 64, 256], "page_size": [1, 16, 32]}}
    engine = {"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}}
    plan = make_plan(small_scenario(sweep=sweep, engine=engine), 3)
    loads = [sum(t.estimated_s for t in slot) for slot in plan.slots]
    longest = max(t.estimated_s for t in plan.trials)

    # Graham's bound for longest-first: never further apart than one trial.
    assert max(loads) - min(loads) <= longest
    assert max(loads) <= (4 / 3) * max(sum(loads) / 3, longest)


def test_a_start_with_more_graphs_to_capture_is_estimated_dearer() -> None:
    def estimate(**settings: int) -> float:
        return sglang_start_s(EngineConfig(freeze_settings(dict(settings))))

    plain = estimate(cuda_graph_max_bs_decode=64)
    assert plain < estimate(cuda_graph_max_bs_decode=64, speculative_num_steps=1)
    assert plain < estimate(cuda_graph_max_bs_decode=256)


def test_what_is_done_is_not_planned_again() -> None:
    scenario = small_scenario()
    whole = make_plan(scenario, 1)
    first, second, third = whole.trials
    done = frozenset({first.trial_id, second.points[0].point_id, *(p.point_id for p in third.points)})
    left = make_plan(scenario, 1, done)

    assert [t.trial_id for t in left.trials] == [second.trial_id]
    assert left.trials[0].points == (second.points[1],)


def test_point_ids_differ_by_everything_that_changes_the_measurement() -> None:
    def ids(**changes: object) -> set[str]:
        return {p.point_id for t in make_plan(small_scenario(**changes), 1).trials for p in t.points}

    base = ids()
    assert ids() == base
    for changes in (
        {"seed": 2},
        {"measure": {"duration_s": 6}},
        {"model": {"path": "org/other", "bundled_draft": True}},
        {"workloads": [{"name": "chat", "concurrency": [1, 4], "temperature": 0.5}]},
    ):
        assert not ids(**changes) & base


def test_ten_thousand_trials_are_planned_quickly_enough_to_wait_for() -> None:
    scenario = small_scenario(
        sweep={
            "axes": {
                "speculative_num_steps": list(range(10)),
                "page_size": [1, 16, 32, 64],
                "max_running_requests": list(range(1, 51)),
                "schedule_conservativeness": [0.6, 0.8, 1.0, 1.2, 1.5],
            }
        }
    )
    began = time.process_time()
    plan = make_plan(scenario, 64)

    assert len(plan.trials) == 10_000
    assert Counter(len(slot) for slot in plan.slots).total() == 64
    assert time.process_time() - began < 60  # hangs only; benchmarks/plan_speed.py has the figure


def test_variables_of_the_environment_are_varied_like_settings_and_count_in_the_identity() -> None:
    scenario = small_scenario(
        engine={"kind": "emulator", "env": {"A": "base", "HF_TOKEN": "hf_x"}},
        sweep={
            "axes": {"env.A": [0, "1", 0.5]},
            "zip": [{"page_size": [1, 64], "env.B": ["x", "y"]}],
            "exclude": [{"env.A": 1, "env.B": "y"}, {"env.A": ">= 0.3", "page_size": 1, "env.B": ["x"]}],
            "include": [{"env.C": 7}],
        },
    )
    configs = list(expand(scenario))

    assert [dict(c.env) for c in configs] == [
        {"A": "0", "B": "x", "HF_TOKEN": "hf_x"},
        {"A": "0", "B": "y", "HF_TOKEN": "hf_x"},
        {"A": "0.5", "B": "y", "HF_TOKEN": "hf_x"},
        {"A": "base", "C": "7", "HF_TOKEN": "hf_x"},
    ]
    assert len({c.config_id for c in configs}) == 4
    assert not any("env" in name for c in configs for name, _ in c.settings)
    assert configs[3].as_dict() == {
        "max_running_requests": 48, "tp_size": 1, "env.A": "base", "env.C": "7", "env.HF_TOKEN": "***",
    }  # fmt: skip
    assert list(config_labels({c.config_id: c.as_dict() for c in configs[:2]}).values()) == [
        "env.B=x, page_size=1", "env.B=y, page_size=64",
    ]  # fmt: skip


def test_a_variable_decides_the_environment_of_the_launch_and_not_its_flags() -> None:
    scenario = small_scenario(
        engine={
            "kind": "emulator",
            "ulimits": {"nofile": 65536, "memlock": "unlimited"},
            "before_start": [{"command": ["a", "b"]}],
            "after_stop": [{"command": ["c"], "timeout_s": 5.0}],
        },
        model={"path": "m", "draft_path": "d", "path_by_host": {"x*": "/x"}, "draft_path_by_host": {"y": "/y"}},
        sweep={"axes": {"env.A": ["0", "1"]}},
    )
    (trial, _) = make_plan(scenario, 1).trials
    spec = launch_spec(scenario, "run-1", trial)

    assert spec.env == trial.config.env
    assert dict(spec.env)["A"] in {"0", "1"}
    assert not any(name.startswith("env") for name, _ in spec.settings)
    assert spec.ulimits == (("nofile", 65536), ("memlock", -1))
    assert (spec.before_start, spec.after_stop) == ((UserCommand(("a", "b"), 60.0),), (UserCommand(("c",), 5.0),))
    assert (spec.draft_path, spec.model_path_by_host, spec.draft_path_by_host) == ("d", (("x*", "/x"),), (("y", "/y"),))
    assert spec.aside_s == 65.0
