"""Gates such as `ttft_p95_ms <= 500 @ C=16`: parsing and testing. Pure."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from orchestrator.trial import LoadLevel

_LIMIT = re.compile(
    r"^\s*(?P<metric>[a-z][a-z0-9_]*)\s*(?P<op><=|>=|<|>)\s*(?P<bound>-?\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
    r"\s*(?:@\s*(?:C=(?P<concurrency>\d+)|(?P<rate>\d+(?:\.\d+)?)\s*req/s|trace\s*x(?P<trace>\d+(?:\.\d+)?)))?\s*$"
)


@dataclass(frozen=True, slots=True)
class Limit:
    """A bound on a metric; `level` is None for the level of the objective it belongs to."""

    metric: str
    op: str
    bound: float
    level: LoadLevel | None
    text: str

    def holds(self, value: float) -> bool:
        if self.op == "<=":
            return value <= self.bound
        if self.op == ">=":
            return value >= self.bound
        return value < self.bound if self.op == "<" else value > self.bound


def parse_limit(text: str) -> Limit:
    """ValueError with the form to write if the text is not a limit."""
    found = _LIMIT.match(text)
    if not found:
        raise ValueError(f"{text!r} is not a limit; write e.g. 'ttft_p95_ms <= 500' or 'tpot_p50_ms < 20 @ C=16'")
    if not math.isfinite(float(found["bound"])):
        raise ValueError(f"{text!r}: {found['bound']} is too large a number")
    return Limit(found["metric"], found["op"], float(found["bound"]), level_in(found), " ".join(text.split()))


def level_in(found: re.Match[str]) -> LoadLevel | None:
    """The load level in a text that has one in a group of its kind."""
    if found["concurrency"]:
        return LoadLevel("concurrency", float(found["concurrency"]))
    if found["rate"]:
        return LoadLevel("rate", float(found["rate"]))
    return LoadLevel("trace", float(found["trace"])) if found["trace"] else None
