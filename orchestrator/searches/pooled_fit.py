"""What the trials so far say about every config of a space, also about those that never ran. Pure.

    log y = c + f(config) + g(config) + h(host) + e
    f ~ N(0, s^2 prod_a rho_a^d_a),  g ~ N(0, nu^2),  h ~ N(0, tau^2),  e ~ N(0, sigma^2)

`d_a` is the distance of two configs on axis a. rho_a = 1: the axis does not matter, its settings pool; 0: each of its
settings stands for itself. So a setting without effect costs no repeats, and hosts need no config in common. g is what
a config has for itself, which only its own repeats tell: without it a truth that is less regular than f would count as
noise, and the fit would be surer than it may be. s, rho, nu, tau and sigma are those of the highest posterior density
(Rasmussen & Williams 2006, chapter 5), with wide priors around what a trial and a host usually vary. The fit decides
what is measured; rankings are made without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from orchestrator.objectives.aim import Observation

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

Floats = NDArray[np.float64]

# Seen at most for the parameters; the fit itself takes all.
_MOST_FOR_PARAMETERS = 250
# What a config has for itself, of which no neighbour tells, before anything is known; and how unsure that is, in logs.
_OWN, _OWN_WIDTH = 0.003, 1.6
_OWN_GRID = (0.0015, 0.003, 0.006, 0.012, 0.024, 0.048, 0.096)
_NEGLIGIBLE = 1e-3
_CONSTANT = 4.0  # variance of c: as good as unknown once the mean is taken off


@dataclass(frozen=True, slots=True)
class Spread:
    """What to expect before anything is known: relative standard deviations of one trial, and between hosts."""

    trial: float = 0.025
    hosts: float = 0.05


class Standing:
    """What is known about each config, in logs; larger is better whatever the metric's direction.

    `index`: config id -> row of `mean`, (n,), around the mean of all trials. `sigma`: of one trial. `hosts`: what each
    adds.
    """

    def __init__(self, index: Mapping[str, int], fit: _Fit, prior: _Prior) -> None:
        self.index = index
        self.mean = fit.mean
        self.sigma = fit.sigma
        self.hosts = fit.hosts
        self._weights = fit.weights
        self._prior = prior

    def covariance(self, config_ids: Sequence[str]) -> Floats:
        """Posterior covariance of these configs, (k, k)."""
        rows = np.array([self.index[c] for c in config_ids])
        ours = self._weights[rows]
        posterior: Floats = self._prior.kernel(rows, rows) - ours @ ours.T
        return posterior

    def best(self, config_ids: Sequence[str]) -> str:
        """Of these, the one with the best mean."""
        return max(config_ids, key=lambda c: (self.mean[self.index[c]], c))

    def behind(self, leader: str, config_ids: Sequence[str]) -> tuple[Floats, Floats]:
        """(how far each is behind the leader, standard deviation of that), in logs."""
        rows = np.array([self.index[c] for c in config_ids])
        lead = np.array([self.index[leader]])
        ours, theirs = self._weights[rows], self._weights[lead][0]
        variance = self._prior.variance(rows) - np.einsum("ij,ij->i", ours, ours)
        variance += self._prior.variance(lead)[0] - theirs @ theirs
        variance -= 2 * (self._prior.kernel(rows, lead)[:, 0] - ours @ theirs)
        return self.mean[lead[0]] - self.mean[rows], np.sqrt(np.maximum(variance, 1e-12))

    def loss(self, leader: str, config_ids: Sequence[str], seed: int, count: int = 2000) -> Floats:
        """Draws of how far the best of these configs is ahead of the leader, in logs: 0 where it is the best."""
        drawn = self.draws([leader, *(c for c in config_ids if c != leader)], seed, count)
        loss: Floats = drawn.max(axis=1) - drawn[:, 0]
        return loss

    def draws(self, config_ids: Sequence[str], seed: int, count: int = 2000) -> Floats:
        """(count, configs) sets of what these configs may be, in logs."""
        rows = np.array([self.index[c] for c in config_ids])
        values, vectors = np.linalg.eigh(self.covariance(config_ids))
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        normal = np.random.default_rng(seed).standard_normal((count, len(rows)))
        drawn: Floats = self.mean[rows] + normal @ root.T
        return drawn


@dataclass(frozen=True, slots=True)
class _Fit:
    """`mean` (configs,); `weights` (configs, trials): the prior covariance with the trials, whitened."""

    mean: Floats
    weights: Floats
    sigma: float
    hosts: Mapping[str, float]


class _Prior:
    """The covariance of f + g between configs, by their rows in `places`."""

    def __init__(self, places: Places, theta: _Theta) -> None:
        self._places = places
        self._theta = theta

    def kernel(self, rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
        far = distances(self._places.at, self._places.ordered, rows, columns)
        own: Floats = self._theta.own**2 * (rows[:, None] == columns[None, :])
        return self._theta.shared(far) + own

    def variance(self, rows: NDArray[np.intp]) -> Floats:
        return np.full(len(rows), self._theta.scale**2 + self._theta.own**2)


def distances(places: Floats, ordered: NDArray[np.bool_], rows: NDArray[np.intp], columns: NDArray[np.intp]) -> Floats:
    """(axes, rows, columns): steps between two settings of an ordered axis; 1 between two of any other."""
    apart: Floats = np.abs(places[:, rows, None] - places[:, None, columns])
    apart[~ordered] = apart[~ordered] > 0
    return apart


@dataclass(frozen=True, slots=True)
class Places:
    """Where the configs of a space lie: `at` (axes, configs), steps on each axis; `ordered` (axes,)."""

    config_ids: tuple[str, ...]
    at: Floats
    ordered: NDArray[np.bool_]


def pooled_fit(observations: Sequence[Observation], places: Places, *, maximize: bool, spread: Spread) -> Standing:
    """What these observations (at least one, values above 0) say about every config of the space."""
    with _blas().limit(limits=1, user_api="blas"):
        return _fitted(observations, places, maximize=maximize, spread=spread)


@cache
def _blas() -> ThreadpoolController:
    """Matrices here are small: several threads only wait for each other, for seconds on busy cores."""
    import scipy.optimize  # noqa: F401 - its BLAS has to be there to be found
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def fits_by_own(
    observations: Sequence[Observation], places: Places, *, maximize: bool, spread: Spread
) -> list[tuple[float, Standing]]:
    """The same for each of several spreads of what configs have for themselves, with the probability of each.

    While most configs have one start, little tells g from noise: the one fit of highest density says too surely that
    what was left out is like its neighbours. Here all spreads of a grid are as likely before anything is seen.
    """
    with _blas().limit(limits=1, user_api="blas"):
        seen = _Seen(observations, places, maximize=maximize)
        found = [_parameters(seen.data, spread, own) for own in _OWN_GRID]
        least = min(misfit for _, misfit in found)
        weights = [float(np.exp(least - misfit)) for _, misfit in found]
        total = sum(weights)
        return [
            (weight / total, seen.standing(_Theta.of(logs)))
            for weight, (logs, _) in zip(weights, found, strict=True)
            if weight / total > _NEGLIGIBLE
        ]


def _fitted(observations: Sequence[Observation], places: Places, *, maximize: bool, spread: Spread) -> Standing:
    seen = _Seen(observations, places, maximize=maximize)
    return seen.standing(_Theta.of(_parameters(seen.data, spread)[0]))


class _Seen:
    """Observations of configs in their places."""

    def __init__(self, observations: Sequence[Observation], places: Places, *, maximize: bool) -> None:
        self._places = places
        self._index = {config_id: i for i, config_id in enumerate(places.config_ids)}
        self._rows = np.array([self._index[o.config_id] for o in observations])
        self._hosts = {host: i for i, host in enumerate(dict.fromkeys(o.host for o in observations))}
        self._host = np.array([self._hosts[o.host] for o in observations])
        y: Floats = np.log([o.value for o in observations]) * (1.0 if maximize else -1.0)
        self._y = y - y.mean()
        far = distances(places.at, places.ordered, self._rows, self._rows)
        self.data = _Data(self._y, far, self._rows, self._host)

    def standing(self, theta: _Theta) -> Standing:
        prior = _Prior(self._places, theta)
        root = np.linalg.cholesky(self.data.covariance(theta))
        # Without the constant, which is no part of f.
        cross = prior.kernel(np.arange(len(self._index)), self._rows)
        weights = np.linalg.solve(root, cross.T).T
        white = np.linalg.solve(root, self._y)
        alpha = np.linalg.solve(root.T, white)
        adds = {name: float(theta.tau**2 * alpha[self._host == i].sum()) for name, i in self._hosts.items()}
        return Standing(self._index, _Fit(weights @ white, weights, theta.sigma, adds), prior)


@dataclass(frozen=True, slots=True)
class _Theta:
    """The parameters: standard deviations in logs, `decay` per step on each axis."""

    scale: float
    decay: Floats
    own: float
    tau: float
    sigma: float

    @classmethod
    def of(cls, logs: Floats) -> _Theta:
        e = np.exp(logs)
        return cls(float(e[0]), e[1:-3], float(e[-3]), float(e[-2]), float(e[-1]))

    def shared(self, far: Floats) -> Floats:
        """The covariance of f over these distances, (axes, rows, columns)."""
        correlated: Floats = np.exp(-np.tensordot(self.decay, far, axes=1))
        return self.scale**2 * correlated


class _Data:
    """Values in logs around their mean, distances (axes, n, n), configs and hosts by number."""

    def __init__(self, y: Floats, far: Floats, config: NDArray[np.intp], host: NDArray[np.intp]) -> None:
        self.y = y
        self._far = far
        self._config, self._host = config, host
        self._same_config: Floats = (config[:, None] == config[None, :]).astype(np.float64)
        self._same_host: Floats = (host[:, None] == host[None, :]).astype(np.float64)

    def part(self, most: int) -> _Data:
        """Evenly chosen observations, if there are more than so many."""
        n = len(self.y)
        if n <= most:
            return self
        kept = np.linspace(0, n - 1, most).astype(np.intp)
        return _Data(self.y[kept], self._far[:, kept][:, :, kept], self._config[kept], self._host[kept])

    @property
    def axes(self) -> int:
        return len(self._far)

    def covariance(self, theta: _Theta) -> Floats:
        return self._around(theta, theta.shared(self._far))

    def _around(self, theta: _Theta, shared: Floats) -> Floats:
        of_both = theta.own**2 * self._same_config + theta.tau**2 * self._same_host
        around: Floats = shared + of_both + _CONSTANT + theta.sigma**2 * np.eye(len(self.y))
        return around

    def misfit(self, logs: Floats, centre: Floats, width: Floats) -> tuple[float, Floats]:
        """(minus the log posterior of the logs of the parameters but for a constant, its gradient)."""
        theta = _Theta.of(logs)
        kernel = theta.shared(self._far)
        covariance = self._around(theta, kernel)
        root = np.linalg.cholesky(covariance)
        inverse = np.linalg.inv(covariance)
        alpha = inverse @ self.y
        pull = inverse - np.outer(alpha, alpha)
        told = 0.5 * float(self.y @ alpha) + float(np.log(np.diag(root)).sum())
        slope = np.empty_like(logs)
        bent = pull * kernel
        slope[0] = bent.sum()
        slope[1:-3] = [-0.5 * d * float((bent * far).sum()) for d, far in zip(theta.decay, self._far, strict=True)]
        slope[-3] = theta.own**2 * float((pull * self._same_config).sum())
        slope[-2] = theta.tau**2 * float((pull * self._same_host).sum())
        slope[-1] = theta.sigma**2 * float(np.trace(pull))
        off = (logs - centre) / width
        return told + 0.5 * float(off @ off), slope + off / width


def _parameters(data: _Data, spread: Spread, own: float | None = None) -> tuple[Floats, float]:
    """(logs of scale, decay of each axis, own, tau and sigma; their misfit). Where `own` is given, any is as likely."""
    from scipy.optimize import minimize

    centre = np.array([np.log(0.3), *([-4.0] * data.axes), np.log(_OWN), np.log(spread.hosts), np.log(spread.trial)])
    width = np.array([1.0, *([3.0] * data.axes), _OWN_WIDTH, 0.5, 0.2])
    part = data.part(_MOST_FOR_PARAMETERS)
    bounds = [(c - 4 * w, c + 3 * w) for c, w in zip(centre, width, strict=True)]
    begin = centre.copy()
    if own is not None:
        begin[-3] = np.log(own)
        bounds[-3] = (begin[-3], begin[-3])
    found = minimize(
        part.misfit,
        begin,
        args=(centre, width),
        jac=True,
        method="L-BFGS-B",
        bounds=bounds,
        options={"maxiter": 60, "ftol": 1e-6},
    )
    best: Floats = found.x
    of_own = 0.5 * float(((best[-3] - centre[-3]) / width[-3]) ** 2)
    return best, float(found.fun) - (0.0 if own is None else of_own)
