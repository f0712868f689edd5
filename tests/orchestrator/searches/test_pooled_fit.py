"""What trials say together about a space, against planted effects."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from orchestrator.objectives.aim import Observation
from orchestrator.searches.config_places import places_of, varying
from orchestrator.searches.pooled_fit import Spread, Standing, fits_by_own, pooled_fit
from orchestrator.trial import EngineConfig, freeze_settings

DEPTHS, FRACTIONS = (1, 2, 3, 4, 5), (0.7, 0.75, 0.8, 0.85)
SPEED = {1: 123.0, 2: 180.0, 3: 234.0, 4: 277.0, 5: 282.0}
HOSTS = {"a": 0.06, "b": -0.05, "c": 0.0, "d": 0.03}


def config(depth: int, fraction: float) -> EngineConfig:
    return EngineConfig(freeze_settings({"speculative_num_steps": depth, "mem_fraction_static": fraction}))


CONFIGS = [config(depth, fraction) for depth in DEPTHS for fraction in FRACTIONS]
PLACES = places_of(CONFIGS)


def observed(seed: int, count: int, own: float = 0.0) -> list[Observation]:
    """One trial each of so many configs, on hosts in turn; the speed depends on the depth, and by `own` on the rest."""
    draw, found = random.Random(seed), []
    effects = {c.config_id: random.Random(c.config_id).gauss(0, own) for c in CONFIGS}
    for i, c in enumerate(draw.sample(CONFIGS, count)):
        host = "abcd"[i % 4]
        value = SPEED[c.speculation_depth] * math.exp(HOSTS[host] + draw.gauss(0, 0.02) + effects[c.config_id])
        found.append(Observation(c.config_id, str(i), host, value))
    return found


def fitted(seen: list[Observation]) -> Standing:
    return pooled_fit(seen, PLACES, maximize=True, spread=Spread())


def test_spreads_of_what_configs_have_for_themselves_are_weighed_by_what_repeats_show() -> None:
    """Eight configs, four starts each on one host: what all starts of a config share is its own."""
    draw = random.Random(5)
    of = PLACES.config_ids[:8]

    def spread_between(own: float) -> float:
        effects = {c: draw.gauss(0, own) for c in of}
        seen = [
            Observation(c, f"{c}-{i}", "h", math.exp(effects[c] + draw.gauss(0, 0.01))) for c in of for i in range(4)
        ]
        found = fits_by_own(seen, PLACES, maximize=True, spread=Spread())
        assert sum(weight for weight, _ in found) == pytest.approx(1.0, abs=0.01)
        return sum(weight * float(np.ptp([standing.mean[standing.index[c]] for c in of])) for weight, standing in found)

    assert spread_between(0.08) > 5 * spread_between(0.0005)


def test_settings_that_do_not_matter_pool_and_unstarted_configs_are_predicted() -> None:
    standing = fitted(observed(1, 12))
    leader = standing.best(list(standing.index))
    behind, sd = standing.behind(leader, [c.config_id for c in CONFIGS])

    for c, far, error in zip(CONFIGS, behind, sd, strict=True):
        assert abs(far - math.log(282 / SPEED[c.speculation_depth])) < max(0.05, 4 * error)
    assert sd.max() < 0.08


def test_effects_of_hosts_are_found_though_no_config_ran_on_two() -> None:
    standing = fitted(observed(2, 20))

    mean = sum(standing.hosts.values()) / 4
    assert {host: round(effect - mean, 2) for host, effect in standing.hosts.items()} == pytest.approx(
        {host: effect - 0.01 for host, effect in HOSTS.items()}, abs=0.025
    )


def test_a_slower_host_does_not_make_a_config_slower() -> None:
    seen = [Observation(c.config_id, str(i), "ab"[i % 2], 100 * (0.9 if i % 2 else 1.0)) for i, c in enumerate(CONFIGS)]

    standing = fitted(seen)
    behind, _ = standing.behind(CONFIGS[0].config_id, [c.config_id for c in CONFIGS])

    assert np.abs(behind).max() < 0.03


def test_gaps_are_as_uncertain_as_they_say() -> None:
    """About 95 % lie within two errors, in spaces with and without structure; gaps of one space move together."""
    for own, least in ((0.0, 0.9), (0.08, 0.88)):
        inside = []
        for seed in range(12):
            seen = observed(seed, 20, own)
            standing = fitted(seen)
            truth = {
                c.config_id: math.log(SPEED[c.speculation_depth]) + random.Random(c.config_id).gauss(0, own)
                for c in CONFIGS
            }
            ids = [o.config_id for o in seen]
            behind, sd = standing.behind(ids[0], ids[1:])
            true = np.array([truth[ids[0]] - truth[c] for c in ids[1:]])
            inside += list(np.abs(true - behind) < 2 * sd)
        assert np.mean(inside) >= least


def test_smaller_is_better_where_a_metric_is_minimised() -> None:
    seen = [Observation(c.config_id, "t", "a", 1000 / SPEED[c.speculation_depth]) for c in CONFIGS]

    standing = pooled_fit(seen, PLACES, maximize=False, spread=Spread())

    assert standing.best(list(standing.index)) in {c.config_id for c in CONFIGS if c.speculation_depth == 5}


def test_the_gradient_of_the_fit_is_that_of_its_misfit() -> None:
    from orchestrator.searches.pooled_fit import _Data, distances

    seen = observed(3, 10)
    rows = np.array([PLACES.config_ids.index(o.config_id) for o in seen])
    y = np.log([o.value for o in seen])
    data = _Data(y - y.mean(), distances(PLACES.at, PLACES.ordered, rows, rows), rows % 7, np.arange(10) % 4)
    theta, centre, width = np.array([-1.0, -2.0, -3.0, -4.0, -3.0, -3.5]), np.zeros(6), np.ones(6)
    _, slope = data.misfit(theta, centre, width)

    for i in range(6):
        step = np.eye(6)[i] * 1e-6
        up, down = data.misfit(theta + step, centre, width)[0], data.misfit(theta - step, centre, width)[0]
        assert slope[i] == pytest.approx((up - down) / 2e-6, rel=1e-4, abs=1e-6)


def test_draft_tokens_that_follow_from_the_depth_are_no_axis() -> None:
    made = [
        EngineConfig(freeze_settings({"max_running_requests": 8})),
        *(
            EngineConfig(
                freeze_settings(
                    {
                        "max_running_requests": 8,
                        "speculative_algorithm": "EAGLE",
                        "speculative_num_steps": depth,
                        "speculative_num_draft_tokens": depth + 1,
                        "speculative_eagle_topk": 1,
                    }
                )
            )
            for depth in (1, 3)
        ),
    ]

    assert varying(made) == {"speculative_num_steps": [0, 1, 3]}
