"""Every combination of settings that SGLang's argument resolution refuses, as named rules; and what it adjusts. Pure.

A rule is found by name in docs/rules.md. Rules were read from the sources of 0.5.9, 0.5.12, 0.5.15, 0.5.19, 0.5.21 and
0.5.23. What depends on the model's own configuration is not here: SGLang says it at the start, and the diagnosis tells.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from orchestrator.sglang.attention_rules import ATTENTION_RULES
from orchestrator.sglang.block_draft_rules import BLOCK_DRAFT_RULES
from orchestrator.sglang.capacity_rules import CAPACITY_RULES
from orchestrator.sglang.gpu_arch import Arch
from orchestrator.sglang.rule_terms import Rule, Settings
from orchestrator.sglang.speculation_rules import SPECULATION_RULES
from orchestrator.sglang.state_cache_rules import STATE_CACHE_RULES

THEMES: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("Speculation", SPECULATION_RULES),
    ("DFLASH, DSPARK and UNO", BLOCK_DRAFT_RULES),
    ("Attention and KV cache", ATTENTION_RULES),
    ("State caches and caches on the host", STATE_CACHE_RULES),
    ("Parallelism, memory, scheduling, graphs and MoE", CAPACITY_RULES),
)
# Engines whose servers we start with SGLang's settings: rules are about them.
RULED_ENGINES = frozenset({"sglang", "emulator"})
RULES: tuple[Rule, ...] = tuple(rule for _, rules in THEMES for rule in rules)


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """Which rule settings break; `setting` is the one to change, `message` goes on after its name."""

    name: str
    setting: str
    message: str

    @property
    def reason(self) -> str:
        """The message with the rule's name."""
        return f"{self.message} (rule: {self.name})"


@cache
def _rules_of(version: str | None, arch: Arch | None) -> tuple[Rule, ...]:
    """The rules that can be broken by this release on this architecture."""
    return tuple(r for r in RULES if r.holds_in(version) and (r.archs is None or arch in r.archs))


def broken_rule(settings: Settings, *, version: str | None = None, arch: Arch | None = None) -> BrokenRule | None:
    """The first rule that settings (canonical names) break, or None.

    `version` None: the newest release that was read. `arch` None: not known, and rules about GPUs are not asked.
    """
    here = Arch.CPU if settings.get("device") == "cpu" else arch
    for rule in _rules_of(version, here):
        fault = rule.check(settings, here)
        if fault is not None:
            return BrokenRule(rule.name, *fault)
    return None
