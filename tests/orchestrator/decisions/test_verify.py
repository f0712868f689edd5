"""A winner measured again: who is measured, on what, and what the pairs say."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from orchestrator.decisions.head_to_head import (
    Comparison,
    Standing,
    Verdict,
    compare,
    paired_logs,
    standing,
    verdict_of,
)
from orchestrator.decisions.verify_command import Contest, VerifyRequest, contest_of, judge
from orchestrator.decisions.verify_scenario import looked_at, present_settings, verify_tree
from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.objectives.aim import Observation
from orchestrator.rankings.run_ranking import rank_run
from orchestrator.run_files.run_directory import RunDirectory
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import scenario_from_tree
from orchestrator.scenarios.sweep_space import expand
from orchestrator.scenarios.yaml_tree import YamlTree
from orchestrator.trial import LoadLevel
from tests.orchestrator.paced_slot import Pace, PacedSlot
from tests.orchestrator.scenario_samples import small_scenario
from tests.orchestrator.sweeping import finished_run


def seen(config: str, *values: float, host: str = "a") -> list[Observation]:
    return [Observation(config, f"{config}-{host}-{i}", host, value) for i, value in enumerate(values)]


def against(winner: list[Observation], rival: list[Observation], near_tie: float = 0.02) -> Comparison:
    found = compare("r", winner, rival, "runner-up", maximize=True, near_tie=near_tie)
    assert found is not None
    return found


def test_starts_are_paired_on_their_host_so_that_hosts_cancel_out() -> None:
    winner = seen("w", 110.0, 111.0) + seen("w", 55.0, host="slow")
    rival = seen("r", 50.0, host="slow") + seen("r", 100.0, 101.0)

    logs = paired_logs(winner, rival, maximize=True)
    assert [math.exp(log) for log in logs] == pytest.approx([1.1, 111 / 101, 1.1])
    assert paired_logs(winner, rival, maximize=False) == pytest.approx([-log for log in logs])
    # What has no partner on its host is in no pair.
    assert len(paired_logs(winner, seen("r", 1.0, 1.0, host="b"), maximize=True)) == 0


def test_the_interval_is_the_paired_t_interval_of_the_logs() -> None:
    from scipy import stats

    winner, rival = seen("w", 103.0, 99.0, 108.0, 104.0), seen("r", 100.0, 98.0, 101.0, 99.0)
    logs = [math.log(w.value / r.value) for w, r in zip(winner, rival, strict=True)]
    low, high = stats.t.interval(0.95, 3, loc=sum(logs) / 4, scale=stats.sem(logs))

    found = against(winner, rival)
    assert (found.low, found.high) == pytest.approx((math.expm1(low), math.expm1(high)))
    assert found.pairs == 4


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.001, 0.05, Standing.AHEAD),
        (-0.01, 0.05, Standing.LEVEL),
        (-0.019, -0.001, Standing.LEVEL),
        (-0.03, 0.05, Standing.OPEN),
        (-0.05, -0.019, Standing.OPEN),
        (-0.05, -0.021, Standing.BEHIND),
    ],
)
def test_a_winner_may_be_worse_by_near_tie_and_no_more(low: float, high: float, expected: Standing) -> None:
    assert standing(low, high, near_tie=0.02) is expected


def test_one_rival_that_is_ahead_refutes_and_one_that_is_open_leaves_open() -> None:
    def of(*standings: Standing) -> list[Comparison]:
        return [Comparison("r", "runner-up", 5, 0.0, 0.0, 0.0, s) for s in standings]

    assert verdict_of(of(Standing.AHEAD, Standing.LEVEL)) is Verdict.CONFIRMED
    assert verdict_of(of(Standing.AHEAD, Standing.OPEN)) is Verdict.OPEN
    assert verdict_of(of(Standing.OPEN, Standing.BEHIND)) is Verdict.REFUTED
    assert verdict_of(of(Standing.AHEAD), ["ttft_p95_ms <= 5 (is 9)"]) is Verdict.REFUTED
    assert verdict_of(of(Standing.AHEAD), [], ["present could not be compared"]) is Verdict.OPEN
    assert verdict_of(of(Standing.BEHIND), [], ["present could not be compared"]) is Verdict.REFUTED


def test_of_a_thousand_verifications_of_equals_hardly_one_is_refuted_and_nearly_all_real_steps_are_found() -> None:
    rng = random.Random(7)

    def drawn(step: float) -> Standing:
        pairs = [rng.gauss(0, 0.01) for _ in range(5)], [rng.gauss(step, 0.01) for _ in range(5)]
        winner, rival = (seen(name, *map(math.exp, side)) for name, side in zip("wr", pairs, strict=True))
        return against(winner, rival).standing

    equal = [drawn(0.0) for _ in range(1000)]
    ahead = [drawn(-0.05) for _ in range(500)]
    behind = [drawn(0.07) for _ in range(500)]
    assert equal.count(Standing.BEHIND) <= 3
    assert ahead.count(Standing.AHEAD) >= 480
    assert behind.count(Standing.BEHIND) >= 480


def test_fewer_than_two_pairs_say_nothing() -> None:
    assert compare("r", seen("w", 1.0), seen("r", 2.0), "runner-up", maximize=True, near_tie=0.02) is None


def run_of(root: Path, scenario: Scenario, pace: Pace) -> Path:
    return finished_run(root, scenario, PacedSlot("a", pace))


def depth(settings: dict[str, Any]) -> int:
    return int(settings.get("speculative_num_steps", 0))


def by_depth(settings: dict[str, Any], repeat: int) -> float:
    return (1.0, 1.3, 1.5)[depth(settings)] * (1.002 if repeat % 2 else 0.998)


RUN: dict[str, Any] = {
    "workloads": [
        {"name": "chat", "concurrency": [1, 4, 16]}, {"name": "other", "concurrency": [2]},
        {"name": "third", "concurrency": [8]},
    ],
    "objectives": [{
        "name": "fast", "workload": "chat", "maximize": "output_throughput_tok_s", "at": {"concurrency": 1},
        "limits": ["tpot_p50_ms <= 1000 @ C=16"],
        "tie_breakers": [{"maximize": "output_throughput_tok_s", "workload": "other", "at": {"concurrency": 2}}],
    }],
}  # fmt: skip


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("verify") / "run", small_scenario(**RUN), by_depth)


def test_winner_and_runner_up_are_measured_as_they_served_where_the_objective_looks(measured: Path) -> None:
    contest = contest_of(VerifyRequest(measured, repeats=3))

    ranked = json.loads((measured / "ranking.json").read_text())["objectives"]["fast"]["ranking"]
    assert contest.roles == {ranked[0]["config_id"]: "winner", ranked[1]["config_id"]: "runner-up"}
    assert [config.config_id for config in expand(contest.scenario)] == list(contest.roles)
    levels = {w.name: w.concurrency for w in contest.scenario.workloads}
    assert levels == {"chat": [1, 16], "other": [2]}
    assert (contest.scenario.measure.repeats, contest.scenario.search.method) == (3, "grid")
    assert contest.scenario.name == "small-verify"


def test_the_present_config_is_measured_as_it_is_given(measured: Path) -> None:
    contest = contest_of(VerifyRequest(measured, present="speculative_num_steps=0 tp_size=1 page_size=64"))

    assert list(contest.roles.values()) == ["winner", "runner-up", "present"]
    present = list(expand(contest.scenario))[2].as_dict()
    assert present["page_size"] == 64
    assert "speculative_num_steps" not in present


def test_variables_that_all_configs_share_stay_where_they_may_be_secret_and_swept_ones_go_along(tmp_path: Path) -> None:
    engine = {
        "kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}, "env": {"SGLANG_Y": "1", "HF_TOKEN": "hf_x"}
    }  # fmt: skip
    sweep = {"axes": {"speculative_num_steps": [1], "env.SGLANG_X": [0, 1]}}
    scenario = small_scenario(engine=engine, sweep=sweep)
    configs = [config.as_dict() for config in expand(scenario)]
    tree = verify_tree(scenario, scenario.objectives[0], configs, 2)

    shown = [{name: value for name, value in told.items() if "env." in name} for told in tree["sweep"]["include"]]
    assert shown == [{"env.SGLANG_X": "0"}, {"env.SGLANG_X": "1"}]
    derived = scenario_from_tree(YamlTree("t", tree))
    assert [c.config_id for c in expand(derived)] == [c.config_id for c in expand(scenario)]


def test_what_looks_at_no_level_needs_none_and_expressions_need_all_of_theirs() -> None:
    scenario = small_scenario(
        objectives=[{
            "name": "o",
            "maximize": "geomean(output_throughput_tok_s @ C=1, output_throughput_tok_s @ C=4)",
            "tie_breakers": [{"maximize": "free_gib_after_capture"}],
        }]
    )  # fmt: skip

    assert looked_at(scenario, scenario.objectives[0]) == {
        ("chat", LoadLevel("concurrency", 1.0)),
        ("chat", LoadLevel("concurrency", 4.0)),
    }


def test_present_settings_come_as_words_flags_or_yaml() -> None:
    assert present_settings("speculative_num_steps=3 --mem-fraction-static=0.8") == {
        "speculative_num_steps": 3,
        "mem_fraction_static": 0.8,
    }
    assert present_settings("tp-size: 4\nenable-mixed-chunk: true\n") == {"tp_size": 4, "enable_mixed_chunk": True}
    with pytest.raises(BadInput, match="'tp_size' is neither NAME=VALUE nor a file"):
        present_settings("tp_size 4")


def test_the_config_file_of_a_server_may_be_given_as_it_is(measured: Path, tmp_path: Path) -> None:
    file = tmp_path / "now.yaml"
    told = (
        'model-path: "org/model"\nhost: "0.0.0.0"\nport: "30000"\nenable-metrics: true\npage-size: "64"\ntp-size: 1\n'
    )
    file.write_text(told)
    contest = contest_of(VerifyRequest(measured, present=str(file)))

    present = list(expand(contest.scenario))[2].as_dict()
    assert present["page_size"] == 64
    assert not {"model_path", "host", "port", "enable_metrics"} & set(present)

    file.write_text(told.replace("org/model", "org/other"))
    with pytest.raises(BadInput, match="--present: model_path is 'org/other', but the run measured 'org/model'"):
        contest_of(VerifyRequest(measured, present=str(file)))


def test_a_fault_of_the_present_config_is_told_of_what_the_user_gave(measured: Path) -> None:
    with pytest.raises(BadInput, match=r"^--present: speculative_num_steps: is 3 but there is no"):
        contest_of(VerifyRequest(measured, present="speculative_num_steps=3 tp_size=1"))


def test_a_verification_needs_no_reference(measured: Path) -> None:
    assert contest_of(VerifyRequest(measured)).scenario.measure.reference == "off"


def test_a_present_config_that_cannot_be_served_is_refused_before_anything_starts(measured: Path) -> None:
    with pytest.raises(BadInput, match="speculativ_num_steps"):
        contest_of(VerifyRequest(measured, present="speculativ_num_steps=3"))


def verified(tmp_path: Path, measured: Path, pace: Pace, **more: Any) -> tuple[Contest, dict[str, Any]]:
    contest = contest_of(VerifyRequest(measured, **more))
    root = run_of(tmp_path / "verification", contest.scenario, pace)
    return contest, judge(root, contest, "run")


def test_a_winner_that_wins_again_is_confirmed_with_its_interval(measured: Path, tmp_path: Path) -> None:
    _, told = verified(tmp_path, measured, by_depth)

    assert told["verdict"] == "confirmed"
    (comparison,) = told["comparisons"]
    assert (comparison["role"], comparison["pairs"], comparison["standing"]) == ("runner-up", 5, "ahead")
    assert comparison["winner_better"] == pytest.approx(1.5 / 1.3 - 1, rel=0.02)
    assert told["text"][0].startswith("Confirmed: fast, speculative_num_steps=2 is")


def test_a_winner_that_was_lucky_is_refuted(measured: Path, tmp_path: Path) -> None:
    def turned(settings: dict[str, Any], repeat: int) -> float:
        return (1.0, 1.5, 1.3)[depth(settings)] * (1.002 if repeat % 2 else 0.998)

    _, told = verified(tmp_path, measured, turned)
    assert told["verdict"] == "refuted"
    assert "worse by more than near_tie (2.0%), beyond doubt" in told["text"][1]


def test_a_winner_that_noise_hides_is_not_told_apart(measured: Path, tmp_path: Path) -> None:
    def noisy(settings: dict[str, Any], repeat: int) -> float:
        return 1.0 + (0.2 if (repeat + depth(settings)) % 3 else 0.0)

    _, told = verified(tmp_path, measured, noisy)
    assert told["verdict"] == "not_told_apart"
    assert told["text"][0].startswith("Not told apart within near_tie (2.0%)")


def test_a_winner_that_fails_a_limit_by_less_than_noise_is_neither_confirmed_nor_refuted(
    measured: Path, tmp_path: Path
) -> None:
    rows = {p.config_id: p for p in rank_run(measured).values if p.workload == "chat" and p.level.value == 16}
    tpot = rows[rank_run(measured).rankings[0].rows[0].config_id].metrics["tpot_p50_ms"] or 0.0
    objectives = [RUN["objectives"][0] | {"limits": [f"tpot_p50_ms <= {tpot * 1.001:.6g} @ C=16"]}]
    run = run_of(tmp_path / "run", small_scenario(**{**RUN, "objectives": objectives}), by_depth)

    def slower(by: float) -> Pace:
        return lambda settings, repeat: by_depth(settings, repeat) * by * (1.01 if repeat % 2 else 0.99)

    present = "speculative_num_steps=0 tp_size=1 page_size=64"
    _, noisy = verified(tmp_path / "noisy", run, slower(0.995), present=present)
    _, slow = verified(tmp_path / "slow", run, slower(0.9), present=present)

    assert (noisy["verdict"], noisy["limits_failed"]) == ("not_told_apart", [])
    assert noisy["not_known"][0].startswith("the winner's limit tpot_p50_ms <= ")
    assert " failed within noise (95%: " in noisy["not_known"][0]
    assert (slow["verdict"], slow["not_known"]) == ("refuted", [])


def test_a_verification_without_pairs_is_no_verdict_and_says_what_to_do(measured: Path, tmp_path: Path) -> None:
    contest = contest_of(VerifyRequest(measured, repeats=2))
    run = RunDirectory.create(tmp_path / "v", contest.scenario)
    run.close(complete=False)

    with pytest.raises(SpecsweepError, match="nothing can be judged"):
        judge(tmp_path / "v", contest, "run")


def test_a_scenario_with_secrets_must_be_given_again(tmp_path: Path) -> None:
    engine = {"kind": "emulator", "settings": {"speculative_algorithm": "NEXTN"}, "env": {"HF_TOKEN": "hf_secret"}}
    root = run_of(tmp_path / "run", small_scenario(engine=engine), by_depth)

    with pytest.raises(BadInput, match="give the file as --scenario"):
        contest_of(VerifyRequest(root))


@pytest.mark.parametrize(
    ("present", "told"),
    [
        ("a='", "No closing quotation"),
        ("speculative_num_steps=[1", "the value cannot be read"),
        ("speculative_num_steps={a: 1}", "the value cannot be read"),
        ("", "names no setting"),
        ("speculative_num_steps=2", "--present: speculative_num_steps: is 2 but there is no speculative_algorithm"),
        ("mem_fraction_static=7", "--present: mem_fraction_static: is 7; it is a share"),
    ],
)
def test_a_present_config_that_cannot_be_read_is_refused_by_its_own_name(
    measured: Path, present: str, told: str
) -> None:
    with pytest.raises(BadInput) as refused:
        contest_of(VerifyRequest(measured, present=present))

    assert told in str(refused.value)


def test_a_run_of_other_configs_is_no_verification(measured: Path, tmp_path: Path) -> None:
    contest = contest_of(VerifyRequest(measured))
    scenario = small_scenario(**RUN, sweep={"axes": {"speculative_num_steps": [6, 7]}})
    other = run_of(tmp_path / "other", scenario, lambda settings, repeat: 1.0)

    with pytest.raises(BadInput, match="has none of the configs that are compared"):
        judge(other, contest, "measured")
