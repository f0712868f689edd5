"""The GPU architecture, by which SGLang accepts and chooses: from capability, product name or Ray label. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum


class Arch(StrEnum):
    """Where a server runs: CPU, or the CUDA compute capability of its GPUs."""

    CPU = "CPU"
    SM80 = "SM80"
    SM86 = "SM86"
    SM89 = "SM89"
    SM90 = "SM90"
    SM100 = "SM100"
    SM103 = "SM103"
    SM110 = "SM110"
    SM120 = "SM120"
    SM121 = "SM121"

    @property
    def major(self) -> int:
        """Major compute capability; 0 for a CPU. SGLang decides by it: its `is_sm100` is any 10.x."""
        return 0 if self is Arch.CPU else int(self[2:-1])


SM100 = frozenset(arch for arch in Arch if arch.major == 10)
SM120 = frozenset(arch for arch in Arch if arch.major == 12)
BLACKWELL = frozenset(arch for arch in Arch if arch.major >= 10)
GPUS = frozenset(arch for arch in Arch if arch is not Arch.CPU)

# Product words as NVML and Ray's accelerator labels spell them, once upper-cased and with single spaces. Order counts:
# workstation cards of several generations share names (RTX 6000, A6000), so the more telling words come first.
_PRODUCTS: tuple[tuple[str, Arch], ...] = (
    (r"\bG?B300\b", Arch.SM103),
    (r"\bG?B200\b|\bB100\b", Arch.SM100),
    (r"\bGB10\b|\bDGX SPARK\b", Arch.SM121),
    (r"\bTHOR\b", Arch.SM110),
    (r"\bRTX PRO \d{4}\b|\bRTX 50[5-9]0\b|\bRTX \d{4} BLACKWELL\b", Arch.SM120),
    (r"\bG?H[12]00\b|\bH20\b|\bH800\b", Arch.SM90),
    (r"\bL40S?\b|\bL4\b|\bL20\b|\bL2\b|\bRTX 40[5-9]0\b|\bRTX \d{4} ADA\b", Arch.SM89),
    (r"\bA100\b|\bA800\b|\bA30\b", Arch.SM80),
    (r"\bA40\b|\bA10G?\b|\bA16\b|\bA2\b|\bRTX A\d{4}\b|\bA[456]000\b|\bRTX 30[5-9]0\b", Arch.SM86),
)


_BY_NAME = {arch.value: arch for arch in Arch}


def arch_of_capability(major: int, minor: int) -> Arch | None:
    """The architecture of a CUDA compute capability; None for one that SGLang's rules do not know."""
    return _BY_NAME.get(f"SM{major}{minor}")


def arch_of_product(name: str | None) -> Arch | None:
    """The architecture that a product name or an accelerator label stands for; None if it is not known."""
    if not name:
        return None
    words = re.sub(r"[\s_\-]+", " ", name.upper())
    return next((arch for pattern, arch in _PRODUCTS if re.search(pattern, words)), None)


def arch_of_products(names: Iterable[str]) -> Arch | None:
    """The architecture that all these have; None if they differ, or one is not known."""
    found = {arch_of_product(name) for name in names}
    return found.pop() if len(found) == 1 else None
