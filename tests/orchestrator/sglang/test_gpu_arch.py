"""Which architecture a capability, a product name or an accelerator label stands for."""

from __future__ import annotations

import pytest

from orchestrator.sglang.gpu_arch import BLACKWELL, SM100, SM120, Arch, arch_of_capability, arch_of_product


@pytest.mark.parametrize(
    ("name", "arch"),
    [
        ("RTX-PRO-6000", Arch.SM120),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", Arch.SM120),
        ("NVIDIA GeForce RTX 5090", Arch.SM120),
        ("B200", Arch.SM100),
        ("NVIDIA GB200", Arch.SM100),
        ("NVIDIA B300 SXM6 AC", Arch.SM103),
        ("GB300", Arch.SM103),
        ("NVIDIA GB10", Arch.SM121),
        ("NVIDIA Thor", Arch.SM110),
        ("H100", Arch.SM90),
        ("NVIDIA H200", Arch.SM90),
        ("NVIDIA GH200 480GB", Arch.SM90),
        ("NVIDIA L40S", Arch.SM89),
        ("L4", Arch.SM89),
        ("NVIDIA RTX 6000 Ada Generation", Arch.SM89),
        ("NVIDIA GeForce RTX 4090", Arch.SM89),
        ("A100-80G", Arch.SM80),
        ("NVIDIA A100-SXM4-80GB", Arch.SM80),
        ("A10G", Arch.SM86),
        ("NVIDIA RTX A6000", Arch.SM86),
        ("TPU-V5P", None),
        ("AMD-Instinct-MI300X-OAM", None),
        ("", None),
        (None, None),
    ],
)
def test_products_are_known_by_name_and_by_label(name: str | None, arch: Arch | None) -> None:
    assert arch_of_product(name) is arch


def test_capabilities_are_known_and_unknown_ones_are_said_to_be() -> None:
    assert arch_of_capability(12, 0) is Arch.SM120
    assert arch_of_capability(10, 3) is Arch.SM103
    assert arch_of_capability(7, 5) is None


def test_families_are_by_major_capability_as_sglang_decides() -> None:
    assert {Arch.SM100, Arch.SM103} == SM100
    assert {Arch.SM120, Arch.SM121} == SM120
    assert SM100 | SM120 | {Arch.SM110} == BLACKWELL
