"""What GPUs and servers did over time, for the trials that a reader asks about first. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from orchestrator.documents.report_document import Axis, Block, Cell, Column, Fold, Paragraph, Plot, Series, Table
from orchestrator.documents.report_numbers import cell, gib, rounded, seconds
from orchestrator.plural import plural
from orchestrator.reports.report_part import PartMaterial
from orchestrator.reports.telemetry_series import Bucket, TrialTelemetry
from orchestrator.reports.telemetry_series import Series as Quantity
from orchestrator.shown_text import capitalised
from orchestrator.supported_digits import plain

# Trials that are drawn; buckets of one quantity.
MOST_TRIALS = 4
MOST_POINTS = 80
MOST_ROWS = 300
# What most questions are about; the rest is folded.
TITLES = {
    "memory_used_gib": "GPU memory in use",
    "power_w": "power of a GPU",
    "sm_clock_mhz": "SM clock",
    "temperature_c": "temperature",
    "utilization_percent": "utilisation",
    "generation_tok_s": "generated tokens, as the server averages them",
    "token_usage": "KV cache in use",
    "rss_gib": "main memory of its processes",
    "cpu_cores": "CPU of its processes",
}
SHARES = ("token_usage",)
# A highest value that is so much above the mean is drawn besides.
APART = 0.05
MAIN = ("memory_used_gib", "power_w", "generation_tok_s", "running_requests", "token_usage")


def telemetry_trials(part: PartMaterial) -> tuple[str, ...]:
    """Ids of the trials to draw: the first measured start of every pick, then of other highlighted configs."""
    firsts: dict[str, str] = {}
    for trial in part.trials:
        if trial["outcome"] == "measured":
            firsts.setdefault(part.standing(trial["config_id"]), trial["trial_id"])
    order = dict.fromkeys((*part.picks, *part.highlighted))
    return tuple(firsts[config_id] for config_id in order if config_id in firsts)[:MOST_TRIALS]


def telemetry_blocks(part: PartMaterial, found: Mapping[str, TrialTelemetry]) -> list[Block]:
    """All quantities of the first trial, the main ones of the others in folds; and the peaks of all that had GPUs."""
    if not found:
        return [Paragraph("This run has no telemetry: nothing was sampled while its servers ran.", "muted")]
    named = {trial["trial_id"]: f"{part.name(trial['config_id'])} #{trial['repeat'] + 1}" for trial in part.trials}
    blocks: list[Block] = []
    for number, trial_id in enumerate(t for t in telemetry_trials(part) if t in found):
        plots = trial_plots(found[trial_id], f"{number}{part.mark}", named.get(trial_id, trial_id))
        if not plots:
            continue
        first = [plot for plot in plots if _is_main(plot)]
        rest = [plot for plot in plots if plot not in first]
        if number == 0:
            blocks += [*first, *([Fold("More of it", tuple(rest))] if rest else [])]
        elif first:
            blocks.append(Fold(named.get(trial_id, trial_id), tuple(first)))
    if any(told.gpu_memory_peak_gib is not None for told in found.values()):
        blocks.append(_peaks(found, named, part.mark))
    return blocks


def _is_main(plot: Block) -> bool:
    return isinstance(plot, Plot) and any(f"telemetry-{name}-" in plot.block_id for name in MAIN)


def trial_plots(told: TrialTelemetry, mark: str, name: str) -> list[Block]:
    """One plot for each quantity that has values."""
    by_metric: dict[str, list[Quantity]] = {}
    for one in told.series:
        if one.buckets:
            by_metric.setdefault(one.metric, []).append(one)
    return [_plot(told, metric, own, f"telemetry-{metric}-{mark}", name) for metric, own in by_metric.items()]


def _plot(told: TrialTelemetry, metric: str, own: Sequence[Quantity], block_id: str, name: str) -> Plot:
    title = TITLES.get(metric, metric.replace("_", " "))
    own = [_in_percent(one) if metric in SHARES else one for one in own]
    series = [line for one in own for line in _lines(one)]
    top = max(bucket.most for one in own for bucket in one.buckets)
    spans = tuple((w.began_s, w.ended_s, w.name) for w in told.points)
    if metric == "memory_used_gib" and told.gpu_memory_total_gib:
        total = rounded(told.gpu_memory_total_gib)
        series.append(Series("all of the GPU", (0, rounded(told.ended_s) or 0), (total, total), dashed=True))
    when = "; ".join(f"{w.name} from {seconds(w.began_s)} to {seconds(w.ended_s)}" for w in told.points[:8])
    summary = f"Highest: {plain(top)} {own[0].unit}".rstrip() + "." + (f" Points, shaded: {when}." if when else "")
    return Plot(block_id, f"{capitalised(title)}: {name}", "line", Axis("since the trial began", "s"),
                Axis(title, own[0].unit), tuple(series), summary, height_px=300, spans=spans)  # fmt: skip


def _in_percent(one: Quantity) -> Quantity:
    buckets = (b._replace(mean=100 * b.mean, most=100 * b.most) for b in one.buckets)
    return replace(one, unit="%", buckets=tuple(buckets))


def _lines(one: Quantity) -> list[Series]:
    """The means, and what was highest where that is far from them: of several GPUs, or in a long stretch."""
    apart = any(b.most - b.mean > APART * abs(b.mean) for b in one.buckets)
    means = _series(one, one.source, [b.mean for b in one.buckets])
    if not apart:
        return [means]
    return [means, _series(one, f"{one.source}, highest", [b.most for b in one.buckets], dashed=True)]


def _series(one: Quantity, name: str, values: Sequence[float], *, dashed: bool = False) -> Series:
    """None where nothing was told for a while."""
    x: list[float] = []
    y: list[float | None] = []
    last: Bucket | None = None
    for bucket, value in zip(one.buckets, values, strict=True):
        if last is not None and bucket.at_s - last.at_s > one.gap_s:
            x.append(rounded((last.at_s + bucket.at_s) / 2) or 0.0)
            y.append(None)
        x.append(rounded(bucket.at_s) or 0.0)
        y.append(rounded(value))
        last = bucket
    return Series(name, tuple(x), tuple(y), dashed=dashed)


def _peaks(found: Mapping[str, TrialTelemetry], named: Mapping[str, str], mark: str) -> Table:
    columns = (
        Column("start", numeric=False), Column("most GPU memory in use", "GiB"), Column("of", "GiB"),
        Column("observed", "s"),
    )  # fmt: skip
    rows = tuple(
        (Cell(named.get(t, t), note=t), gib(told.gpu_memory_peak_gib), gib(told.gpu_memory_total_gib),
         cell(told.ended_s))
        for t, told in list(found.items())[:MOST_ROWS]
    )  # fmt: skip
    return Table(f"peaks{mark}", f"Peaks of {plural(len(found), 'start')}", columns, rows)
