"""In which order the configs of a space are first started while nothing is known: spread over it. Pure."""

from __future__ import annotations

from orchestrator.searches.pooled_fit import Floats, Places

# Beyond so many the order does not matter any more: by then the results choose.
_MOST_SPREAD = 500


def spread_order(places: Places) -> list[str]:
    """Each config as far as possible from all before it (Kennard & Stone 1969), from the middle of the space on.

    Axes count alike, however many settings they have. Ties go to the config that is written first.
    """
    import numpy as np

    count = len(places.config_ids)
    if count == 0:
        return []
    reach = places.at.max(axis=1, keepdims=True) if len(places.at) else places.at
    at = np.where(places.ordered[:, None], places.at / np.maximum(reach, 1.0), places.at)
    middle = np.where(places.ordered, 0.5, 0.0)[:, None]

    def apart(column: Floats) -> Floats:
        far = np.abs(at - column[:, None])
        far[~places.ordered] = far[~places.ordered] > 0
        total: Floats = far.sum(axis=0)
        return total

    first = int(np.argmin(apart(middle[:, 0]))) if len(places.at) else 0
    order, nearest = [first], apart(at[:, first])
    for _ in range(min(count, _MOST_SPREAD) - 1):
        nearest[order[-1]] = -1.0
        pick = int(nearest.argmax())
        order.append(pick)
        nearest = np.where(nearest < 0, nearest, np.minimum(nearest, apart(at[:, pick])))
    rest = set(range(count)) - set(order)
    return [places.config_ids[i] for i in [*order, *sorted(rest)]]
