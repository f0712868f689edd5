"""How configs do over load levels, and what each step of speculation brings. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orchestrator.documents.report_document import Axis, Block, Cell, Column, Fold, Paragraph, Plot, Series, Table
from orchestrator.documents.report_numbers import cell, count, rounded
from orchestrator.plural import plural
from orchestrator.points.metric_names import METRICS, values_needed
from orchestrator.points.metric_title import metric_title
from orchestrator.rankings.depth_curve import DepthCurve
from orchestrator.rankings.explanation import Explanation
from orchestrator.reports.report_part import MOST_MUTED, PartMaterial, undrawn
from orchestrator.reports.report_values import Bounded, WorkloadValues
from orchestrator.shown_text import capitalised
from orchestrator.supported_digits import plain
from orchestrator.trial import LoadLevel

# What is drawn over load, with its title. A metric without any value is left out.
CURVES = (
    ("output_throughput_tok_s", "Output throughput"),
    ("ttft_p50_ms", "Time to first token, median"),
    ("ttft_p99_ms", "Time to first token, p99"),
    ("tpot_p50_ms", "Time per output token, median"),
    ("goodput_rps", "Goodput: requests within every limit"),
    ("attainment", "Share of requests within every limit"),
)
# Levels of which the best is told in words.
MOST_TOLD = 6
_LEVEL_TITLES = {"concurrency": "requests in flight", "rate": "request rate", "trace": "speed of the trace"}
_LEVEL_UNITS = {"concurrency": "", "rate": "req/s", "trace": "x"}
_COLUMNS = ("output_throughput_tok_s", "tok_s_per_user_p50", "ttft_p50_ms", "ttft_p99_ms", "tpot_p50_ms",
            "tpot_p99_ms", "e2e_p50_ms", "e2e_p99_ms", "accept_length", "goodput_rps", "attainment",
            "gpu_power_w", "joules_per_output_token", "cost_per_million_output_tokens")  # fmt: skip


def curve_blocks(part: PartMaterial, workloads: Sequence[WorkloadValues]) -> list[Block]:
    """Plots over levels for each workload and kind of level that has two or more, and the values as a table."""
    blocks: list[Block] = []
    for number, of in enumerate(workloads):
        for kind in dict.fromkeys(level.kind for level in of.levels):
            levels = [level for level in of.levels if level.kind == kind]
            if len(levels) < 2:
                blocks.append(Paragraph(f"{of.workload} was measured at one level only ({levels[0]}): no curve."))
                continue
            drawn = [(m, title) for m, title in CURVES if any(of.at(m, level) for level in levels)]
            for metric, title in drawn:
                mark = f"curve-{number}-{kind}-{metric}{part.mark}"
                blocks.append(_curve(part, of, (metric, title), levels, mark))
        blocks += _thin(of)
        blocks.append(Fold(f"Values of {of.workload}", (_table(part, of, f"values-{number}{part.mark}"),)))
    return blocks


def _thin(of: WorkloadValues) -> list[Block]:
    """Why a percentile that one would look for is not there."""
    if of.has("ttft_p99_ms"):
        return []
    needed = values_needed("ttft_p99_ms")
    return [Paragraph(f"{of.workload}: no point has the {needed} requests that a p99 needs; none is shown.", "muted")]


def _curve(
    part: PartMaterial, of: WorkloadValues, what: tuple[str, str], levels: Sequence[LoadLevel], block_id: str
) -> Plot:
    metric, title = what
    values = {level: of.at(metric, level) for level in levels}
    known = dict.fromkeys(c for level in levels for c in values[level])
    series = []
    for config_id in part.highlighted:
        if config_id in known:
            series.append(_line(part, config_id, levels, [values[at].get(config_id) for at in levels]))
    rest = [config_id for config_id in known if config_id not in part.highlighted]
    for config_id in rest[:MOST_MUTED]:
        series.append(_line(part, config_id, levels, [values[at].get(config_id) for at in levels], muted=True))
    kind = levels[0].kind
    steps = [level.value for level in levels]
    wide = min(steps) > 0 and max(steps) / min(steps) >= 8
    return Plot(
        block_id,
        f"{title} ({of.workload})",
        "line",
        Axis(_LEVEL_TITLES[kind], _LEVEL_UNITS[kind], log=wide),
        Axis(title.split(":")[0].lower(), METRICS[metric].unit),
        tuple(series),
        _summary(part, metric, levels, [values[at] for at in levels], len(rest)),
        bands=True,
    )


def _line(
    part: PartMaterial, config_id: str, levels: Sequence[LoadLevel], found: Sequence[Bounded | None],
    *, muted: bool = False,
) -> Series:  # fmt: skip
    known = [(level, one) for level, one in zip(levels, found, strict=True) if one is not None]
    bounded = not muted and all(one.low is not None for _, one in known)
    return Series(
        name="other configs" if muted else part.name(config_id),
        x=tuple(level.value for level, _ in known),
        y=tuple(one.value for _, one in known),
        low=tuple(one.low for _, one in known) if bounded else (),
        high=tuple(one.high for _, one in known) if bounded else (),
        labels=tuple(part.name(config_id) for _ in known) if muted else (),
        group="other configs" if muted else "",
        tone="muted" if muted else "plain",
        look=part.look(config_id),
    )


def _summary(
    part: PartMaterial, metric: str, levels: Sequence[LoadLevel], found: Sequence[Mapping[str, Bounded]],
    rest: int,
) -> str:  # fmt: skip
    best_of = min if METRICS[metric].direction == "min" else max
    unit, told = METRICS[metric].unit, []
    for level, values in zip(levels, found, strict=True):
        if values and part.night is not None:  # nobody is the best of two builds
            named = (
                f"{part.name(c)} {plain(values[c].value)} {unit}".rstrip() for c in part.highlighted if c in values
            )
            told.append(f"at {level} {', '.join(named)}")
        elif values:
            # Of equals the one that stands first in the report.
            in_order = [*(c for c in part.highlighted if c in values), *values]
            best = best_of(in_order, key=lambda c: values[c].value)
            told.append(f"at {level} {part.name(best)} with {f'{plain(values[best].value)} {unit}'.rstrip()}")
    untold = len(told) - MOST_TOLD
    told = [*told[:MOST_TOLD], *([f"and so on for {untold} more levels"] if untold > 0 else [])]
    are = "is" if rest == 1 else "are"
    left = f" {plural(rest, 'other config')} {are} muted{undrawn(rest)}." if rest else ""
    return f"{'Means' if part.night else 'Best'}: {'; '.join(told)}.{left}"


def _table(part: PartMaterial, of: WorkloadValues, block_id: str) -> Table:
    """Highlighted configs at every level."""
    names = [name for name in _COLUMNS if of.has(name)]
    columns = (
        Column("config", numeric=False),
        Column("level", numeric=False),
        *(Column(metric_title(name), METRICS[name].unit, help=METRICS[name].formula) for name in names),
    )
    rows = []
    for config_id in part.highlighted:
        for level in of.levels:
            found = [of.at(name, level).get(config_id) for name in names]
            if any(one is not None for one in found):
                cells = (cell(None) if one is None else cell(one.value, one.low, one.high) for one in found)
                rows.append((Cell(part.name(config_id)), Cell(str(level), sort=level.value), *cells))
    note = "" if len(part.highlighted) == len(part.labels) else "All points are in dataset/points."
    return Table(block_id, f"{of.workload}: values at every level", columns, tuple(rows), note=note)


def depth_blocks(part: PartMaterial) -> list[Block]:
    """For each metric that an objective is about: value and accept length by depth, all else as the winner has it."""
    blocks: list[Block] = []
    seen = set()
    for number, why in enumerate(part.ranking.explanations):
        told = (why.metric, tuple(tuple(p.config_id for p in curve.points) for curve in why.depths))
        if not why.depths or told in seen:
            continue
        seen.add(told)
        blocks.append(_value_by_depth(why, f"depth-{number}{part.mark}"))
        if not any(b for b in blocks if isinstance(b, Plot) and b.block_id.startswith("accept-")):
            accept = _accept_by_depth(why, f"accept-{number}{part.mark}")
            blocks += [accept] if accept is not None else []
        table = _depth_table(part, why, f"depths-{number}{part.mark}")
        blocks.append(Fold(f"Values by depth: {metric_title(why.metric)}", (table,)))
    return blocks


def _value_by_depth(why: Explanation, block_id: str) -> Plot:
    series = tuple(
        Series(str(curve.level), tuple(p.depth for p in curve.points), tuple(rounded(p.value) for p in curve.points),
               labels=tuple(_step(p.gain_per_step) for p in curve.points))
        for curve in why.depths
    )  # fmt: skip
    told = "; ".join(f"at {c.level} {_what_depth_says(c, why)}" for c in why.depths)
    told = capitalised(told)
    name = metric_title(why.metric)
    title = f"{capitalised(name)} by speculation depth"
    return Plot(block_id, title, "line", Axis("depth (draft steps)"), Axis(name, why.unit), series,
                f"{told}.")  # fmt: skip


def _what_depth_says(curve: DepthCurve, why: Explanation) -> str:
    if curve.enough != curve.best:
        return f"more than {curve.enough} adds less than {why.near_tie:.1%}"
    if curve.best == curve.points[-1].depth:
        return f"it rises up to {curve.best}, the deepest that was measured"
    return f"it is flat after {curve.best}" if curve.is_flat_after else f"it peaks at {curve.best} and falls after it"


def _accept_by_depth(why: Explanation, block_id: str) -> Plot | None:
    series = []
    for curve in why.depths:
        known = [(p.depth, p.accept_length) for p in curve.points if p.accept_length is not None]
        if known:
            series.append(
                Series(str(curve.level), tuple(d for d, _ in known), tuple(rounded(a) for _, a in known))
            )  # fmt: skip
    if not series:
        return None
    deepest = max((d for s in series for d in s.x if isinstance(d, int)), default=0)
    most = Series("every draft accepted", (0, deepest), (1, deepest + 1), dashed=True, tone="muted")
    ends = ", ".join(f"{s.y[-1]:.3g} at {s.name}" for s in series if isinstance(s.y[-1], int | float))
    return Plot(
        block_id,
        "Accept length by speculation depth",
        "line",
        Axis("depth (draft steps)"),
        Axis("accept length", "tok"),
        (*series, most),
        f"Tokens that one verify pass yields, of depth + 1 that it could. At depth {deepest}: {ends}.",
    )


def _step(gain: float | None) -> str:
    return "" if gain is None else f"{gain:+z.1%} a step"


def _depth_table(part: PartMaterial, why: Explanation, block_id: str) -> Table:
    columns = (
        Column("level", numeric=False), Column("depth"), Column(metric_title(why.metric), why.unit),
        Column("a step brings", "%", help="How much better each step from the depth before made it."),
        Column("accept length", "tok"), Column("config", numeric=False),
    )  # fmt: skip
    rows = tuple(
        (
            Cell(str(curve.level), sort=curve.level.value),
            count(p.depth),
            cell(p.value),
            Cell("-") if p.gain_per_step is None else Cell(f"{p.gain_per_step:+z.1%}", sort=round(p.gain_per_step, 4)),
            cell(p.accept_length),
            Cell(part.name(p.config_id)),
        )
        for curve in why.depths
        for p in curve.points
    )
    return Table(block_id, f"By depth: {metric_title(why.metric)}", columns, rows)
