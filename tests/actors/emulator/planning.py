"""From a command line to a memory plan, as the emulator's start does it."""

from __future__ import annotations

import shlex

from actors.emulator.flags import parse_flags
from actors.emulator.memory import MemoryPlan, plan_memory
from actors.emulator.profiles import Profile, profile_for
from actors.emulator.resolution import Settings, resolve

QWEN = "--model-path Qwen/Qwen3.5-122B-A10B --tp 4 "
DEEPSEEK = "--model-path deepseek-ai/DeepSeek-V4-Flash --tp 4 "


def chain(depth: int) -> str:
    """Flags of EAGLE speculation without a tree."""
    return (
        f" --speculative-algorithm EAGLE --speculative-num-steps {depth} --speculative-eagle-topk 1"
        f" --speculative-num-draft-tokens {depth + 1} "
    )


def plan(command_line: str) -> tuple[Settings, MemoryPlan, Profile]:
    flags, values = parse_flags(shlex.split(command_line))
    profile = profile_for(values["model_path"], flags.profile)
    settings = resolve(values, profile)
    return settings, plan_memory(settings, profile), profile
