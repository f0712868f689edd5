"""Emulated builds that are worse (or better) than the profile they are made of, by a known amount. Pure.

So a comparison of two builds can be held to a truth: `--emulator-slowdown 1.08` is 8 % slower in every step.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace

from actors.emulator.profiles import Profile
from actors.emulator.speed import DepthSpeed


@dataclass(frozen=True, slots=True)
class BuildChange:
    """`slowdown`: factor on the time of every step. `kv_share`: of the KV tokens that otherwise fit. `accept_share`: of
    the accepted drafts of a verify.
    """

    slowdown: float = 1.0
    kv_share: float = 1.0
    accept_share: float = 1.0

    def of(self, profile: Profile) -> Profile:
        """The profile as this build runs it; accept lengths never fall below 1, the token that is always there."""
        if self == UNCHANGED:
            return profile
        speed = profile.speed
        depths = tuple(
            (
                depth,
                DepthSpeed(
                    1 + (of.accept_length - 1) * self.accept_share,
                    of.base_ms * self.slowdown,
                    of.slope_ms * self.slowdown,
                ),
            )
            for depth, of in speed.depths
        )
        slower = replace(
            speed,
            depths=depths,
            prefill_floor_ms=speed.prefill_floor_ms * self.slowdown,
            prefill_ms_per_token=speed.prefill_ms_per_token * self.slowdown,
        )
        bytes_per_token = round(profile.memory.kv_bytes_per_token / self.kv_share)
        return replace(profile, speed=slower, memory=replace(profile.memory, kv_bytes_per_token=bytes_per_token))


UNCHANGED = BuildChange()


def factor(text: str) -> float:
    """A number from 0.1 to 10; argparse tells what is wrong otherwise."""
    value = float(text)
    if not 0.1 <= value <= 10:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.1 to 10")
    return value
