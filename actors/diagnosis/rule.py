"""What a rule of the diagnosis is made of, and how a message is laid open for the rules. Pure.

Patterns are matched at the start of a message, after the prefixes of log shippers, of the server and of exceptions, so
that a prompt, a line of source or an advice that merely mentions memory is no evidence.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

from orchestrator.outcome import Confidence, Label, Phase

# Nothing that a rule looks for lies further back in a message; longer ones are prompts and settings.
LONGEST_MESSAGE = 4000


class Weight(IntEnum):
    """How much a line says about the cause of a death."""

    NOTE = 1  # frightening, but healthy servers say it too
    EXCEPTION = 2  # some exception; the place in the code tells more than its text
    HINT = 3  # likely the cause, unless another line names one
    CAUSE = 4


@dataclass(frozen=True, slots=True)
class Rule:
    """A message that `pattern` matches tells `label`; None: device memory ran out, where is told by the context.

    `example` is a line that a real server wrote. `means` and `advice` stand before those of the label. `usual` is the
    phase where the log itself shows none; `fixed` the only one that the cause can have. `decide` looks at the whole
    message (wrapped lines joined), e.g. at its numbers, and may tell another label. `wraps`: its numbers may stand on
    the lines after it, which then belong to the evidence. `raised`: only as an exception; as a logger's own words it is
    a warning of something that the server goes on without. `aside`: tells only where the log shows nothing else.
    `source`: whose words they are.
    """

    name: str
    label: Label | None
    pattern: re.Pattern[str]
    example: str
    weight: Weight = Weight.CAUSE
    means: str = ""
    advice: tuple[str, ...] = ()
    usual: Phase | None = None
    fixed: Phase | None = None
    decide: Callable[[str], Label] | None = None
    confidence: Confidence | None = None
    wraps: bool = False
    raised: bool = False
    aside: bool = False
    source: str = "SGLang"


_CAPITALS = re.compile(r"\\.|[A-Z]", re.DOTALL)


def words(pattern: str) -> re.Pattern[str]:
    """A pattern of a rule, for messages in lower case: ten times as fast as one that ignores case."""
    return re.compile(_CAPITALS.sub(lambda found: found[0] if found[0][0] == "\\" else found[0].lower(), pattern))


@dataclass(frozen=True, slots=True)
class Message:
    """A message without the prefixes of exceptions. `captured`: it told of a capture that failed, of which graph."""

    body: str
    whole: str
    captured: str | None = None

    @property
    def is_plain(self) -> bool:
        """Whether it is no exception's, by its prefixes."""
        return self.body == self.whole and self.captured is None

    @property
    def is_exception(self) -> bool:
        return _EXCEPTION.match(self.whole) is not None


_EXCEPTION = re.compile(
    r"(?:[A-Za-z_][\w.]{0,120}\.)?[A-Z]\w{0,60}(?:Error|Exception|Failed|Exit|Timeout)(?::|$)|Exception: "
)
# "RuntimeError: ", "torch.OutOfMemoryError: ", chains of such, and what carries an exception in its own words.
_PREFIX = re.compile(
    r"""(?:
      (?:ERROR|CRITICAL|FATAL)\b[: -]+
    | \[(?:ERROR|CRITICAL|FATAL)\]\ +
    | \[[\w.]+:\d+\]\ +                                             # vLLM: '[core.py:708] '
    | [\w.]{0,120}(?:Error|Exception|Failure|Timeout):\ +
    | ['"](?=Rank\ )
    | [\w.]{0,120}Error\(['"]                                            # vLLM: an exception's repr
    | what\(\):\ +
    | [Rr]ank\ \d+:\ +
    | ray\.exceptions\.RayTaskError\(\w+\):\ +
    | (?:Scheduler|TokenizerManager|DetokenizerManager|DataParallelController)\ hit\ an\ exception:\ +
    | Initialization\ failed\.\ warmup\ error:\ +
    | \[PG[^\]]{0,80}\]\ +
    | Process\ group\ watchdog\ thread\ terminated\ with\ exception:\ +
    )""",
    re.VERBOSE,
)
_CAPTURE = re.compile(
    r"(?:Exception: )*(?:Capture (?P<name>[\w -]*?)(?:graph|draft extend) failed"
    r"|Piecewise CUDA Graph failed with error): *",
    re.IGNORECASE,
)


def lay_open(message: str) -> Message:
    """Take the prefixes off."""
    text, captured = message.strip()[:LONGEST_MESSAGE], None
    position = 0
    while True:
        if found := _CAPTURE.match(text, position):
            captured = (found["name"] or "piecewise") + ("draft extend" if "draft extend" in found[0] else "")
        else:
            found = _PREFIX.match(text, position)
        if found is None or found.end() == position:
            return Message(text[position:], text, captured)
        position = found.end()
