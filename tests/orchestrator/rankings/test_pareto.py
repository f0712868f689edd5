"""Pareto fronts: against brute force, with doubt, with gates, and at size."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from orchestrator.objectives.aim import PointValue
from orchestrator.objectives.scenario_objective import Front
from orchestrator.rankings.pareto import ParetoFront, on_front, pareto_front
from orchestrator.trial import LoadLevel

ONE = LoadLevel("concurrency", 1.0)
SPEED, USER = "output_throughput_tok_s", "tok_s_per_user_p50"


def brute_force(points: Sequence[Sequence[float]]) -> list[bool]:
    """The definition: no other is at least as good on all axes and better on one."""
    return [
        not any(
            all(a >= b for a, b in zip(other, point, strict=True))
            and any(a > b for a, b in zip(other, point, strict=True))
            for other in points
        )
        for point in points
    ]


@given(st.integers(2, 3).flatmap(lambda k: st.lists(st.tuples(*[st.integers(0, 6)] * k), min_size=1, max_size=40)))
def test_the_front_is_that_of_brute_force(points: list[tuple[int, ...]]) -> None:
    assert on_front(np.array(points, dtype=np.float64)).tolist() == brute_force(points)


def trial(config: str, repeat: int, host: str = "h", **metrics: float) -> PointValue:
    """A trial with one point."""
    return PointValue(config, "chat", ONE, repeat, metrics, trial_id=f"{config}-{repeat}", host=host)


def front(**changes: Any) -> Front:
    axes = [{"maximize": SPEED}, {"maximize": USER}]
    return Front.model_validate({"name": "f", "axes": axes, "at": {"concurrency": 1}, **changes})


def places(found: ParetoFront) -> dict[str, str]:
    return {row.config_id: row.place for row in found.rows}


def of(wanted: Front, trials: list[PointValue]) -> ParetoFront:
    return pareto_front(wanted, list(dict.fromkeys(t.config_id for t in trials)), trials, "chat")


def noisy(truth: dict[str, tuple[float, float]], seed: int, noise: float, repeats: int = 3) -> Any:
    """Trials on two hosts that differ."""
    drawn = np.random.default_rng(seed)
    trials = []
    for (config, values), repeat in itertools.product(truth.items(), range(repeats)):
        host = repeat % 2
        errors = noise * drawn.standard_normal(2) + 0.1 * host
        speed, user = np.array(values) * np.exp(errors)
        trials.append(trial(config, repeat, f"h{host}", output_throughput_tok_s=speed, tok_s_per_user_p50=user))
    return trials


def test_configs_far_apart_are_surely_on_the_front_or_off_it() -> None:
    truth = {"wide": (200.0, 10.0), "middle": (150.0, 20.0), "narrow": (100.0, 40.0), "bad": (99.0, 9.0)}

    found = of(front(), noisy(truth, 1, 0.01))

    assert [(r.config_id, r.place, r.probability) for r in found.rows] == [
        ("wide", "on", 1.0),
        ("middle", "on", 1.0),
        ("narrow", "on", 1.0),
        ("bad", "dominated", 0.0),
    ]
    assert found.note == ""
    assert found.rows[0].values == pytest.approx((200.0 * 1.0515, 10.0 * 1.0515), rel=0.02)  # on the mean of the hosts


def test_a_config_that_is_as_good_as_another_is_possible() -> None:
    truth = {"a": (100.0, 20.0), "same": (100.0, 20.0), "bad": (50.0, 10.0)}

    chances = [of(front(), noisy(truth, seed, 0.02)).rows for seed in range(20)]

    kinds = [row.place for rows in chances for row in rows if row.config_id in ("a", "same")]
    assert kinds.count("possible") + kinds.count("on") > 30
    assert {row.place for rows in chances for row in rows if row.config_id == "bad"} == {"dominated"}


def patterned(second: str, *, minimised: bool = False) -> list[PointValue]:
    """Two configs, b 1 % worse in both metrics; errors of 1 % in four trials each, with these signs, so that the
    estimates are exact. The signs of the first metric are ++--. `minimised`: the second is better when smaller.
    """
    name, turned = ("ttft_p50_ms", -1) if minimised else (USER, 1)
    return [
        trial(config, i, "h", **{SPEED: 100 * math.exp(0.01 * int(one) - gap),
                            name: 20 * math.exp(0.01 * int(two) - turned * gap)})
        for config, gap in (("a", 0.0), ("b", 0.01))
        for i, (one, two) in enumerate(zip(("1", "1", "-1", "-1"), second.split(), strict=True))
    ]  # fmt: skip


# Of a difference: eight residuals of 1 % over six degrees of freedom, four trials a side.
_Z = 0.01 / math.sqrt(8 * 0.01**2 / 6 / 2)


@pytest.mark.parametrize(
    ("signs", "chance"),
    [
        ("1 1 -1 -1", stats.t.sf(_Z, 6)),
        ("1 -1 1 -1", 1 - stats.multivariate_t(shape=np.eye(2), df=6, seed=1).cdf([_Z, _Z])),
        ("-1 -1 1 1", 2 * stats.t.sf(_Z, 6)),
    ],
    ids=["common noise", "independent noise", "opposite noise"],
)
def test_membership_counts_the_noise_that_metrics_have_in_common(signs: str, chance: float) -> None:
    """b is on the front where it is better in either metric: one event, two, or two that exclude each other."""
    found = of(front(), patterned(signs))

    (probability,) = [row.probability for row in found.rows if row.config_id == "b"]
    assert probability == pytest.approx(chance, abs=0.04)  # three standard errors of 1,000 draws


def test_noise_that_raises_speed_and_latency_together_is_opposite_noise() -> None:
    axes = [{"maximize": SPEED}, {"minimize": "ttft_p50_ms"}]

    found = of(front(axes=axes), patterned("1 1 -1 -1", minimised=True))

    (probability,) = [row.probability for row in found.rows if row.config_id == "b"]
    assert probability == pytest.approx(2 * stats.t.sf(_Z, 6), abs=0.04)


def test_with_one_trial_each_the_front_is_that_of_the_values_and_says_so() -> None:
    trials = [
        trial("a", 0, output_throughput_tok_s=100.0, tok_s_per_user_p50=10.0),
        trial("b", 0, output_throughput_tok_s=90.0, tok_s_per_user_p50=20.0),
        trial("c", 0, output_throughput_tok_s=90.0, tok_s_per_user_p50=19.0),
    ]

    found = of(front(), trials)

    assert places(found) == {"a": "on", "b": "on", "c": "dominated"}
    assert {row.probability for row in found.rows} == {None}
    assert found.note == "one trial each: how sure the front is cannot be told"


def test_a_smaller_value_is_better_on_an_axis_that_is_minimised() -> None:
    trials = [
        trial("fast", 0, output_throughput_tok_s=100.0, ttft_p50_ms=50.0),
        trial("quick", 0, output_throughput_tok_s=90.0, ttft_p50_ms=20.0),
        trial("slow", 0, output_throughput_tok_s=90.0, ttft_p50_ms=21.0),
    ]

    found = of(front(axes=[{"maximize": SPEED}, {"minimize": "ttft_p50_ms"}]), trials)

    assert places(found) == {"fast": "on", "quick": "on", "slow": "dominated"}


def test_gates_filter_first_so_that_what_fails_one_keeps_nobody_off_the_front() -> None:
    trials = [
        trial("best", 0, output_throughput_tok_s=200.0, tok_s_per_user_p50=50.0, ttft_p95_ms=900.0),
        trial("good", 0, output_throughput_tok_s=100.0, tok_s_per_user_p50=20.0, ttft_p95_ms=100.0),
        trial("half", 0, output_throughput_tok_s=100.0, ttft_p95_ms=100.0),
    ]

    found = of(front(limits=["ttft_p95_ms <= 500"]), trials)

    assert [(r.config_id, r.place, r.why) for r in found.rows] == [
        ("good", "on", ""),
        ("best", "gated", "ttft_p95_ms <= 500 (is 900)"),
        ("half", "absent", "tok_s_per_user_p50 not measurable at C=1"),
    ]


def test_a_limit_holds_where_the_first_axis_looks_if_the_front_names_no_workload() -> None:
    axes = [{"maximize": SPEED, "workload": "code"}, {"maximize": USER, "workload": "code"}]
    points = {"code": 100.0, "chat": 900.0}
    trials = [
        PointValue("a", workload, ONE, 0, {SPEED: 9.0, USER: 2.0, "ttft_p95_ms": ttft_ms}, trial_id="a-0", host="h")
        for workload, ttft_ms in points.items()
    ]

    assert places(of(front(axes=axes, limits=["ttft_p95_ms <= 500"]), trials)) == {"a": "on"}
    assert places(of(front(axes=axes, limits=["ttft_p95_ms <= 50"]), trials)) == {"a": "gated"}
    assert places(of(front(axes=axes, workload="chat", limits=["ttft_p95_ms <= 500"]), trials)) == {"a": "gated"}


def test_without_any_config_that_passes_there_is_no_front() -> None:
    found = of(front(limits=["ttft_p95_ms <= 1"]), [trial("a", 0, output_throughput_tok_s=1.0, tok_s_per_user_p50=2.0)])

    assert places(found) == {"a": "gated"}
    assert found.note == "no config was measured on all axes and passed every gate"


def test_values_without_any_spread_are_sure() -> None:
    trials = [
        trial(c, r, output_throughput_tok_s=s, tok_s_per_user_p50=u)
        for (c, s, u), r in itertools.product([("a", 4.0, 2.0), ("b", 2.0, 4.0), ("c", 1.0, 1.0)], range(2))
    ]

    assert {(r.config_id, r.probability) for r in of(front(), trials).rows} == {("a", 1.0), ("b", 1.0), ("c", 0.0)}


def test_three_axes_of_many_configs_are_drawn_in_bounded_time() -> None:
    drawn = np.random.default_rng(3)
    axes = [{"maximize": SPEED}, {"maximize": USER}, {"minimize": "ttft_p50_ms"}]
    trials = []
    for config in range(300):
        base = drawn.lognormal(0.0, 0.2, 3)
        for repeat in range(2):
            speed, user, ttft = 100 * base * drawn.lognormal(0.0, 0.01, 3)
            trials.append(
                trial(str(config), repeat, output_throughput_tok_s=speed, tok_s_per_user_p50=user, ttft_p50_ms=ttft)
            )

    found = of(front(axes=axes), trials)

    on = [row for row in found.rows if row.place == "on"]
    assert 5 < len(on) < 60


def test_for_machines_a_front_has_its_axes_and_every_config() -> None:
    found = of(front(), [trial("a", 0, output_throughput_tok_s=4.0, tok_s_per_user_p50=2.0)])

    assert found.as_json() == {
        "axes": [
            {"metric": "output_throughput_tok_s at C=1", "direction": "maximize", "unit": "tok/s"},
            {"metric": "tok_s_per_user_p50 at C=1", "direction": "maximize", "unit": "tok/s"},
        ],
        "configs": [{"config_id": "a", "values": [4.0, 2.0], "place": "on", "probability": None, "why": ""}],
        "note": "one trial each: how sure the front is cannot be told",
    }
