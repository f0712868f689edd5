"""What an objective computes from metrics: `geomean(output_throughput_tok_s @ C=1 weight 2, ... @ C=4)`. Pure.

sum     = product {("+" | "-") product}
product = value {("*" | "/") value}
value   = NUMBER | "(" sum ")" | reading | FUNCTION "(" part {"," part} ")"
part    = sum ["weight" NUMBER]
reading = METRIC ["@" level] ["of" WORKLOAD]
level   = "C=" NUMBER | NUMBER "req/s" | "trace x" NUMBER
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from orchestrator.objectives.limits import level_in
from orchestrator.sglang.options import did_you_mean
from orchestrator.trial import LoadLevel

FUNCTIONS = ("geomean", "mean", "min", "max")
WEIGHTED = ("geomean", "mean")


class ExpressionFault(ValueError):
    """What is wrong with an expression, and at which character (from 1) of it."""

    def __init__(self, text: str, position: int, what: str) -> None:
        super().__init__(f"{what}, at character {position + 1} of {text!r}")


@dataclass(frozen=True, slots=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Reading:
    """A metric as it was measured; at the objective's own level and workload where it names none."""

    metric: str
    level: LoadLevel | None = None
    workload: str | None = None

    def __str__(self) -> str:
        at = f" @ {self.level}" if self.level else ""
        return f"{self.metric}{at}" + (f" of {self.workload}" if self.workload else "")


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """Two values and one of `+ - * /` between them."""

    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Fold:
    """One of FUNCTIONS over values, each with its weight."""

    function: str
    parts: tuple[tuple[float, Expression], ...]


Expression = Number | Reading | Arithmetic | Fold

# Longer ones are nothing that anybody reads, and would be walked deeper than Python goes.
_MOST_LETTERS = 4000
_MOST_PARTS = 200
_DEEPEST = 20

_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"\d+(?:\.\d+)?(?:e[+-]?\d+)?")
_WORD = re.compile(r"[a-z][a-z0-9_]*")
_WORKLOAD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LEVEL = re.compile(rf"C\s*=\s*(?P<concurrency>\d+)|trace\s*x(?P<trace>{_NUMBER.pattern})|"
                    rf"(?P<rate>{_NUMBER.pattern})\s*req/s")  # fmt: skip


def level_text(level: LoadLevel) -> str:
    """A level as an expression names it, with all digits of a rate."""
    shown = f"{level.value:g}"
    if float(shown) == level.value:
        return str(level)
    return f"{level.value!r} req/s" if level.kind == "rate" else f"trace x{level.value!r}"


@lru_cache(maxsize=1024)
def parse(text: str) -> Expression:
    """ExpressionFault with the position of what cannot be read. Whether metrics exist is not asked here."""
    if len(text) > _MOST_LETTERS:
        raise ExpressionFault(f"{text[:40]}...", 0, f"has {len(text)} letters, {_MOST_LETTERS} are the most")
    parser = _Parser(text)
    found = parser.sum()
    parser.end()
    return found


