"""`specsweep explain`: why each winner of a run won, and where a profiled server's time went."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from orchestrator.decisions.kernel_share import TraceShares, share_lines, shares_json, trace_shares
from orchestrator.errors import BadInput
from orchestrator.paths import user_file
from orchestrator.rankings.explanation_text import explanation_lines
from orchestrator.rankings.run_ranking import RunRanking, only_objective
from orchestrator.rankings.shown_ranking import shown_ranking
from orchestrator.run_files.run_manifest import read_manifest, stored_scenario
from orchestrator.scenarios.night_scenario import is_night
from orchestrator.terminal import print_json


def show_explanation(
    run_dir: Path, objective: str | None, traces: Sequence[Path], *, as_json: bool, console: Console
) -> None:
    """Print it; BadInput for what is no run, or no trace."""
    if is_night(stored_scenario(run_dir, read_manifest(run_dir))):
        raise BadInput(f"{run_dir}: is a night, which picks nothing; its verdict and why: specsweep rank {run_dir}")
    result = only_objective(shown_ranking(run_dir), objective)
    shares = read_shares(traces) if traces else None
    if as_json:
        told: dict[str, Any] = result.as_json()["explain"]
        print_json({"run": result.run, "explain": told, **_profile(shares)}, console)
        return
    for part in result.parts or (result,):
        _print_part(part, console)
    if shares is not None:
        console.print()
        _print_lines(share_lines(shares), console)


def _profile(shares: TraceShares | None) -> dict[str, Any]:
    return {} if shares is None else {"profile": shares_json(shares)}


def _print_part(result: RunRanking, console: Console) -> None:
    on = f" on {result.host_class}" if result.host_class else ""
    explained = {e.objective: e for e in result.explanations}
    for ranking in result.rankings:
        console.print(Text(f"\n{ranking.objective}{on}: {ranking.reason}", style="bold"))
        if ranking.objective in explained:
            _print_lines(explanation_lines(explained[ranking.objective]), console)


def _print_lines(lines: Sequence[str], console: Console) -> None:
    for line in lines:
        console.print(Text(f"  {line}"), soft_wrap=True)


def read_shares(files: Sequence[Path]) -> TraceShares:
    """The shares over trace files of the torch profiler (.json or .json.gz) and all those in folders."""
    traces = [trace for given in files for trace in _in_folder(given)]
    shares = trace_shares(map(read_trace, traces))
    if shares is None:
        raise BadInput(
            f"--trace {files[0]}: holds neither GPU kernels nor CPU operators; is it a torch profiler trace?"
        )
    return shares


def _in_folder(given: Path) -> list[Path]:
    if not given.is_dir():
        return [given]
    found = sorted([*given.rglob("*.trace.json"), *given.rglob("*.trace.json.gz")])
    if not found:
        raise BadInput(f"--trace {given}: has no *.trace.json or *.trace.json.gz in it")
    return found


def read_trace(file: Path) -> list[dict[str, Any]]:
    """The events of a trace file; BadInput if it is none."""
    absent = "no such file; traces are on the server's host, in measure.profile.output_dir"
    with user_file(f"--trace {file}", "read", absent=absent):
        data = file.read_bytes()
    try:
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        whole = json.loads(data)
    except (ValueError, EOFError, zlib.error, gzip.BadGzipFile):
        raise BadInput(
            f"--trace {file}: is not JSON, plain or gzipped (or was cut off); give a trace of the torch profiler"
        ) from None
    events = whole.get("traceEvents") if isinstance(whole, dict) else whole
    if not isinstance(events, list):
        raise BadInput(f"--trace {file}: has no `traceEvents`; give a trace of the torch profiler")
    return [event for event in events if isinstance(event, dict)]
