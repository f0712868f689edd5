"""A night as flat rows, one a series, and back. Pure. The columns of the history dataset, which SQL reads as they are.

A night without series (a gap mostly) is one row whose series columns are null.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Any

from orchestrator.nights.night import (
    Build,
    End,
    Gap,
    Measured,
    Night,
    NightHost,
    Noise,
    Pair,
    SeriesKey,
    SeriesNight,
    StartPair,
    Verdict,
    better_sign,
    unit_of,
)

SERIES_COLUMNS = (
    "series_id", "metric", "unit", "better", "kind", "config", "label", "workload", "level", "host_class", "verdict",
    "reason", "floor", "difference", "low", "high", "worse", "p", "q", "noise_sd", "noise_df", "noise_source", "finds",
    "too_noisy", "evidence", "missing", "pairs", "starts", "expected", "noise_night_sd", "noise_night_df",
    "noise_night_source",
)  # fmt: skip


def night_rows(night: Night) -> list[dict[str, Any]]:
    """JSON-able."""
    shared = {
        "night_id": night.night_id,
        "night_at": night.at,
        "scenario": night.scenario,
        "run": night.run,
        "night_verdict": None if night.verdict is None else night.verdict.value,
        "gap": None if night.gap is None else night.gap.reason,
        "reference": _build(night.reference),
        "candidate": _build(night.candidate),
        "cut": night.cut,
        "hosts": [{"name": h.name, "host_class": h.host_class, "facts": dict(h.facts)} for h in night.hosts],
    }
    if not night.series:
        return [shared | dict.fromkeys(SERIES_COLUMNS)]
    return [shared | series_row(one) for one in night.series]


def series_row(one: SeriesNight) -> dict[str, Any]:
    """The series columns of a row, as `nightly --json` has them too."""
    key, noise = one.key, one.noise
    return {
        "series_id": key.series_id,
        **asdict(key),
        "unit": unit_of(key.metric),
        "better": "max" if better_sign(key.metric) > 0 else "min",
        "kind": one.kind.value,
        "label": one.measured.label,
        "verdict": one.verdict.value,
        "reason": one.reason,
        "floor": one.floor,
        "difference": one.difference,
        "low": one.low,
        "high": one.high,
        "worse": one.worse,
        "p": one.p,
        "q": one.q,
        "noise_sd": None if noise is None else noise.sd,
        "noise_df": None if noise is None else noise.df,
        "noise_source": None if noise is None else noise.source,
        "finds": one.finds,
        "too_noisy": one.too_noisy,
        "evidence": list(one.evidence),
        "missing": one.measured.missing,
        "pairs": [asdict(pair) for pair in one.measured.pairs],
        "starts": [asdict(start) for start in one.measured.starts],
        "expected": one.expected,
        "noise_night_sd": None if noise is None else noise.night_sd,
        "noise_night_df": None if noise is None else noise.night_df,
        "noise_night_source": None if noise is None else noise.night_source,
    }


def nights_of(rows: Iterable[Mapping[str, Any]]) -> list[Night]:
    """The nights of rows, in their order. KeyError, TypeError or ValueError for rows that are none."""
    by_id: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_id.setdefault(row["night_id"], []).append(row)
    return [_night(own) for own in by_id.values()]


def _night(rows: list[Mapping[str, Any]]) -> Night:
    first = rows[0]
    datetime.fromisoformat(first["night_at"])  # ValueError: nights are sorted by it
    return Night(
        at=first["night_at"],
        scenario=first["scenario"],
        run=first["run"],
        reference=_build_of(first["reference"]),
        candidate=_build_of(first["candidate"]),
        hosts=tuple(NightHost(h["name"], h["host_class"], _facts(h["facts"])) for h in first["hosts"]),
        series=tuple(_series(row) for row in rows if row["series_id"] is not None),
        gap=None if first["gap"] is None else Gap(first["gap"]),
        cut=first.get("cut") or "",  # a night of an earlier release has no such column
    )


def _series(row: Mapping[str, Any]) -> SeriesNight:
    key = SeriesKey(row["metric"], row["config"], row["workload"], row["level"], row["host_class"])
    starts = (
        StartPair(**{**s, "reference": End(s["reference"]), "candidate": End(s["candidate"])}) for s in row["starts"]
    )
    return SeriesNight(
        measured=Measured(
            key, _text(row["label"]), tuple(map(_pair, row["pairs"])), tuple(starts), _text(row["missing"])
        ),
        verdict=Verdict(row["verdict"]),
        reason=_text(row["reason"]),
        floor=float(row["floor"]),
        **{name: _number(row[name]) for name in ("difference", "low", "high", "p", "q", "finds")},
        noise=None if row["noise_sd"] is None else _noise(row),
        too_noisy=bool(row["too_noisy"]),
        evidence=tuple(map(_text, row["evidence"])),
        expected=float(row["expected"]),
    )


def _pair(told: Mapping[str, Any]) -> Pair:
    return Pair(told["host"], told["candidate_first"], float(told["reference"]), float(told["candidate"]))


def _number(told: Any) -> float | None:
    return None if told is None else float(told)


def _text(told: Any) -> str:
    if not isinstance(told, str):
        raise TypeError(f"{told!r} is no text")
    return told


def _noise(row: Mapping[str, Any]) -> Noise:
    """Parts of the first weeks do not know the luck of nights."""
    sd, df = (float(row.get(name) or 0.0) for name in ("noise_night_sd", "noise_night_df"))
    return Noise(row["noise_sd"], row["noise_df"], row["noise_source"], sd, df, row.get("noise_night_source"))


def _build(build: Build) -> dict[str, Any]:
    return {"name": build.name, "facts": dict(build.facts)}


def _build_of(told: Mapping[str, Any]) -> Build:
    return Build(told["name"], _facts(told["facts"]))


def _facts(told: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """By name; of a mapping, or of pairs, as Arrow tells a map."""
    return tuple(sorted(dict(told).items()))
