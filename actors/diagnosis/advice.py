"""From a diagnosis to words: what it means and what to change, with the numbers of its evidence. Pure."""

from __future__ import annotations

import math
import re

from actors.diagnosis.labels import LABELS
from actors.diagnosis.rule import Rule, lay_open
from actors.diagnosis.rulebook import BY_NAME, rule_for
from actors.servers.log_line import clean
from orchestrator.outcome import Diagnosis, Label

_SIZE = re.compile(r"Tried to allocate (?P<wanted>[\d.]+) (?P<wanted_unit>[KMG])iB")
_FREE = re.compile(r"(?P<free>[\d.]+) (?P<free_unit>[KMG])iB (?:is )?free")
_TOTAL = re.compile(r"(?:total capacity of (?P<after>[\d.]+) GiB|(?P<before>[\d.]+) GiB total capacity)")
_MINIMUM = re.compile(r"Raise --mem-fraction-static above (?P<least>[\d.]*\d)")
_PRESENT = re.compile(r"mem_fraction_static=(?P<now>[\d.]*\d)")
_STATE_BLOCKS = re.compile(r"exceeds available Mamba cache blocks \((?P<blocks>\d+)\)")
_STATE_SIZE = re.compile(r"total_rest_memory=(?P<rest>[\d.]+) GB, mamba_cache_per_req=(?P<each>[\d.]+) MB")
_TOKENS = re.compile(r"Try to allocate (?P<wanted>\d+) tokens\..*?full_available_size=(?P<free>\d+)")
_OTHERS = re.compile(r"\bProcess (\d+) has (\d{1,4}\.\d+) GiB memory in use")
_WATCHDOG = re.compile(r"watchdog_timeout=(?P<limit>\d+)")
_GIB = {"K": 1 / (1 << 20), "M": 1 / 1024, "G": 1.0}
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
    return (*_others(diagnosis.evidence), *_by_numbers(diagnosis), *_limit_met(diagnosis))


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


def _others(told: str) -> tuple[str, ...]:
    """Other processes that torch saw on the same GPU (in a container its own one may be among them)."""
    seen = _OTHERS.findall(told)
    if not seen or (len(seen) == 1 and "this process has" not in told):
        return ()
    listed = ", ".join(f"process {pid} {gib} GiB" for pid, gib in seen)
    return (f"look who else is on this GPU, and end it or leave it room: {listed}",)


def _by_numbers(diagnosis: Diagnosis) -> tuple[str, ...]:
    told, label = diagnosis.evidence, diagnosis.label
    if label in _LOWER and (short := _shortage(told)):
        return (short,)
    if label is Label.OOM_WEIGHTS and (wanted := _SIZE.search(told)) and (free := _FREE.search(told)):
        return (
            f"{_gib(wanted, 'wanted') - _gib(free, 'free'):.2f} GiB more were needed at least, before all weights "
            f"were in",
        )
    if label is Label.KV_BUDGET and (least := _MINIMUM.search(told)):
        return (f"raise --mem-fraction-static above {least['least']}, better by 0.05 so that some tokens fit",)
    if label is Label.KV_BUDGET and (now := _PRESENT.search(told)) and float(now["now"]) >= 0.9:
        return (f"--mem-fraction-static is {now['now']} already: make the weights smaller (--quantization, --tp-size)",)
    if blocks := _STATE_BLOCKS.search(told):
        return (f"allow at most {blocks['blocks']} sequences (--max-num-seqs; SGLang: --max-running-requests)",)
    if label is Label.STATE_POOL and (state := _STATE_SIZE.search(told)):
        rest, each = float(state["rest"]), float(state["each"]) / 1024
        return (f"{rest:.2f} GiB were left and one request's state takes {each:.2f} GiB: make room for some of them",)
    if label is Label.RUNTIME_POOL and (tokens := _TOKENS.search(told)):
        return (
            f"{tokens['wanted']} tokens were wanted and {tokens['free']} free: lower --chunked-prefill-size or "
            f"the load",
        )
    if label is Label.WATCHDOG_HANG and (watchdog := _WATCHDOG.search(told)):
        return (f"if it was the first use of a kernel, raise --watchdog-timeout above {watchdog['limit']}",)
    return ()


def _gib(found: re.Match[str], name: str) -> float:
    return float(found[name]) * _GIB[found[f"{name}_unit"]]


def _shortage(told: str) -> str:
    """By how much to lower the fraction, from what was wanted, free and there."""
    wanted, free, total = _SIZE.search(told), _FREE.search(told), _TOTAL.search(told)
    if wanted is None or free is None:
        return ""
    short = max(_gib(wanted, "wanted") - _gib(free, "free"), 0.0)
    words = f"{short:.2f} GiB more were needed"
    if total is None:
        return f"lower --mem-fraction-static: {words} at least"
    share = short / float(total["after"] or total["before"]) + _MARGIN
    return f"lower --mem-fraction-static by at least {math.ceil(share * 100) / 100:.2f} ({words})"
