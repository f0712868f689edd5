"""Who is best and who may be: held against simulated truth."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from orchestrator.estimation.contest import contest
from orchestrator.estimation.estimates import Estimates, NotComparable, estimate
from orchestrator.objectives.aim import Observation
from orchestrator.points.batch_means import WithinRun


def of(values: dict[str, list[float]], maximize: bool = True) -> Estimates:
    return estimate(
        [Observation(c, f"{c}{i}", "h", v) for c, own in values.items() for i, v in enumerate(own)], maximize=maximize
    )


def test_two_configs_have_the_probability_of_students_t() -> None:
    found = of({"a": [100, 102, 104], "b": [99, 101, 103]})
    game = contest(found)

    assert game is not None
    ahead = (found.means[0] - found.means[1]) / found.error_of_difference("a", "b")
    assert game.leader == "a"
    assert game.p_best["a"] == pytest.approx(stats.t.cdf(ahead, 4), abs=0.015)
    assert game.p_best["a"] + game.p_best["b"] == pytest.approx(1)


def test_the_group_of_those_not_told_apart_uses_dunnetts_quantile() -> None:
    rng = np.random.default_rng(1)
    noise = np.array([-0.02, 0.0, 0.0, 0.02])
    leader = {"best": np.exp(5 + noise).tolist()}
    # Balanced, so scipy's Dunnett test of all others against the leader says the same.
    for step in np.linspace(0.02, 0.06, 9):
        values = leader | {f"c{i}": np.exp(5 - step + rng.permutation(noise)).tolist() for i in range(5)}
        game = contest(of(values))
        logs = [np.log(values[f"c{i}"]) for i in range(5)]
        p = stats.dunnett(
            *logs, control=np.log(values["best"]), alternative="less", rng=np.random.default_rng(2)
        ).pvalue
        assert game is not None
        if abs(p.max() - 0.05) > 0.01:
            assert game.tie_group == ({"best"} if p.max() < 0.05 else set(values))


def test_lower_is_better_where_the_objective_says_so() -> None:
    game = contest(of({"slow": [20, 21], "fast": [10, 10.1]}, maximize=False))

    assert game is not None
    assert game.leader == "fast"
    assert game.tie_group == {"fast"}
    assert game.told_apart("slow")
    assert (game.rank_low["slow"], game.rank_high["slow"]) == (2, 2)


def test_the_true_best_is_in_the_group_95_times_in_100_also_if_all_are_alike() -> None:
    rng = np.random.default_rng(7)
    for spread in (0.0, 0.01, 0.05):
        held = 0
        for _ in range(60):
            truth = rng.normal(0, spread, 8)
            game = contest(
                of({str(c): np.exp(truth[c] + rng.normal(0, 0.015, 3)).tolist() for c in range(8)}), draws=400
            )
            assert game is not None
            held += str(int(np.argmax(truth))) in game.tie_group
        assert held / 60 >= 0.9


def test_exactly_equal_configs_share_the_probability() -> None:
    game = contest(of({"a": [7, 7], "b": [7, 7], "c": [6, 6]}))

    assert game is not None
    assert game.p_best == {"a": 0.5, "b": 0.5, "c": 0.0}
    assert game.tie_group == {"a", "b"}


def test_ranks_say_how_far_a_config_may_be_up_or_down() -> None:
    game = contest(of({"a": [100, 101], "b": [100.2, 100.8], "c": [50, 50.5]}))

    assert game is not None
    assert [(game.rank_low[c], game.rank_high[c]) for c in "abc"] == [(1, 2), (1, 2), (3, 3)]


def test_some_of_the_configs_can_be_compared_alone() -> None:
    found = of({"a": [100, 101], "b": [200, 202], "c": [99, 100]})
    game = contest(found, ["c", "a"])

    assert game is not None
    assert game.leader == "a"
    assert set(game.p_best) == {"a", "c"}
    assert game.p_best["a"] > 0.7


def test_the_same_data_give_the_same_answer() -> None:
    values = {str(c): [100.0 + c, 101.0 + c] for c in range(5)}

    assert contest(of(values)) == contest(of(values))


def test_without_any_spread_there_is_no_probability() -> None:
    assert contest(of({"a": [1], "b": [2]})) is None
    assert contest(of({})) is None


def test_slices_of_single_trials_give_a_probability() -> None:
    trials = [Observation("a", "a0", "h", 100), Observation("b", "b0", "h", 102)]
    found = estimate(trials, maximize=True, within={(c, f"{c}0"): WithinRun(0.01, 19) for c in "ab"})
    game = contest(found)

    assert game is not None
    assert game.p_best["b"] == pytest.approx(stats.t.cdf(math.log(1.02) / math.hypot(0.01, 0.01), 19), abs=0.015)


def test_parts_that_share_no_host_have_no_contest() -> None:
    trials = [Observation(c, f"{c}{k}", h, 10 + k) for c, h in (("a", "h1"), ("b", "h2")) for k in (0, 1)]
    found = estimate(trials, maximize=True)

    with pytest.raises(NotComparable):
        contest(found)
    assert contest(found, ["b"]) is not None


def test_ten_thousand_configs_are_compared_without_a_matrix_of_all_pairs() -> None:
    rng = np.random.default_rng(1)
    truth = rng.normal(0, 0.1, 10_000)
    trials = [
        Observation(
            str(c), f"{c}-{k}", f"h{(c + k) % 8}", math.exp(truth[c] + 0.01 * ((c + k) % 8) + rng.normal(0, 0.02))
        )
        for c in range(10_000)
        for k in (0, 1)
    ]
    game = contest(estimate(trials, maximize=True))

    assert game is not None
    assert str(int(np.argmax(truth))) in game.tie_group
    assert len(game.tie_group) < 100
    assert sum(game.p_best.values()) == pytest.approx(1)


def test_a_config_that_is_known_well_is_not_excluded_by_the_lucky_start_of_one_of_many() -> None:
    # 35 configs with one trial, 5 with four (sd 0.02): what the largest of 35 lucky starts is ahead of a known one.
    rng = np.random.default_rng(5)
    single, known = rng.standard_normal((20_000, 35)), rng.standard_normal((20_000, 5)) / 2
    errors = np.hstack([single - known[:, :1], known[:, 1:] - known[:, :1]])
    errors /= np.sqrt([1.25] * 35 + [0.5] * 4) * np.sqrt(rng.chisquare(15, 20_000) / 15)[:, None]
    d = float(np.quantile(errors.max(axis=1), 0.95))

    spread = 0.02 * math.sqrt(15 / 20)
    behind = 0.98 * d * 0.02 * math.sqrt(1.25)
    seen = [Observation(f"s{i}", f"s{i}", "h", math.exp(5 + (behind if i == 0 else 0.0))) for i in range(35)]
    seen += [
        Observation(f"k{i}", f"k{i}-{r}", "h", math.exp(5 + spread * sign))
        for i in range(5)
        for r, sign in enumerate((1, -1, 1, -1))
    ]
    game = contest(estimate(seen, maximize=True))

    assert game is not None
    assert game.leader == "s0"
    assert "k0" in game.tie_group
