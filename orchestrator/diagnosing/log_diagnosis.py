"""Diagnosis of log files, whoever kept them: plain, gzip, zstd or standard input, of any size, one or several.

from orchestrator.diagnosing.log_diagnosis import diagnose_log

verdict = diagnose_log("server.log.gz", exit_code=-9)
print(verdict.diagnosis.label, verdict.advice)
"""

from __future__ import annotations

import codecs
import contextlib
import gzip
import io
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from actors.diagnosis.advice import advice, explanation
from actors.diagnosis.verdict import Ending, judge, read
from actors.servers.follower import LineSplitter, Segment
from actors.servers.generic_diagnosis import diagnose_any
from orchestrator.errors import BadInput
from orchestrator.outcome import Diagnosis
from orchestrator.paths import user_file
from orchestrator.slots.first_cause import RankEnd
from orchestrator.slots.first_cause import first_cause as place_of_first
from orchestrator.slots.span_log import rank_logs

STANDARD_INPUT = "-"
_BITE = 1 << 20
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


@dataclass(frozen=True, slots=True)
class LogVerdict:
    """What a log tells. `stamp`: the server's own time of the evidence, where the log has one."""

    file: str
    diagnosis: Diagnosis
    stamp: str = ""

    @property
    def explanation(self) -> str:
        return explanation(self.diagnosis)

    @property
    def advice(self) -> tuple[str, ...]:
        return advice(self.diagnosis)

    def as_json(self) -> dict[str, Any]:
        """The documented form for machines (docs/diagnosis.md)."""
        found = self.diagnosis
        return {
            "file": self.file,
            "label": str(found.label),
            "phase": str(found.phase),
            "evidence": found.evidence,
            "line": found.line_number,
            "confidence": str(found.confidence),
            "rule": found.rule,
            "infeasible": found.infeasible,
            "explanation": self.explanation,
            "advice": list(self.advice),
        }


def diagnose_log(file: str | Path, *, exit_code: int | None = None, engine: str = "sglang") -> LogVerdict:
    """The verdict on one log; without an exit code the server may be alive (`ready`, `benign`).

    `file` may be `-` for standard input. `engine` "command": of a server that is not SGLang. If the log is of several
    ranks, the verdict is that on the one that tells why. BadInput if the file cannot be read.
    """
    name = "standard input" if str(file) == STANDARD_INPUT else str(file)
    with _opened(file, name) as stream:
        segments = _segments(stream, name)
        if engine == "command":
            return LogVerdict(name, diagnose_any(segments, exit_code=exit_code))
        ranks = [_rank_verdict(name, of, part, exit_code) for of, part in rank_logs(segments)]
    return first_cause(ranks or [_rank_verdict(name, "", (), exit_code)])


def _rank_verdict(name: str, of: str, segments: Iterable[Segment], exit_code: int | None) -> LogVerdict:
    """On a log, or on the part of it that is of one rank."""
    reading = read(segments)
    found = reading.found or reading.note
    stamp = found.stamp if found is not None else ""
    told = judge(reading, Ending(exit_code=exit_code, is_dead=exit_code is not None))
    return LogVerdict(f"{name} ({of})" if of else name, told, stamp)


def first_cause(verdicts: Sequence[LogVerdict]) -> LogVerdict:
    """Of the logs of one start (its ranks, its hosts) the one that tells why it died.

    By the servers' own clocks, if it comes to that.
    """
    return verdicts[place_of_first([_rank_end(verdict) for verdict in verdicts])]


def _rank_end(verdict: LogVerdict) -> RankEnd:
    """A log whose clock has no day cannot be compared with others; a log alone does not tell that it is dead."""
    has_day = len(verdict.stamp) >= len("2026-01-01 00:00:00")
    return RankEnd(verdict.diagnosis, (verdict.stamp,) if has_day else ())


@contextlib.contextmanager
def _opened(file: str | Path, name: str) -> Iterator[IO[bytes]]:
    """The file's bytes, unpacked by what they are, whatever its name says."""
    with contextlib.ExitStack() as stack:
        with user_file(name, "read"):
            raw: Any = sys.stdin.buffer if str(file) == STANDARD_INPUT else stack.enter_context(Path(file).open("rb"))
            raw = raw if hasattr(raw, "peek") else io.BufferedReader(raw)
            head = raw.peek(4)[:4]
        if head[:2] == b"\x1f\x8b":
            unpacked: Any = stack.enter_context(gzip.open(raw))
            yield unpacked
        elif head == b"\x28\xb5\x2f\xfd":
            import zstandard

            yield stack.enter_context(zstandard.ZstdDecompressor().stream_reader(raw, read_across_frames=True))
        elif head[:2] in _UTF_16:
            recoded: Any = _Utf16(raw)
            yield recoded
        else:
            raw.read(len(codecs.BOM_UTF8) if head.startswith(codecs.BOM_UTF8) else 0)
            yield raw


class _Utf16:
    """A log that a Windows shell redirected, as UTF-8."""

    def __init__(self, raw: IO[bytes]) -> None:
        self._raw = raw
        self._decoder = codecs.getincrementaldecoder("utf-16")(errors="replace")

    def read(self, size: int) -> bytes:
        data = self._raw.read(size)
        return self._decoder.decode(data, final=not data).encode()


def _segments(stream: IO[bytes], name: str) -> Iterator[Segment]:
    splitter = LineSplitter(skim=True)
    while data := _bite(stream, name):
        yield from splitter.feed(data)
    yield from splitter.flush()


def _bite(stream: IO[bytes], name: str) -> bytes:
    """The next part; a packed file that is cut off or damaged is bad input, since what is missing is its end."""
    try:
        return stream.read(_BITE)
    except (OSError, EOFError) as error:
        raise BadInput(f"{name}: cannot be unpacked, it is cut off or damaged ({error})") from None
    except Exception as error:
        if type(error).__name__ != "ZstdError":
            raise
        raise BadInput(f"{name}: cannot be unpacked, it is damaged ({error})") from None
