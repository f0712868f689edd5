"""How far apart configs truly are, and what the estimates are worth knowing that. Pure: numpy only.

The best of many estimates is partly luck: where configs differ less than trials do, the first is the best far less
often than its estimate alone would say. So true means are taken as normal with a spread that is not known: every spread
is weighed by how well it explains the estimates (a hierarchical model with a uniform prior on the spread: Rubin 1981;
Gelman 2006), and draws are made from all of them. Where configs lie far apart, next to nothing changes.
"""

from __future__ import annotations

import numpy as np

from orchestrator.estimation.two_way import Floats

# Below so many configs nothing can be said of how far apart configs are.
FEWEST = 3
# More are taken as measured independently of each other, so that no matrix of all pairs is needed.
_MOST_TOGETHER = 500
_SPREADS = 40


def posterior_draws(rng: np.random.Generator, means: Floats, own: Floats, shared: Floats, scales: Floats) -> Floats:
    """(count, n) sets of true means, given estimates with covariance diag(own) + shared shared'.

    `scales` (count,) stretch the errors of each set, since their variance is an estimate as well.
    """
    values, vectors = _eigen(own, shared)
    ones = np.ones(len(means))
    turned, ones = (means, ones) if vectors is None else (vectors.T @ means, vectors.T @ ones)
    spreads, step = _grid(float(np.sqrt(np.median(values))), 2 * float(np.ptp(means)))
    total = spreads[:, None] ** 2 + values
    precision = (ones**2 / total).sum(axis=1)
    centre = (ones * turned / total).sum(axis=1) / precision
    misfit = ((turned - centre[:, None] * ones) ** 2 / total).sum(axis=1)
    weight = np.log(step) - 0.5 * (np.log(total).sum(axis=1) + np.log(precision) + misfit)
    chance = np.exp(weight - weight.max())
    which = np.sort(rng.choice(_SPREADS, size=len(scales), p=chance / chance.sum()))
    middle = centre[which] + rng.standard_normal(len(scales)) * scales / np.sqrt(precision[which])
    keep = spreads[which][:, None] ** 2 / total[which]
    noise = rng.standard_normal((len(scales), len(values))) * np.sqrt(keep * values) * scales[:, None]
    drawn = middle[:, None] * ones + keep * (turned - middle[:, None] * ones) + noise
    return drawn if vectors is None else np.asarray(drawn @ vectors.T)


def _grid(error: float, widest: float) -> tuple[Floats, Floats]:
    """Spreads from far below one error up to the widest, finer where they are small, and how much each stands for."""
    spreads = np.geomspace(0.02 * error, max(widest, error), _SPREADS)
    return spreads, np.gradient(spreads)


def _eigen(own: Floats, shared: Floats) -> tuple[Floats, Floats | None]:
    """Eigenvalues of the covariance and their vectors; of very many configs the variances alone (None: no turning)."""
    if len(own) > _MOST_TOGETHER:
        return own + (shared**2).sum(axis=1), None
    values, vectors = np.linalg.eigh(np.diag(own) + shared @ shared.T)
    return np.maximum(values, 1e-300), vectors
