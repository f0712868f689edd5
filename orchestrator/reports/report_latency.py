"""How latencies of single requests are distributed, as far into the tail as their number supports. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from orchestrator.documents.report_document import Axis, Block, Paragraph, Plot, Series
from orchestrator.documents.report_numbers import rounded
from orchestrator.plural import plural
from orchestrator.points.distribution import CONFIDENCE
from orchestrator.reports.report_part import PartMaterial
from orchestrator.supported_digits import shown
from orchestrator.trial import LoadLevel

Floats = npt.NDArray[np.float64]
# Per config: values in ms of each request (of each gap), by name.
Latencies = Mapping[str, Mapping[str, Floats]]
TITLES = {
    "ttft_ms": "Time to first token",
    "tpot_ms": "Time per output token",
    "e2e_ms": "End-to-end latency",
    "chunk_gap_ms": "Gap between chunks (inter-token latency)",
}
# Fewer values of a config show no distribution.
FEWEST_VALUES = 10
# Fine at the ends, where the questions are.
_SHARES = np.unique(np.concatenate([np.linspace(0, 10, 11), np.linspace(10, 90, 41), np.linspace(90, 99, 19),
                                    np.linspace(99, 99.9, 10)])) / 100  # fmt: skip


def furthest_share(values: int) -> float:
    """The highest percentile that so many values support: q with q^n = 0.05."""
    return float((1 - CONFIDENCE) ** (1 / values)) if values else 0.0


def quantile_curve(values: Floats) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(values, shares in percent) of a cumulative curve; it ends where the values say no more about the truth."""
    known = np.sort(values[~np.isnan(values)])
    last = furthest_share(len(known))
    shares = [share for share in _SHARES if 1 - last <= share <= last] or ([0.5] if len(known) else [])
    found = np.quantile(known, shares) if len(known) else np.zeros(0)
    return tuple(rounded(float(v)) or 0.0 for v in found), tuple(round(100 * float(share), 2) for share in shares)


def latency_blocks(part: PartMaterial, workload: str, level: LoadLevel, found: Latencies, number: int) -> list[Block]:
    """A plot for each latency at one load level."""
    at = f"{workload} at {level}"
    if not found:
        return [Paragraph(f"{at}: no valid point has requests that can be read.", "muted")]
    blocks: list[Block] = []
    thin: dict[str, int] = {}
    for name, title in TITLES.items():
        known = _known(part, found, name)
        enough = {c: values for c, values in known.items() if len(values) >= FEWEST_VALUES}
        if enough:
            blocks.append(_plot(part, f"{name}-{number}{part.mark}", f"{title} ({at})", enough))
        elif known:
            thin[title] = max(len(values) for values in known.values())
    if thin:
        told = f"{at}: {plural(max(thin.values()), 'value')} of a config at most, a distribution needs {FEWEST_VALUES}"
        blocks.append(Paragraph(f"{told}: {'; '.join(thin)}.", "muted"))
    return blocks


def _known(part: PartMaterial, found: Latencies, name: str) -> dict[str, Floats]:
    """What is known of each highlighted config, without gaps."""
    values = {c: found[c][name] for c in part.highlighted if name in found.get(c, {})}
    known = {c: of[~np.isnan(of)] for c, of in values.items()}
    return {c: of for c, of in known.items() if len(of)}


def _plot(part: PartMaterial, block_id: str, title: str, known: Mapping[str, Floats]) -> Plot:
    series = tuple(Series(part.name(c), *quantile_curve(values), look=part.look(c)) for c, values in known.items())
    fewest = min(len(values) for values in known.values())
    told = (
        f"{_medians(part, known)} Curves end where the number of values says no more: with "
        f"{plural(fewest, 'value')}, the fewest here, at {100 * furthest_share(fewest):.3g}%."
    )
    wide = min(float(s.x[0]) for s in series) > 0
    return Plot(block_id, title, "line", Axis("latency", "ms", log=wide), Axis("requests that are no slower", "%"),
                series, told)  # fmt: skip


def _medians(part: PartMaterial, known: Mapping[str, Floats]) -> str:
    """The lowest; of two builds, which nobody chooses from, each."""
    medians = {part.name(c): float(np.median(values)) for c, values in known.items()}
    if part.night is not None:
        return f"Medians: {', '.join(f'{name} {shown(median)} ms' for name, median in medians.items())}."
    name = min(medians, key=lambda name: (medians[name], name))
    return f"Lowest median: {name} with {shown(medians[name])} ms."
