"""docs/emulator.md tells everything that the suite lets the emulator leave out."""

from __future__ import annotations

import re

import pytest

from tests.contract import divergence
from tests.contract.servers import ROOT


@pytest.mark.parametrize(
    "name", ["METRIC_FAMILIES", "SERVER_INFO_KEYS", "MODEL_INFO_KEYS", "LOAD_KEYS", "EMULATOR_MARKS"]
)
def test_the_page_names_each_divergence(name: str) -> None:
    told = set(re.findall(r"`(\w+)`", (ROOT / "docs/emulator.md").read_text(encoding="utf-8")))
    assert getattr(divergence, name) - told == set()
