"""Least squares for values of configs measured on hosts: y = config + host + error, host effects adding up to 0. Pure.

Configs are many and hosts are few, so the configs are eliminated: with W the weights of the cells, c and h the totals
of configs and hosts, the host effects solve (diag(h) - W' diag(c)^-1 W) b = r, a system of hosts by hosts. The
covariance of the config means is then diag(1/c) + F F' (times the error variance), F of configs by hosts: nothing of
configs by configs is ever made. (Two-way layout: Searle, Linear Models, 1971, chapter 7; hosts as random: Henderson
1975.)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Below this share of the largest one, an eigenvalue is a zero: one for each part of the design that hangs together.
_ZERO = 1e-9


@dataclass(frozen=True, slots=True, eq=False)
class TwoWay:
    """A fit of K configs on B hosts. Config means are those of the average host of their part.

    `parts` numbers the groups of configs that can be compared: connected by hosts that they share, (K,). `own` (K,) and
    `shared` (K, r) give the covariance of the means in units of the error variance: diag(own) + shared shared'.
    `host_root` (B, r) is the same root for the hosts. `leverage` (n,) of each value; `df` = n - K - B + parts.
    """

    means: Floats
    host_effects: Floats
    parts: Ints
    own: Floats
    shared: Floats
    host_root: Floats
    residuals: Floats
    leverage: Floats
    rss: float
    df: int


def fit(configs: Ints, hosts: Ints, values: Floats, weights: Floats | None = None, ridge: float = 0.0) -> TwoWay:
    """The fit of values (n,) by the number of their config and of their host, each from 0 without holes.

    `weights`: 1 / variance of each value, up to a factor. `ridge`: error variance / variance of the hosts, where hosts
    are a sample of many (0: every host has an effect of its own; infinite: none has).
    """
    weight = np.ones(len(values)) if weights is None else weights
    n_configs, n_hosts = int(configs.max(initial=-1)) + 1, int(hosts.max(initial=-1)) + 1
    cells = np.zeros((n_configs, n_hosts))
    np.add.at(cells, (configs, hosts), weight)
    totals = cells.sum(axis=1)
    raw = np.bincount(configs, weight * values, n_configs) / totals
    share = cells / totals[:, None]
    system = np.diag(cells.sum(axis=0)) - cells.T @ share
    root = _root(system, ridge)
    of_hosts = np.bincount(hosts, weight * (values - raw[configs]), n_hosts)
    effects = root @ (root.T @ of_hosts)
    means = raw - share @ effects
    residuals = values - means[configs] - effects[hosts]
    shared = share @ root
    leverage = weight * (1 / totals[configs] + ((shared[configs] - root[hosts]) ** 2).sum(axis=1))
    part_of = parts(configs, hosts)
    return TwoWay(
        means=means,
        host_effects=effects,
        parts=part_of,
        own=1 / totals,
        shared=shared,
        host_root=root,
        residuals=residuals,
        leverage=leverage,
        rss=float((weight * residuals**2).sum()),
        df=len(values) - n_configs - n_hosts + int(part_of.max(initial=-1)) + 1,
    )


def _root(system: Floats, ridge: float) -> Floats:
    """R with R R' = the (pseudo-)inverse of the system, (B, rank)."""
    if not len(system) or ridge == np.inf:
        return np.zeros((len(system), 0))
    eigen, vectors = np.linalg.eigh(system)
    # A single host, or hosts that share nothing, leave rounding errors only; so it is compared with the counts.
    real = eigen > _ZERO * max(float(np.trace(system)), 1.0)
    if ridge > 0:
        # What all hosts have in common is in the means, so the effects add up to 0 here as well.
        return np.asarray(vectors[:, real] / np.sqrt(eigen[real] + ridge))
    return np.asarray(vectors[:, real] / np.sqrt(eigen[real]))


def parts(configs: Ints, hosts: Ints) -> Ints:
    """The number of the part of each config, from 0: configs of a part are connected by hosts that they share."""
    seen = np.zeros((int(configs.max(initial=-1)) + 1, int(hosts.max(initial=-1)) + 1), dtype=np.bool_)
    seen[configs, hosts] = True
    near = (seen.T.astype(np.float64) @ seen) > 0
    of_host = np.full(near.shape[0], -1, dtype=np.int64)
    count = 0
    for start in range(len(of_host)):
        if of_host[start] >= 0:
            continue
        open_hosts = [start]
        of_host[start] = count
        while open_hosts:
            found = np.flatnonzero(near[open_hosts.pop()] & (of_host < 0))
            of_host[found] = count
            open_hosts.extend(found.tolist())
        count += 1
    return of_host[seen.argmax(axis=1)] if len(seen) else np.zeros(0, dtype=np.int64)


def shrinkage(two_way: TwoWay, error_variance: float) -> float:
    """The `ridge` for hosts as a sample of many: error variance / variance between hosts, by moments; may be infinite.

    The spread of the effects less what errors alone would give them.
    """
    hosts = len(two_way.host_effects)
    by_error = error_variance * float((two_way.host_root**2).sum())
    between = (float((two_way.host_effects**2).sum()) - by_error) / max(hosts - 1, 1)
    return error_variance / between if between > 0 else np.inf
