"""A space of speculation x memory as in the first field campaign, with its truth from the emulator's own models."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from functools import cache

from actors.emulator.batching import BatchLimits
from actors.emulator.flags import parse_flags
from actors.emulator.memory import MemoryPlan, plan_memory
from actors.emulator.profiles import Profile, profile_for
from actors.emulator.resolution import Settings, resolve
from actors.emulator.simulation import ClosedLoop, simulate
from actors.emulator.startup import capture_seconds
from orchestrator.trial import EngineConfig, freeze_settings

DEPTHS = (0, 1, 2, 3, 4, 5, 10)
RUNNING = (16, 32, 128, 512)
FRACTIONS = (0.75, 0.8, 0.85, 0.9)
LEVELS = (1, 16, 32)
# A minute of window after half a minute of warm-up, as the shipped scenario advises for real hosts.
POINT_S = 90.0


@dataclass(frozen=True, slots=True)
class Truth:
    """What a config really is: tokens/s by level, None where its server dies; seconds of its start or its death."""

    speed: dict[int, float] | None
    start_s: float


def space() -> list[EngineConfig]:
    """7 x 4 x 4 configs; the captured batch is the running requests', as SGLang makes it."""
    return [
        EngineConfig(freeze_settings(_settings(depth, running, fraction)))
        for depth in DEPTHS
        for running in RUNNING
        for fraction in FRACTIONS
    ]


def _settings(depth: int, running: int, fraction: float) -> dict[str, object]:
    settings: dict[str, object] = {"max_running_requests": running, "mem_fraction_static": fraction}
    if depth:
        settings |= {
            "speculative_algorithm": "EAGLE",
            "speculative_num_steps": depth,
            "speculative_eagle_topk": 1,
            "speculative_num_draft_tokens": depth + 1,
        }
    return settings


@cache
def truth_of(config: EngineConfig) -> Truth:
    """By the memory and the speed model of Qwen3.5-122B-A10B on four RTX PRO 6000."""
    given = " ".join(f"--{name.replace('_', '-')} {value}" for name, value in config.settings)
    flags, values = parse_flags(shlex.split(f"--model-path Qwen/Qwen3.5-122B-A10B --tp 4 {given}"))
    profile = profile_for(values["model_path"], flags.profile)
    settings = resolve(values, profile)
    plan = plan_memory(settings, profile)
    start_s = _start_s(plan, profile)
    if plan.death is not None:
        return Truth(None, start_s)
    return Truth({level: _speed(settings, plan, profile, level) for level in LEVELS}, start_s)


def _start_s(plan: MemoryPlan, profile: Profile) -> float:
    times = profile.times
    loaded = times.init_s + times.load_s + (times.draft_load_s if plan.draft_gib else 0.0)
    if plan.death is not None and plan.death.phase != "graph":
        return loaded
    captured = sum(capture_seconds(graph, profile) for graph in plan.graphs)
    return loaded + times.kv_s + captured + (times.warmup_s if plan.death is None else 0.0)


def _speed(settings: Settings, plan: MemoryPlan, profile: Profile, level: int) -> float:
    # More running requests than the load has, and more KV cache than they fill, change nothing.
    needed = max(LEVELS)
    return _simulated(
        profile,
        BatchLimits(
            max_running=min(plan.max_running, needed),
            kv_tokens=min(plan.kv_tokens, needed * 1024),
            chunk_tokens=settings.chunk_tokens,
            captured_batch=min(plan.captured_batch, needed),
            num_steps=settings.num_steps,
            draft_tokens=settings.draft_tokens,
        ),
        level,
    )


@cache
def _simulated(profile: Profile, limits: BatchLimits, level: int) -> float:
    loop = ClosedLoop(level, level * 8, prompt_tokens=128, output_tokens=128)
    return simulate(profile.speed, limits, loop).output_tokens_per_s
