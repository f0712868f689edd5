"""Student's t, from scipy, which is imported when it is asked: it takes long. Pure."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def quantile_t(df: float, share: float) -> float:
    """The value below which this share of Student's t with `df` degrees of freedom lies."""
    from scipy.special import stdtrit

    return float(stdtrit(df, share))


def share_t(df: float, value: float) -> float:
    """The share of Student's t with `df` degrees of freedom that lies below a value."""
    from scipy.special import stdtr

    return float(stdtr(df, value))