class _Parser:
    """Reads a text from left to right; a method for each rule of the grammar."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        self._parts = 0

    def sum(self) -> Expression:
        found = self._product()
        while sign := self._sign("+-"):
            found = Arithmetic(sign, found, self._product())
        return found

    def end(self) -> None:
        self._skip()
        if self._at < len(self._text):
            rest = self._text[self._at]
            raise self._fault(f"expected + - * / or the end, found '{rest}'")

    def _product(self) -> Expression:
        found = self._value()
        while sign := self._sign("*/"):
            begin, right = self._here(), self._value()
            if sign == "/" and right == Number(0.0):
                raise ExpressionFault(self._text, begin, "divides by 0")
            found = Arithmetic(sign, found, right)
        return found

    def _value(self) -> Expression:
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise self._fault(f"has more than {_MOST_PARTS} parts")
        if self._sign("("):
            found = self._inner()
            self._wanted(")")
            return found
        if number := self._match(_NUMBER):
            return Number(self._finite(number))
        begin = self._here()
        word = self._match(_WORD)
        if word is None:
            raise self._fault("expected a metric, a number, ( or a function")
        if self._sign("("):
            return self._fold(word[0], begin)
        return self._reading(word[0])

    def _inner(self) -> Expression:
        """A sum within brackets."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise self._fault(f"has more than {_DEEPEST} brackets in each other")
        found = self.sum()
        self._depth -= 1
        return found

    def _finite(self, number: re.Match[str]) -> float:
        if not math.isfinite(float(number[0])):
            raise ExpressionFault(self._text, number.start(), f"{number[0]} is too large a number")
        return float(number[0])

    def _fold(self, function: str, begin: int) -> Expression:
        if function not in FUNCTIONS:
            meant = did_you_mean(function, list(FUNCTIONS))
            raise ExpressionFault(
                self._text, begin, f"'{function}' is no function; there are {', '.join(FUNCTIONS)}{meant}"
            )
        parts = [self._part(function)]
        while self._sign(","):
            parts.append(self._part(function))
        self._wanted(")")
        return Fold(function, tuple(parts))

    def _part(self, function: str) -> tuple[float, Expression]:
        value = self._inner()
        begin = self._here()
        if not self._keyword("weight"):
            return 1.0, value
        if function not in WEIGHTED:
            raise ExpressionFault(self._text, begin, f"{function} takes no weights; {' and '.join(WEIGHTED)} do")
        number = self._match(_NUMBER)
        if number is None or not float(number[0]) > 0:
            raise self._fault("expected a number above 0 after weight")
        return self._finite(number), value

    def _reading(self, metric: str) -> Reading:
        level = self._level() if self._sign("@") else None
        workload = None
        if self._keyword("of"):
            name = self._match(_WORKLOAD)
            if name is None:
                raise self._fault("expected the name of a workload after of")
            workload = name[0]
        return Reading(metric, level, workload)

    def _level(self) -> LoadLevel:
        found = self._match(_LEVEL)
        level = level_in(found) if found else None
        if level is None:
            raise self._fault("expected a load level after @: C=4, 5 req/s or trace x1")
        return level

    def _keyword(self, word: str) -> bool:
        before = self._at
        found = self._match(_WORD)
        if found is not None and found[0] == word:
            return True
        self._at = before
        return False

    def _sign(self, signs: str) -> str:
        """One of these characters, which is passed, or an empty text."""
        self._skip()
        if self._at < len(self._text) and self._text[self._at] in signs:
            self._at += 1
            return self._text[self._at - 1]
        return ""

    def _wanted(self, sign: str) -> None:
        if not self._sign(sign):
            raise self._fault(f"expected '{sign}'")

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        self._skip()
        found = pattern.match(self._text, self._at)
        self._at = found.end() if found else self._at
        return found

    def _here(self) -> int:
        self._skip()
        return self._at

    def _skip(self) -> None:
        found = _SPACE.match(self._text, self._at)
        self._at = found.end() if found else self._at

    def _fault(self, what: str) -> ExpressionFault:
        return ExpressionFault(self._text, self._here(), what)


def readings(expression: Expression) -> Iterator[Reading]:
    """All metrics that it looks at, from left to right."""
    if isinstance(expression, Reading):
        yield expression
    elif isinstance(expression, Arithmetic):
        yield from readings(expression.left)
        yield from readings(expression.right)
    elif isinstance(expression, Fold):
        for _, part in expression.parts:
            yield from readings(part)


def evaluate(expression: Expression, look: Callable[[Reading], float | None]) -> float | None:
    """Its value; None if a metric has none, where it would divide by 0 or be no number any more, and for a geomean of
    what is not above 0.
    """
    try:
        value = _evaluated(expression, look)
    except OverflowError:
        return None
    return value if value is not None and math.isfinite(value) else None


def _evaluated(expression: Expression, look: Callable[[Reading], float | None]) -> float | None:
    if isinstance(expression, Reading):
        return look(expression)
    if isinstance(expression, Number):
        return expression.value
    if isinstance(expression, Fold):
        values = [(weight, _evaluated(part, look)) for weight, part in expression.parts]
        known = [(weight, value) for weight, value in values if value is not None]
        return _folded(expression.function, known) if len(known) == len(values) else None
    left, right = _evaluated(expression.left, look), _evaluated(expression.right, look)
    return None if left is None or right is None else _computed(expression.sign, left, right)


def _folded(function: str, values: list[tuple[float, float]]) -> float | None:
    weights = math.fsum(weight for weight, _ in values)
    if function == "mean":
        return math.fsum(weight * value for weight, value in values) / weights
    if function == "geomean":
        if min(value for _, value in values) <= 0:
            return None
        return math.exp(math.fsum(weight * math.log(value) for weight, value in values) / weights)
    return min(value for _, value in values) if function == "min" else max(value for _, value in values)


def _computed(sign: str, left: float, right: float) -> float | None:
    if sign == "+":
        return left + right
    if sign == "-":
        return left - right
    if sign == "*":
        return left * right
    return left / right if right else None
