"""docs/recovery.md, made from the tables of the policy (`make docs`)."""

from __future__ import annotations

from orchestrator.outcome import Label
from orchestrator.recoveries import failed_lineage, recovery_moves
from orchestrator.recoveries.recovery import MOST_STARTS
from orchestrator.recoveries.recovery_moves import Step
from orchestrator.recoveries.remedies import REMEDIES, Kind, Remedy

_KINDS = {
    Kind.CLEAN: "the same once more on this slot, after its own clean-up and with another port",
    Kind.ELSEWHERE: "the same once more, on another host if there is one, else on another slot",
    Kind.ALONE: "the same once more, while no other server of the run is up",
    Kind.NOTHING: "nothing",
}

_HEAD = """\
# Recovery

A server that dies for want of memory is not the end of its config. Where it is a matter of memory settings, Specsweep
changes them and starts again at once, on the same slot; what then serves is measured like any other config and says in
the ranking what was asked and what served. This page is generated (`make docs`).

```yaml
recovery:
  mode: apply        # suggest: the change is told, not made; off: neither
  tries: 3           # repairs of one config
  may_change: [mem_fraction_static, cuda_graph_max_bs_decode]    # default: all settings listed below
```

## What is done, label by label

Moves are tried from left to right; the first that has something to change, within its bounds and the rules of the
SGLang release, is made (`+` joins steps that go together; the second table says what each step does). Where they are
taken *in turn*, the second death by the same label begins with the second move. How a config speculates (every
`speculative_*` setting) is never changed, and nothing that decides what is computed (model, quantization, parallelism,
backends). Of each move, settings that the sweep does not vary are changed first; those that it varies only where
nothing else of that move is left.

"""

_TAIL = """
## How steps are computed

Numbers come from the log line that shows the death, the phases of the start and the arguments that SGLang resolved:

* **Lower fraction**: GiB that the failed allocation lacked (`Tried to allocate` less `is free`) plus a margin of
  {margin:.0%} of the card, at least {least_margin:g} GiB, as a share of what was free before the weights; rounded down
  to 0.01. Without numbers {graphs:g} for graphs, {kv:g} for the KV cache's own allocation, {runtime:g} while serving.
  A refused allocation that was smaller than what was free tells no shortage: memory was in pieces, or limited.
* **Raise fraction**: {above:g} above the minimum that SGLang's own message names, else {rise:g}.
* **Raise fraction for states**: SGLang's message tells what is left for states (`total_rest_memory`, negative where the
  weights alone are too much) and what one request takes. Twice the states of all requests of the load (the KV cache
  takes as much again) less what is left, and the margin.
* **Fewer requests for the pool**: free after the weights less what the fraction sets aside is at least {pool:g} GiB,
  and still not one token fitted. Then caches of each running request took it (states of hybrid models, one per draft
  token), and a larger fraction would only take from the graphs.
* **Capture cap**: the largest load level, since larger batches never run. Only where that is not enough, the largest
  batch whose scratch fits: free GiB at the begin of the capture over the scratch that it wanted, in proportion.
* **Squeeze**: a fraction that is too small for the KV cache is known, and one (with as many running requests) that
  leaves too little for graphs. Between them the middle is tried; once they are less than 0.02 apart, requests, captured
  batches and context shrink together. Where the weights alone need the fraction, only captured batches do.
* **Context**: never below prompt + answer of the longest request, a tenth more, and 256 tokens; not touched where
  prompts come from a file.
* Where `mem_fraction_static` was left open, the value that SGLang resolved counts; {open:g} if no line tells it.

## Bounds

* Fractions stay within [{low:g}, {high:g}]. After `recovery.tries` repairs a config of the sweep is infeasible.
* No settings that died are started again: not in another repeat, not from another config, not after `--resume`.
* A repair that comes to a config of the sweep (or to another repair) is not started twice: that one stands for both.
* Once one start of a config was measured, a later death of the same config changes nothing: the settings can work.
* Repeats of a repaired config use what served; they do not die first.
* What broke without being the config's fault is started unchanged at most {starts} times.

## What is left in the run

* `dataset/trials`: a repaired config has rows of its own; `repaired_from` is the id of the config that died before it,
  `repair_json` has the asked config, every setting that differs from it, and why. Both are null for what was asked,
  and absent in runs of earlier releases.
* `journal.jsonl`: `recovery` in the `trial_ended` line of a server that died, with the numbers that were read. A
  resumed run goes on with it.
* The ranking: [ranking](ranking.md).
"""


def recovery_page() -> str:
    """docs/recovery.md."""
    rows = [f"| `{label}` | {_what(remedy)} |" for label, remedy in REMEDIES.items()]
    repairs = [row for row, label in zip(rows, REMEDIES, strict=True) if REMEDIES[label].kind is Kind.REPAIR]
    others = [row for row, label in zip(rows, REMEDIES, strict=True) if REMEDIES[label].kind is not Kind.REPAIR]
    head = "| label | moves |\n|---|---|\n"
    told = (
        _HEAD + head + "\n".join(repairs) + "\n\n" + _steps() + "\n\nNothing else is a matter of memory settings:\n\n"
    )
    return told + head.replace("moves", "what is done") + "\n".join(others) + "\n" + _TAIL.format(**_numbers())


def _what(remedy: Remedy) -> str:
    if remedy.kind is not Kind.REPAIR:
        return _KINDS[remedy.kind]
    listed = ", ".join(" + ".join(map(_name, move.steps)) for move in remedy.moves)
    return f"in turn: {listed}" if remedy.in_turn else listed


def _name(step: Step) -> str:
    return step.__name__.replace("_", " ")


def _steps() -> str:
    """A row for each step that some label uses."""
    used = dict.fromkeys(step for remedy in REMEDIES.values() for move in remedy.moves for step in move.steps)
    rows = [f"| {_name(step)} | {(step.__doc__ or '').strip()} |" for step in used]
    return "| step | what it does |\n|---|---|\n" + "\n".join(rows)


def _numbers() -> dict[str, float]:
    return {
        "margin": failed_lineage.MARGIN_SHARE,
        "least_margin": failed_lineage.LEAST_MARGIN_GIB,
        "open": failed_lineage.OPEN_FRACTION,
        "graphs": recovery_moves.LOWER_STEP_OF_GRAPHS,
        "kv": recovery_moves.LOWER_STEP[Label.OOM_KV_ALLOC],
        "runtime": recovery_moves.LOWER_STEP[Label.RUNTIME_OOM],
        "above": recovery_moves.RAISE_ABOVE_LEAST,
        "rise": recovery_moves.RAISE_STEP,
        "pool": recovery_moves.POOL_WAS_THERE_GIB,
        "low": recovery_moves.LEAST_FRACTION,
        "high": recovery_moves.MOST_FRACTION,
        "starts": MOST_STARTS,
    }
