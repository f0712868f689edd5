"""Rows of a ranking for machines, as docs/ranking.md has them. Pure."""

from __future__ import annotations

from typing import Any

import orjson

from orchestrator.rankings.evidence import Spread
from orchestrator.rankings.ranking_row import Row

_PLAIN = (
    "config_id", "settings", "value", "low", "high", "unit", "gap_to_best", "gap_low", "gap_high", "p_best", "tie",
    "tie_kind", "comparable", "trials", "hosts", "out",
)  # fmt: skip

_AS_TEXT = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS


def ranking_bytes(told: dict[str, Any]) -> bytes:
    """The text of `ranking.json`; a number that is none becomes null."""
    return orjson.dumps(told, option=_AS_TEXT)


def row_json(row: Row) -> dict[str, Any]:
    """What the row itself knows; null where nothing is known."""
    return {name: getattr(row, name) for name in _PLAIN} | {
        "rank": None if row.rank_low is None else [row.rank_low, row.rank_high],
        "gates_failed": list(row.gates_failed),
        "gates_doubtful": list(row.doubtful),
        "beside": dict(row.beside),
    }


def spread_json(spread: Spread) -> dict[str, Any]:
    """What the intervals come from."""
    return {"kind": spread.kind, "noise": spread.noise, "df": spread.df, "hosts": dict(spread.hosts)}
