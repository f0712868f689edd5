"""All rules in the order in which they are asked: the first that matches a message tells.

What is more specific comes first: an illegal access, a missing kernel or compiler is told as such also when it ended
the capture of a graph or a process group.
"""

from __future__ import annotations

import re
from functools import lru_cache

from actors.diagnosis import (
    argument_rules,
    capture_rules,
    device_rules,
    host_rules,
    life_rules,
    memory_rules,
    model_rules,
    network_rules,
    toolchain_rules,
)
from actors.diagnosis.capture_rules import GRAPH_FAILED
from actors.diagnosis.life_rules import GOES_ON
from actors.diagnosis.rule import Message, Rule

# Rules of a kind, with the title of the kind.
KINDS: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("Arguments", argument_rules.RULES),
    ("Life and death", life_rules.RULES),
    ("Memory of the device", memory_rules.RULES),
    ("Compilers and libraries", toolchain_rules.RULES),
    ("GPUs and their kernels", device_rules.RULES),
    ("The host", host_rules.RULES),
    ("The model's files", model_rules.RULES),
    ("Network and ranks", network_rules.RULES),
    ("Graph capture", (*capture_rules.RULES, GRAPH_FAILED)),
    ("Healthy servers", (*life_rules.BENIGN_RULES, GOES_ON)),
)
RULES = tuple(rule for _, rules in KINDS for rule in rules if rule not in {GRAPH_FAILED, GOES_ON})
BY_NAME = {rule.name: rule for _, rules in KINDS for rule in rules}

# A line (in lower case) without any of these words matches no rule and is no exception: one search instead of a
# hundred. A test holds the rules to it.
SUSPECT = re.compile(
    r"error|exception|fail|traceback|memory|oom|kill|exit|abort|access fault|segfault|segmentation|fatal"
    r"|corrupt|invalid|terminat|illegal|watchdog"
    r"|timed? ?out|timing out|timeout|unable|cannot|can't|couldn|not (?:a |an |enough|found|support|divis|compat|find)"
    r"|no (?:space|kernel|module|such|cuda|rocm|hip|accel|safetensors|network|socket|weight|avail)|support|undefined"
    r"|require|in use|inuse|busy|too (?:small|old)|stop|graceful|interrupt|retract|capped|reduced|graph end|died|dead"
    r"|peer|connect|gid|rnic|qp to|alloc|shm|quota|nospc|enospc|what\(\)|pool|mamba|signal|sigterm|nvrm"
    r"|hsa_|aicore|aivec"
    r"|divisible|recogni|unknown|cuda_home|ninja|nvcc|nvrtc|ptxas|collect2|offline|hub|huggingface|resolution"
    r"|requesting"
    r"|repo|gated|distant|unexpected|missing|max seq len|kv cache|slots|unspecified|misaligned|assert|nccl|hccl|named"
    r"|shutting down|finished server|usage: [\w./ -]+ \[-h|compute capability|auxiliary|out of resource"
    r"|stack smashing|error no file|validation error"
    r"|consistency|could finish|could not|does not"
    r"|exceeds the max|scaling factors|default moe|destroy_process_group|profiled value|silence this|eps failed"
    r"|decode status"
    r"|free\(\)|malloc\(\)|chunk\(\)|started server|broken pipe"
)


@lru_cache(maxsize=1024)  # floods repeat themselves
def rule_for(message: Message) -> Rule | None:
    """The first rule that this message matches; the capture of a graph that failed is one, whatever it failed of."""
    whole, body = message.whole.lower(), message.body.lower()
    if GOES_ON.pattern.match(whole):
        return GOES_ON if message.is_plain and not message.is_exception else None
    texts = (body,) if body == whole else (body, whole)
    for rule in RULES:
        if any(rule.pattern.match(text) for text in texts):
            return rule
    return GRAPH_FAILED if message.captured is not None else None
