"""From a diagnosis to words: what it means and what to change, with the numbers of its evidence. Pure."""

from __future__ import annotations

import math
import re

from actors.diagnosis.labels import LABELS
from actors.diagnosis.memory_figures import MemoryFigures, read_memory_figures, size_in_words
from actors.diagnosis.rule import Rule, lay_open
from actors.diagnosis.rulebook import BY_NAME, rule_for
from actors.servers.log_line import clean
from orchestrator.outcome import Diagnosis, Label

_STATE_BLOCKS = re.compile(r"exceeds available Mamba cache blocks \((?P<blocks>\d+)\)")
_TOKENS = re.compile(r"Try to allocate (?P<wanted>\d+) tokens\..*?full_available_size=(?P<free>\d+)")
_WATCHDOG = re.compile(r"watchdog_timeout=(?P<limit>\d+)")
_LOWER = frozenset({Label.OOM_KV_ALLOC, Label.OOM_GRAPH_TARGET, Label.OOM_GRAPH_DRAFT, Label.RUNTIME_OOM})
# What a lowered fraction should leave beyond what was short: the next allocation is not the last one.
_MARGIN = 0.01


def rule_of(diagnosis: Diagnosis) -> Rule | None:
    """The rule that told it: by its name, else (a diagnosis that was stored) by its evidence."""
    if diagnosis.rule in BY_NAME:
        return BY_NAME[diagnosis.rule]
    found = rule_for(lay_open(clean(diagnosis.evidence).message))
    fits = found is not None and (found.label in {diagnosis.label, None} or found.decide is not None)
    return found if fits else None


def explanation(diagnosis: Diagnosis) -> str:
    """What happened, in a sentence."""
    rule = rule_of(diagnosis)
    label = LABELS[diagnosis.label].means
    decided = rule is not None and rule.label is not None and rule.label is not diagnosis.label
    return label if rule is None or not rule.means or decided else f"{label}: {rule.means}"


def advice(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What to change, best first: what the evidence's numbers tell, what its rule tells, what its label tells."""
    rule = rule_of(diagnosis)
    own = rule.advice if rule is not None and rule.label in {diagnosis.label, None} else ()
    return tuple(dict.fromkeys((*_computed(diagnosis), *own, *LABELS[diagnosis.label].advice)))


def _computed(diagnosis: Diagnosis) -> tuple[str, ...]:
    figures = read_memory_figures(diagnosis.evidence)
    return (*_others(diagnosis.evidence, figures), *_by_numbers(diagnosis, figures), *_limit_met(diagnosis))


def _limit_met(diagnosis: Diagnosis) -> tuple[str, ...]:
    """The limit of ours that ended a start, by its key in the scenario."""
    if diagnosis.label is not Label.START_TIMEOUT:
        return ()
    told = diagnosis.evidence
    if told.startswith("silent in phase"):
        return ("find out what it waits for; if it was at work where that cannot be seen, raise timeouts.silent_s",)
    if told.startswith("no sign of progress in phase"):
        return ("its log did not move: raise timeouts.phase_s if it was at work, else find out why it hangs",)
    return ()


def _others(told: str, figures: MemoryFigures) -> tuple[str, ...]:
    """Other processes that torch saw on the same GPU (in a container its own one may be among them)."""
    seen = figures.others
    if not seen or (len(seen) == 1 and "this process has" not in told):
        return ()
    listed = ", ".join(f"process {other.pid} {size_in_words(other.held_gib)}" for other in seen)
    return (f"look who else is on this GPU, and end it or leave it room: {listed}",)


def _by_numbers(diagnosis: Diagnosis, figures: MemoryFigures) -> tuple[str, ...]:
    return _by_sizes(diagnosis.label, figures) or _by_counts(diagnosis)


def _by_sizes(label: Label, figures: MemoryFigures) -> tuple[str, ...]:
    short_gib = figures.short_gib
    if label in _LOWER:
        return _lower(figures)
    if label is Label.OOM_WEIGHTS and short_gib is not None:
        return (f"{size_in_words(short_gib)} more were needed at least, before all weights were in",)
    if label is Label.KV_BUDGET and figures.least_fraction is not None:
        return (
            f"raise --mem-fraction-static above {figures.least_fraction:g}, better by 0.05 so that some tokens fit",
        )
    if label is Label.KV_BUDGET and figures.fraction is not None and figures.fraction >= 0.9:
        return (
            f"--mem-fraction-static is {figures.fraction:g} already: make the weights smaller (--quantization, "
            f"--tp-size)",
        )
    if label in {Label.GPU_OCCUPIED, Label.GPU_UNEQUAL} and figures.least_free_gib is not None:
        return (
            f"look at the GPU of this server that has least free: {size_in_words(figures.least_free_gib)}, and "
            f"{size_in_words(figures.free_gib or 0.0)} on another",
        )
    if label in {Label.KV_BUDGET, Label.STATE_POOL, Label.GPU_OCCUPIED} and short_gib is not None:
        return (f"make room for {size_in_words(short_gib)} more on this GPU",)
    if label is Label.STATE_POOL and figures.state_rest_gib is not None and figures.state_each_gib is not None:
        return _states(figures.state_rest_gib, figures.state_each_gib)
    return ()


def _states(rest_gib: float, each_gib: float) -> tuple[str, ...]:
    each = f"one request's state takes {size_in_words(each_gib)}"
    if rest_gib < each_gib:
        return (f"raise --mem-fraction-static: {size_in_words(rest_gib)} were left, and {each}",)
    return (f"{size_in_words(rest_gib)} were left and {each}: make room for some of them",)


def _by_counts(diagnosis: Diagnosis) -> tuple[str, ...]:
    told, label = diagnosis.evidence, diagnosis.label
    if blocks := _STATE_BLOCKS.search(told):
        return (f"allow at most {blocks['blocks']} sequences (--max-num-seqs; SGLang: --max-running-requests)",)
    if label is Label.RUNTIME_POOL and (tokens := _TOKENS.search(told)):
        return (
            f"{tokens['wanted']} tokens were wanted and {tokens['free']} free: lower --chunked-prefill-size or "
            f"the load",
        )
    if label is Label.WATCHDOG_HANG and (watchdog := _WATCHDOG.search(told)):
        return (f"if it was the first use of a kernel, raise --watchdog-timeout above {watchdog['limit']}",)
    return ()


def _lower(figures: MemoryFigures) -> tuple[str, ...]:
    """By how much to lower the fraction, from what was wanted, free and there."""
    short_gib, wanted_gib, free_gib = figures.short_gib, figures.wanted_gib, figures.free_gib
    if short_gib is not None:
        words = f"{size_in_words(short_gib)} more were needed"
        if figures.total_gib is None:
            return (f"lower --mem-fraction-static: {words} at least",)
        share = short_gib / figures.total_gib + _MARGIN
        return (f"lower --mem-fraction-static by at least {math.ceil(share * 100) / 100:.2f} ({words})",)
    if wanted_gib is not None and free_gib is not None:
        return (
            f"{size_in_words(free_gib)} were free and {size_in_words(wanted_gib)} wanted: not in one piece (try "
            f"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True), or another limit than the card's memory",
        )
    return ()
