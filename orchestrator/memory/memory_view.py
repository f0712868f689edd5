"""Predictions for people: a waterfall with bars for one config, one line per config for a plan."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.memory.estimate import Estimate
from orchestrator.memory.memory_advice import advice
from orchestrator.memory.memory_budget import Prediction
from orchestrator.outcome import Phase
from orchestrator.plural import plural

BAR = 40
_HEADING = 11
VERDICTS = {"fits": "fits", "does_not_fit": "DOES NOT FIT", "unsure": "unsure"}
STYLES = {"fits": "green", "does_not_fit": "bold red", "unsure": "yellow"}
_SHORT = (
    ("weights", Phase.WEIGHTS),
    ("draft", Phase.DRAFT_WEIGHTS),
    ("KV, states", Phase.KV_POOL),
    ("graphs", Phase.GRAPH_TARGET),
    ("draft graphs", Phase.GRAPH_DRAFT),
)


@dataclass(frozen=True, slots=True)
class Load:
    """A workload's requests: name and tokens of one, prompt and output."""

    name: str
    tokens: int


def print_waterfall(title: str, prediction: Prediction, loads: Sequence[Load], starts: int, console: Console) -> None:
    """Phases from top to bottom, then capacity, verdict and advice."""
    model, pools = prediction.model, prediction.pools
    console.print(escape(title), style="bold")
    table = Table(box=None, pad_edge=False)
    for name in ("", "GiB", "±", "free after", "±"):
        table.add_column(name, justify="left" if not name else "right")
    table.add_column("")
    table.add_row(
        "GPU", f"{model.total_gib:.1f}", "", f"{model.total_gib:.1f}", "", _bar(model.total_gib, 0.0, model.total_gib)
    )
    for step in prediction.steps:
        bar = _bar(step.free.gib, step.takes.gib, model.total_gib)
        table.add_row(step.name, *_cells(step.takes), *_cells(step.free), bar)
    console.print(table)
    if pools.kv_tokens:
        error = f" ± {prediction.kv_tokens_error:,}" if prediction.kv_tokens_error else ""
        parts = [f"{pools.kv_gib:.1f} GiB"]
        parts += [f"draft {pools.draft_kv_gib:.1f}"] if pools.draft_kv_gib else []
        parts += [f"windows {pools.window_gib:.1f} ({pools.window_tokens:,} tokens)"] if pools.window_gib else []
        parts += [f"states {pools.state.total_gib:.1f} ({pools.state.slots} slots)"] if pools.state else []
        console.print(f"KV cache: {pools.kv_tokens:,}{error} tokens ({', '.join(parts)})")
        console.print(f"Running requests: {pools.running}, graphs up to batch {prediction.captured_batch}")
        for load in loads:
            fit = prediction.requests_of(load.tokens)
            console.print(escape(f"  {load.name}: {fit} requests of {load.tokens} tokens fit at once"))
    _print_verdict(prediction, starts, console)


def _print_verdict(prediction: Prediction, starts: int, console: Console) -> None:
    model = prediction.model
    style = STYLES[prediction.verdict]
    console.print(f"[{style}]{VERDICTS[prediction.verdict]}[/{style}]: {escape(reason(prediction))}")
    for line in advice(prediction):
        console.print(escape(f"  {line}"))
    earlier = f"{plural(starts, 'earlier start')}: {', '.join(sorted(model.learnt))}"
    grounds = earlier if model.learnt else "no earlier start"
    console.print(
        escape(f"Rules of SGLang {model.ask.release}; mem_fraction_static {model.ask.fraction:g}; from {grounds}")
    )
    for what in model.unknown:
        console.print(escape(f"Not known: {what}"))


def reason(prediction: Prediction) -> str:
    """The check that decides, in words."""
    check = prediction.limit
    spare = f"{abs(check.spare.gib):.1f} GiB (± {check.spare.error_gib:.1f})"
    if check.spare.gib < 0:
        why = f"; {check.why}" if check.why else ""
        return f"short by {spare} in {check.phase} ({check.label}){why}"
    return f"least to spare: {spare} in {check.phase} ({check.label})"


def print_table(names: Sequence[str], rows: Iterable[tuple[Sequence[str], Prediction]], console: Console) -> None:
    """One line per config: its value of each of these settings, what each phase takes, tokens, what stays free,
    verdict.
    """
    table = Table(box=None, pad_edge=False)
    for name in names:
        table.add_column(setting_heading(name), overflow="fold")
    for name in (*(name for name, _ in _SHORT), "free", "KV tokens", "running", "verdict"):
        table.add_column(name, justify="left" if name == "verdict" else "right", overflow="fold")
    for own, prediction in rows:
        takes = {step.phase: step.takes for step in prediction.steps}
        cells = [f"{takes[phase].gib:.1f}" if phase in takes else "-" for _, phase in _SHORT]
        tokens = f"{prediction.pools.kv_tokens:,}" if prediction.pools.kv_tokens else "-"
        style = STYLES[prediction.verdict]
        free = f"{prediction.free.gib:.1f} ± {prediction.free.error_gib:.1f}"
        verdict = VERDICTS[prediction.verdict]
        if prediction.verdict != "fits":
            spare = prediction.limit.spare
            error = f" ± {spare.error_gib:.1f}" if spare.error_gib >= 0.05 else ""
            verdict += f": {prediction.limit.label} {spare.gib:+z.1f}{error}"
        table.add_row(
            *map(escape, own), *cells, free, tokens, str(prediction.pools.running), f"[{style}]{verdict}[/{style}]"
        )
    console.print(table)


def setting_heading(name: str) -> str:
    """A long name of a setting over short values: broken after underscores."""
    lines = [""]
    for part in name.replace("_", "_ ").split(" ") if "_" in name else [name]:
        if lines[-1] and len(lines[-1]) + len(part) > _HEADING:
            lines.append("")
        lines[-1] += part
    return escape("\n".join(lines))


def _cells(amount: Estimate) -> tuple[str, str]:
    return f"{amount.gib:.2f}", f"{amount.error_gib:.2f}"


def _bar(free: float, taken: float, total: float) -> str:
    """What is free, then what this phase took, to the scale of the GPU."""
    if total <= 0:
        return ""
    left = max(0, min(BAR, round(BAR * free / total)))
    here = max(0, min(BAR - left, round(BAR * taken / total)))
    return "█" * left + "▒" * here
