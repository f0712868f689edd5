from __future__ import annotations

import math
import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.workloads.length_draw import draw, log_parameters
from orchestrator.errors import BadInput
from orchestrator.scenarios.draw_check import KINDS, check_draw
from orchestrator.traffic import Draw

COUNT = 20_000


def drawn(spec: Draw, seed: int = 1) -> np.ndarray:
    rng = random.Random(seed)
    return np.array([draw(spec, rng) for _ in range(COUNT)])


def standard_errors(values: np.ndarray, mean: float, std: float) -> float:
    """How many standard errors a sample mean is from what it must be, by the central limit theorem."""
    return abs(float(values.mean()) - mean) / (std / math.sqrt(len(values)))


@pytest.mark.parametrize(
    ("spec", "mean", "std"),
    [
        (Draw("normal", mean=1000, std=50), 1000, 50),
        (Draw("lognormal", mean=1020, std=1700), 1020, 1700),
        (Draw("lognormal", mean=200, std=20), 200, 20),
        (Draw("exponential", mean=30), 30, 30),
        (Draw("uniform", low=100, high=700), 400, 600 / math.sqrt(12)),
        (Draw("histogram", bins=((10, 1), (20, 3))), 17.5, math.sqrt(18.75)),
        # Clipped at 0, a normal number around 0 is half of one: its mean is std / sqrt(2 pi).
        (Draw("normal", mean=0, std=10), 10 / math.sqrt(2 * math.pi), 10 * math.sqrt(0.5 - 0.5 / math.pi)),
        # Clipped at its mean m, an exponential number has the mean m (1 - 1/e) and the variance m^2 (1 - 2/e - 1/e^2).
        (Draw("exponential", mean=10, high=10), 10 * (1 - math.exp(-1)), 10 * math.sqrt(1 - 2 / math.e - math.exp(-2))),
    ],
    ids=str,
)
def test_drawn_numbers_have_the_mean_and_deviation_that_were_asked_for(spec: Draw, mean: float, std: float) -> None:
    values = drawn(spec)

    assert standard_errors(values, mean, std) < 4
    assert values.std() == pytest.approx(std, rel=0.12)


def test_the_mean_of_a_lognormal_number_is_no_mean_of_its_logarithm() -> None:
    mu, sigma = log_parameters(100, 100)

    assert mu == pytest.approx(4.605170 - 0.346574, abs=1e-6)
    assert sigma == pytest.approx(0.832555, abs=1e-6)
    assert math.exp(mu + sigma**2 / 2) == pytest.approx(100)
    assert (math.exp(sigma**2) - 1) * math.exp(2 * mu + sigma**2) == pytest.approx(100**2)


def test_draws_without_spread_are_the_mean() -> None:
    rng = random.Random(1)

    assert draw(Draw(mean=512), rng) == 512
    assert draw(Draw("normal", mean=512), rng) == 512
    assert draw(Draw("lognormal", mean=512), rng) == pytest.approx(512)
    assert draw(Draw("uniform", low=5, high=5), rng) == 5
    assert draw(Draw("histogram", bins=((7, 2),)), rng) == 7


def test_a_histogram_draws_its_values_by_their_weights_and_never_one_without_weight() -> None:
    counts = Counter(drawn(Draw("histogram", bins=((1, 2), (2, 0), (5, 6)))).tolist())

    assert set(counts) == {1.0, 5.0}
    assert abs(counts[5.0] - 15_000) < 4 * math.sqrt(COUNT * 0.75 * 0.25)


@given(
    kind=st.sampled_from(["normal", "lognormal", "exponential"]),
    mean=st.floats(1, 1e5),
    std=st.floats(0, 1e5),
    below=st.floats(0, 1),
    above=st.floats(1, 10),
    seed=st.integers(),
)
def test_draws_are_clipped_and_the_same_for_the_same_seed(
    kind: str, mean: float, std: float, below: float, above: float, seed: int
) -> None:
    spec = Draw(kind, mean=mean, std=std if kind != "exponential" else 0, low=mean * below, high=mean * above)  # type: ignore[arg-type]
    check_draw(spec, "lengths")

    values = [draw(spec, random.Random(seed)) for _ in range(2)]

    assert values[0] == values[1]
    assert mean * below <= values[0] <= mean * above


def test_every_kind_of_draw_is_drawn_from() -> None:
    assert KINDS == ("fixed", "normal", "lognormal", "exponential", "uniform", "histogram")


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        (Draw("zipf"), "kind is 'zipf'; it is one of fixed, normal, lognormal, exponential, uniform, histogram"),  # type: ignore[arg-type]
        (Draw("normal", mean=10, std=-1), "std is -1; it is a finite number of 0 or more"),
        (Draw(mean=-5), "mean is -5; it is a finite number of 0 or more"),
        (Draw(mean=math.nan), "mean is nan; it is a finite number of 0 or more"),
        (Draw("normal", mean=5, high=math.inf), "high is inf; it is a finite number of 0 or more"),
        (Draw("uniform", low=9, high=3), "low 9 is above high 3"),
        (Draw("uniform", low=9), "kind uniform needs high"),
        (Draw(mean=700, high=512), "mean 700 is above high 512, to which every draw is clipped"),
        (Draw("normal", mean=3, std=1, low=4), "mean 3 is below low 4, to which every draw is clipped"),
        (Draw(mean=10, std=3), "std 3 has no effect with kind fixed; use kind normal or lognormal"),
        (Draw("exponential"), "kind exponential needs a mean above 0"),
        (Draw("lognormal", std=3), "kind lognormal needs a mean above 0"),
        (Draw("histogram"), "kind histogram needs bins, pairs of (value, weight)"),
        (Draw("histogram", bins=((5, 0), (6, 0))), "the weights of all bins are 0; at least one is above 0"),
        (Draw("histogram", bins=((5, -1),)), "bin (5, -1): value and weight are finite numbers of 0 or more"),
        (Draw("histogram", bins=((math.inf, 1),)), "bin (inf, 1): value and weight are finite numbers of 0 or more"),
        (Draw("histogram", bins=((5, 1),), low=6), "no bin with a weight lies between low 6 and high None"),
        (Draw(mean=5, bins=((5, 1),)), "bins are for kind histogram, and kind is fixed"),
    ],
    ids=str,
)
def test_a_draw_that_cannot_be_meant_is_refused(spec: Draw, fault: str) -> None:
    with pytest.raises(BadInput) as refused:
        check_draw(spec, "workload chat: input_tokens")

    assert str(refused.value) == f"workload chat: input_tokens: {fault}"
