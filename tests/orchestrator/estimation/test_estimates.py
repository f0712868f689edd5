"""Estimates from trials on several hosts, held against scipy, statsmodels, planted effects and their own promises."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from orchestrator.estimation import two_way
from orchestrator.estimation.estimates import Estimates, NotComparable, estimate, parts_of
from orchestrator.objectives.aim import Observation
from orchestrator.points.batch_means import WithinRun

CONFIGS, HOSTS = 12, 4


def seen(config: object, host: object, value: float, trial: object = "") -> Observation:
    return Observation(f"c{config}", f"t{config}-{host}-{trial}", f"h{host}", value)


def campaign(rng: np.random.Generator, host_spread: float, noise: float) -> tuple[list[Observation], np.ndarray]:
    """Each of 12 configs once on two of 4 hosts; (what is seen, the true logs)."""
    truth, hosts = rng.normal(5, 0.05, CONFIGS), rng.normal(0, host_spread, HOSTS)
    found = []
    for config in range(CONFIGS):
        for host in ((config + shift) % HOSTS for shift in (0, 1 + config // HOSTS % 3)):
            value = math.exp(truth[config] + hosts[host] + rng.normal(0, noise))
            found.append(seen(config, host, value))
    return found, truth


def test_one_host_is_the_one_way_layout_of_scipy() -> None:
    rng = np.random.default_rng(3)
    sets = [np.exp(rng.normal(m, 0.02, 4)) for m in (4.0, 4.1, 4.3)]
    found = estimate([seen(c, 0, v, k) for c, own in enumerate(sets) for k, v in enumerate(own)], maximize=True)
    pooled = math.sqrt(sum(np.var(np.log(own), ddof=1) for own in sets) / 3)

    assert found.df == 9
    assert found.sigma == pytest.approx(pooled)
    assert found.value("c1") == pytest.approx(stats.gmean(sets[1]))
    bounds = stats.t.interval(0.95, 9, np.log(sets[1]).mean(), pooled / 2)
    assert found.interval("c1") == pytest.approx(tuple(np.exp(bounds)))
    # Of two configs alone it is Student's test.
    two = estimate([seen(c, 0, v, k) for c in (0, 1) for k, v in enumerate(sets[c])], maximize=True)
    interval = stats.ttest_ind(np.log(sets[0]), np.log(sets[1])).confidence_interval()
    gap = two.gap("c0", "c1")
    assert (gap.low, gap.high) == pytest.approx((1 - math.exp(interval.high), 1 - math.exp(interval.low)))


@pytest.mark.parametrize("seed", range(3))
def test_several_hosts_are_the_two_way_layout_of_statsmodels(seed: int) -> None:
    import pandas as pd
    import statsmodels.formula.api as smf

    rng = np.random.default_rng(seed)
    cells = [(c, h) for c in range(5) for h in range(3) for _ in range(rng.integers(0, 3))] + [(c, 0) for c in range(5)]
    rows = [(f"c{c}", f"h{h}", rng.lognormal(3, 0.3)) for c, h in cells]
    ours = estimate([Observation(c, f"t{i}", h, v) for i, (c, h, v) in enumerate(rows)], maximize=False)
    frame = pd.DataFrame({"y": [math.log(v) for *_, v in rows], "c": [r[0] for r in rows], "h": [r[1] for r in rows]})
    oracle = smf.ols("y ~ C(c) + C(h)", frame).fit()

    assert ours.df == oracle.df_resid
    assert ours.sigma**2 == pytest.approx(oracle.mse_resid)
    for config in ("c1", "c2", "c3", "c4"):
        test = oracle.t_test(f"C(c)[T.{config}] = 0")
        assert ours.means[ours.index[config]] - ours.means[ours.index["c0"]] == pytest.approx(test.effect[0])
        assert ours.error_of_difference(config, "c0") == pytest.approx(test.sd[0, 0])
        low, high = test.conf_int()[0]
        gap = ours.gap(config, "c0")
        assert (gap.low, gap.high) == pytest.approx((math.expm1(low), math.expm1(high)))


def test_weights_and_hosts_as_a_sample_are_what_the_normal_equations_say() -> None:
    rng = np.random.default_rng(5)
    configs, hosts = np.repeat(np.arange(4), 3), np.tile(np.arange(3), 4)
    values, weights, ridge = rng.normal(0, 1, 12), rng.uniform(0.5, 2, 12), 0.7
    found = two_way.fit(configs, hosts, values, weights, ridge)
    design = np.hstack([np.eye(4)[configs], np.eye(3)[hosts]])
    # Host effects add up to 0: one more equation with a huge weight.
    system = design.T @ (weights[:, None] * design) + np.diag([0] * 4 + [ridge] * 3)
    system[4:, 4:] += 1e9
    inverse = np.linalg.inv(system)
    solution = inverse @ design.T @ (weights * values)

    assert found.means == pytest.approx(solution[:4], abs=1e-6)
    assert found.host_effects == pytest.approx(solution[4:], abs=1e-6)
    assert np.diag(found.own) + found.shared @ found.shared.T == pytest.approx(inverse[:4, :4], abs=1e-6)
    plain = two_way.fit(configs, hosts, values)
    hat = design @ np.linalg.pinv(design)
    assert plain.leverage == pytest.approx(np.diag(hat))


effects = st.floats(-0.3, 0.3)


@settings(deadline=None, max_examples=40)
@given(st.lists(effects, min_size=6, max_size=6), st.lists(effects, min_size=3, max_size=3), st.data())
def test_planted_effects_come_back_exactly_without_noise(
    of_config: list[float], of_host: list[float], data: st.DataObject
) -> None:
    extra = data.draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 2)), max_size=6))
    cells = [(c, c % 3) for c in range(6)] + [(0, 1), (1, 2), *extra]  # a tree, so that all are connected
    found = estimate(
        [seen(c, h, 100 * math.exp(of_config[c] + of_host[h]), i) for i, (c, h) in enumerate(cells)], maximize=True
    )

    assert found.host_effects.sum() == pytest.approx(0, abs=1e-9)
    for c in range(6):
        assert found.gap(f"c{c}", "c0").share == pytest.approx(1 - math.exp(of_config[c] - of_config[0]), abs=1e-9)


@settings(deadline=None, max_examples=40)
@given(st.integers(0, 10_000), st.integers(0, HOSTS - 1), st.floats(0.2, 5))
def test_a_host_that_is_faster_for_all_changes_no_difference(seed: int, host: int, factor: float) -> None:
    trials, _ = campaign(np.random.default_rng(seed), 0.05, 0.015)
    faster = [
        Observation(t.config_id, t.trial_id, t.host, t.value * (factor if t.host == f"h{host}" else 1)) for t in trials
    ]
    plain, moved = estimate(trials, maximize=True), estimate(faster, maximize=True)

    assert moved.sigma == pytest.approx(plain.sigma)
    for config in plain.config_ids:
        a, b = plain.gap(config, "c0"), moved.gap(config, "c0")
        assert (a.share, a.low, a.high) == pytest.approx((b.share, b.low, b.high))


@pytest.mark.parametrize("host_spread", [0.0, 0.02, 0.05, 0.08])
def test_a_95_percent_interval_holds_the_true_difference_95_times_in_100(host_spread: float) -> None:
    rng = np.random.default_rng(11)
    held = total = 0
    for _ in range(300):
        trials, truth = campaign(rng, host_spread, 0.015)
        found = estimate(trials, maximize=True)
        for config in range(1, CONFIGS):
            gap, true = found.gap(f"c{config}", "c0"), 1 - math.exp(truth[config] - truth[0])
            assert gap.low is not None
            assert gap.high is not None
            held += gap.low <= true <= gap.high
            total += 1

    assert 0.93 <= held / total <= 0.97


def test_an_interval_of_one_config_holds_its_value_on_the_average_host() -> None:
    rng = np.random.default_rng(4)
    held = 0
    for _ in range(600):
        hosts = rng.normal(0, 0.05, 2)
        trials = [
            seen(c, h, math.exp(hosts[h] + rng.normal(0, 0.02)), k) for c in (0, 1) for h in (0, 1) for k in (0, 1)
        ]
        low, high = estimate(trials, maximize=True).interval("c0") or (0, 0)
        held += low <= math.exp(hosts.mean()) <= high

    assert 0.93 <= held / 600 <= 0.97


def test_configs_on_hosts_that_share_none_are_not_compared() -> None:
    found = estimate(
        [seen(0, 0, 100), seen(1, 0, 90), seen(1, 0, 91, 1), seen(2, 1, 80), seen(3, 1, 70)], maximize=True
    )

    assert found.parts.tolist() == [0, 0, 1, 1]
    assert found.gap("c1", "c0").high is not None
    with pytest.raises(NotComparable, match="c2 and c0 were measured on hosts that no config has in common"):
        found.gap("c2", "c0")


def test_what_can_be_compared_is_known_without_estimating() -> None:
    chain = [seen("a", "h", 1.0), seen("b", "h", 2.0), seen("b", "i", 2.0), seen("c", "i", 3.0)]
    apart = [*chain, seen("d", "k", 4.0), seen("e", "l", 5.0), seen("d", "m", 4.0)]

    assert parts_of(chain) == {"ca": 0, "cb": 0, "cc": 0}
    assert parts_of(apart) == {"ca": 0, "cb": 0, "cc": 0, "cd": 1, "ce": 2}
    assert list(estimate(apart, maximize=True).parts) == [0, 0, 0, 1, 2]
    assert parts_of([]) == {}


def test_a_reference_on_every_host_connects_configs_of_one_trial_each() -> None:
    trials = [seen(0, 0, 100), seen(0, 1, 110, "ref"), seen(1, 0, 90), seen(2, 1, 99)]
    found = estimate(trials, maximize=True)

    assert found.parts.tolist() == [0, 0, 0]
    # The second host is 10 % faster, so the config that was seen there is as fast as the one on the first.
    assert found.value("c2") == pytest.approx(found.value("c1"))


def test_one_trial_each_says_nothing_of_the_spread() -> None:
    found = estimate([seen(0, 0, 277.0), seen(1, 0, 282.0)], maximize=True)

    assert (found.kind, found.df, found.value("c0")) == ("single", 0, 277.0)
    assert found.interval("c0") is None
    assert found.gap("c0", "c1").share == pytest.approx(5 / 282)
    assert found.gap("c0", "c1").low is None


def test_one_trial_each_has_the_spread_of_its_time_slices_and_says_so() -> None:
    trials = [seen(0, 0, 100.0), seen(1, 0, 110.0)]
    slices = {("c0", "t0-0-"): WithinRun(0.01, 19), ("c1", "t1-0-"): WithinRun(0.02, 9)}
    found = estimate(trials, maximize=True, within=slices)

    assert (found.kind, found.df) == ("within_run", 9)
    assert found.error_of_difference("c0", "c1") == pytest.approx(math.hypot(0.01, 0.02))
    half = stats.t.ppf(0.975, 9) * 0.02
    assert found.interval("c1") == pytest.approx((110 * math.exp(-half), 110 * math.exp(half)))
    # Where one has none, nothing is known of the difference.
    assert estimate(trials, maximize=True, within={("c0", "t0-0-"): WithinRun(0.01, 19)}).kind == "single"


def test_slices_do_not_count_where_there_are_starts_to_compare() -> None:
    trials = [seen(0, 0, 100.0), seen(0, 0, 104.0, 1), seen(1, 0, 110.0)]
    slices = {(t.config_id, t.trial_id): WithinRun(1e-6, 19) for t in trials}
    found = estimate(trials, maximize=True, within=slices)

    assert (found.kind, found.df) == ("replicates", 1)
    assert found.sigma == pytest.approx(math.log(1.04) / math.sqrt(2))


def test_values_that_are_not_positive_are_compared_as_they_are() -> None:
    trials = [seen("a", 0, 0.0), seen("a", 0, 2.0, 1), seen("b", 0, 4.0), seen("b", 0, 6.0, 1)]
    found = estimate(trials, maximize=False)

    assert (found.scale, found.value("ca"), found.value("cb")) == ("linear", 1.0, 5.0)
    assert found.gap("cb", "ca").share == 4.0
    half = stats.t.ppf(0.975, 2) * math.sqrt(2)
    assert found.gap("cb", "ca").high == pytest.approx((4 + half) / 1)
    nothing = estimate([seen("a", 0, 0.0), seen("b", 0, 3.0)], maximize=False)
    assert nothing.gap("cb", "ca").share == math.inf
    assert nothing.gap("ca", "ca").share == 0.0


def with_outlier(factor: float) -> Estimates:
    rng = np.random.default_rng(8)
    trials = [seen(c, h, math.exp(5 + rng.normal(0, 0.01))) for c in range(6) for h in range(4)]
    trials[0] = seen(0, 0, trials[0].value * factor)
    return estimate(trials, maximize=True)


def test_an_outlier_is_told_and_kept_and_shown_with_less_weight_beside() -> None:
    found = with_outlier(0.8)

    assert [(o.config_id, o.host) for o in found.outliers] == [("c0", "h0")]
    assert found.outliers[0].deviates < -10
    assert found.value("c0") == pytest.approx(with_outlier(1).value("c0") * 0.8**0.25)
    assert found.robust_value("c0") == pytest.approx(with_outlier(1).value("c0"), rel=0.01)


def test_even_trials_have_no_outliers() -> None:
    found = with_outlier(1)

    assert found.outliers == ()
    assert found.robust_value("c0") is None


def test_many_hosts_are_a_sample_whose_effects_are_shrunk() -> None:
    rng = np.random.default_rng(2)
    errors: dict[bool, float] = {True: 0.0, False: 0.0}
    for _ in range(60):
        hosts = rng.normal(0, 0.01, 12)
        cells = [(c, (c + k) % 12) for c in range(24) for k in (0, 5)]
        configs, on = (np.array(x) for x in zip(*cells, strict=True))
        values = hosts[on] + rng.normal(0, 0.03, len(cells))
        plain = two_way.fit(configs, on, values)
        shrunk = two_way.fit(configs, on, values, ridge=two_way.shrinkage(plain, plain.rss / plain.df))
        for fit, kind in ((plain, False), (shrunk, True)):
            errors[kind] += float(((fit.means - fit.means.mean()) ** 2).sum())

    assert errors[True] < 0.75 * errors[False]


def test_the_spread_between_many_hosts_is_found() -> None:
    rng = np.random.default_rng(6)
    between = []
    for _ in range(200):
        hosts = rng.normal(0, 0.05, 12)
        cells = [(c, (c + k) % 12) for c in range(24) for k in (0, 5)]
        configs, on = (np.array(x) for x in zip(*cells, strict=True))
        fitted = two_way.fit(configs, on, hosts[on] + rng.normal(0, 0.02, len(cells)))
        between.append((fitted.rss / fitted.df) / two_way.shrinkage(fitted, fitted.rss / fitted.df))

    assert np.mean(between) == pytest.approx(0.05**2, rel=0.1)


def test_no_trial_is_no_estimate() -> None:
    found = estimate([], maximize=True)

    assert (found.config_ids, found.kind) == ((), "single")
