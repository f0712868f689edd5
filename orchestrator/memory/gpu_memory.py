"""GiB of known GPUs, as the driver counts them (`memory.total`), by product name or Ray label. Pure.

Products that are sold with several sizes are left out unless the name tells the size.
"""

from __future__ import annotations

import re

_MIB: tuple[tuple[str, int], ...] = (
    (r"\bRTX PRO 6000\b", 97887),
    (r"\bB200\b", 183359),
    (r"\bH200\b", 143771),
    (r"\bH100 NVL\b", 95830),
    (r"\bH100\b", 81559),
    (r"\bH20\b", 97871),
    (r"\bA100 (?:SXM4 |PCIE )?40G", 40960),
    (r"\bA100 (?:SXM4 |PCIE )?80G", 81920),
    (r"\bL40S?\b", 46068),
    (r"\bL4\b", 23034),
    (r"\bRTX 5090\b", 32607),
    (r"\bRTX 4090\b", 24564),
    (r"\bRTX 3090\b", 24576),
    (r"\bRTX 6000 ADA\b|\bRTX A6000\b|\bA6000\b", 49140),
)


def known_memory_gib(product: str | None) -> float | None:
    """GiB of a product, None if it is not known."""
    if not product:
        return None
    words = re.sub(r"[\s_\-]+", " ", product.upper())
    return next((mib / 1024 for pattern, mib in _MIB if re.search(pattern, words)), None)
