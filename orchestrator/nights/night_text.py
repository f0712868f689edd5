"""A night in words: the one line for the morning, and a row for each series. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.nights.night import FEASIBLE, Kind, Night, SeriesKey, SeriesNight, Verdict
from orchestrator.nights.night_evidence import series_name, share_text
from orchestrator.nights.night_rules import NightRules
from orchestrator.plural import plural
from orchestrator.points.metric_names import START_S
from orchestrator.points.metric_title import metric_title

# Which verdicts are told first.
ORDER = (Verdict.REGRESSED, Verdict.INCONCLUSIVE, Verdict.IMPROVED, Verdict.SAME)
EXIT_CODES = {Verdict.SAME: 0, Verdict.IMPROVED: 0, Verdict.REGRESSED: 1, Verdict.INCONCLUSIVE: 3}
GAP_EXIT_CODE = 3
_TITLES = {START_S: "time to start", "kv_tokens": "KV cache", "accept_length": "accept length"}
_LOG_LINE = 120
# Less luck of a night than this is shown as 0.0 %.
_LEAST_TOLD = 0.0005


def exit_code(night: Night) -> int:
    """0 same or improved, 1 regressed, 3 inconclusive or a gap."""
    return GAP_EXIT_CODE if night.verdict is None else EXIT_CODES[night.verdict]


def plain_title(key: SeriesKey) -> str:
    """`output throughput at chat C=8`: for a reader who does not know the names of metrics."""
    if key.metric == FEASIBLE:
        return f"requests that succeed at {key.place}" if key.place else "whether it starts"
    name = _TITLES.get(key.metric) or metric_title(key.metric)
    return f"{name} at {key.place}" if key.place else name


def headline(night: Night) -> str:
    """`regressed: output_throughput_tok_s at chat C=8 of steps=3: -7.9% (-9.0 to -6.8%, 3 pairs); and 2 more`."""
    if night.gap is not None:
        return f"gap: {night.gap.reason}"
    assert night.verdict is not None
    told = strongest(night.series, night.verdict)
    cut = f" (cut short: {night.cut})" if night.cut else ""
    if night.verdict is Verdict.SAME or not told:
        return f"{night.verdict.value}: {_same(night)}{cut}"
    more = f"; and {len(told) - 1} more series" if len(told) > 1 else ""
    return f"{night.verdict.value}: {series_line(told[0])}{more}{cut}"


def _same(night: Night) -> str:
    same, noisy = len(night.of(Verdict.SAME)), sum(one.too_noisy for one in night.of(Verdict.INCONCLUSIVE))
    open_ = f"; {noisy} too noisy to tell" if noisy else ""
    return f"{same} of {len(night.series)} series as in the reference{open_}"


def strongest(series: Sequence[SeriesNight], verdict: Verdict) -> list[SeriesNight]:
    """Those of a verdict, the surest first: deaths, then KV tokens, then by p and size."""
    own = [one for one in series if one.verdict is verdict]
    if verdict is Verdict.INCONCLUSIVE:
        own = [one for one in own if not one.too_noisy] or own

    return sorted(own, key=_weight)


def _weight(one: SeriesNight) -> tuple[bool, bool, float, float]:
    p = one.p if one.p is not None else 1.0
    p = 1 - p if one.verdict is Verdict.IMPROVED else p
    return one.kind is not Kind.FEASIBLE, one.kind is not Kind.KV_TOKENS, p, -abs(one.difference or 0.0)


def series_line(one: SeriesNight) -> str:
    """What happened to one series, in a line."""
    name = f"{series_title(one)} of {one.measured.label}"
    if one.kind is Kind.FEASIBLE or one.difference is None:
        shown = f" ({_cut(one.evidence[0])})" if one.kind is Kind.FEASIBLE and one.evidence else ""
        return f"{name}: {one.reason}{shown}"
    return f"{name}: {difference_text(one)}, {pairs_text(one)}: {one.reason}"


def _cut(line: str) -> str:
    """A log line as far as one line has room for it; the whole of it is in the report."""
    return line if len(line) <= _LOG_LINE else f"{line[:_LOG_LINE]}..."


def series_title(one: SeriesNight) -> str:
    """`start` for whether it serves, `requests at chat C=16` for whether these fail, else the metric and where."""
    if one.key.metric == FEASIBLE:
        return f"requests at {one.key.place}" if one.key.place else "start"
    return series_name(one)


def difference_text(one: SeriesNight) -> str:
    """`-7.9% (-9.0% to -6.8%)`; empty without a difference."""
    if one.difference is None:
        return ""
    if one.low is None or one.high is None:
        return share_text(one.difference)
    return f"{share_text(one.difference)} ({share_text(one.low)} to {share_text(one.high)})"


def pairs_text(one: SeriesNight) -> str:
    """`3 pairs`."""
    return plural(len(one.measured.starts if one.kind is Kind.FEASIBLE else one.measured.pairs), "pair")


def in_order(series: Sequence[SeriesNight]) -> list[SeriesNight]:
    """By verdict, what decides first; within one the surest first."""
    return sorted(series, key=lambda one: (ORDER.index(one.verdict), *_weight(one)))


def sizes_text(night: Night, rules: NightRules) -> str:
    """What so many pairs can tell: the smallest worsening by kind of series; and what more pairs would not change."""
    found: dict[str, list[float]] = {}
    for one in night.series:
        if one.finds is not None and not one.too_noisy:
            found.setdefault(one.key.metric, []).append(max(one.finds, one.floor))
    told = ", ".join(f"{metric} {max(sizes):.1%}" for metric, sizes in found.items())
    smallest = f"Smallest worsening that was to be found tonight (alarm level p < {rules.alarm_p:.1e}): {told}"
    return ". ".join(text for text in (smallest if told else "", luck_text(night)) if text)


def luck_text(night: Night) -> str:
    """What of the noise is of whole nights, the most by metric; empty if that is nothing."""
    found: dict[str, float] = {}
    assumed: dict[str, None] = {}
    for one in night.series:
        if one.noise is not None and one.noise.night_sd >= _LEAST_TOLD:
            found[one.key.metric] = max(one.noise.night_sd, found.get(one.key.metric, 0.0))
            if one.noise.night_source == "assumed":
                assumed[one.key.metric] = None
    if not found:
        return ""
    learnt = ", ".join(f"{metric} {sd:.1%}" for metric, sd in found.items() if metric not in assumed)
    alike: dict[str, list[str]] = {}
    for metric in assumed:
        alike.setdefault(f"{found[metric]:.1%}", []).append(metric)
    guessed = "; ".join(f"{sd} of {', '.join(metrics)}" for sd, metrics in alike.items())
    told = "; ".join(filter(None, (learnt, f"assumed, no history yet: {guessed}" if guessed else "")))
    return f"Whole nights differ by luck, which more pairs do not take away (sd): {told}"


def noise_text(one: SeriesNight) -> str:
    """`2.1% a pair, 0.5% a night`; empty where none is known."""
    if one.noise is None:
        return ""
    luck = f", {one.noise.night_sd:.1%} a night" if one.noise.night_sd >= _LEAST_TOLD else ""
    return f"{one.noise.sd:.1%} a pair{luck}"
