"""Where GPUs sit, from a scripted NVML and a scripted /sys."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace

import pytest

from actors.gpus.gpu import GIB
from actors.gpus.gpu_ledger import LEDGER_VARIABLE, GpuLedger
from actors.gpus.gpu_place import driver_version, gpu_links, gpu_places
from orchestrator.host_report import GpuReport


class NvmlRefusal(Exception):
    """Not supported on this GPU."""


SWITCH = "switch"


@dataclass
class PlacedNvml:
    """GPUs at these addresses; `ancestors` by pair, `nvlinks` per GPU: the address at the other end, or a switch."""

    bus_ids: tuple[str, ...]
    ancestors: dict[tuple[int, int], int] = field(default_factory=dict)
    nvlinks: dict[int, list[str]] = field(default_factory=dict)
    NVMLError = NvmlRefusal

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.bus_ids)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        return index

    def nvmlDeviceGetName(self, _: int) -> bytes:  # noqa: N802
        return b"NVIDIA B200"

    def nvmlDeviceGetMemoryInfo(self, _: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(total=180 * GIB)

    def nvmlDeviceGetPciInfo(self, handle: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=self.bus_ids[handle].encode())

    def nvmlDeviceGetTopologyCommonAncestor(self, one: int, other: int) -> int:  # noqa: N802
        if (one, other) not in self.ancestors:
            raise NvmlRefusal
        return self.ancestors[one, other]

    def nvmlDeviceGetNvLinkState(self, handle: int, link: int) -> int:  # noqa: N802
        if link >= len(self.nvlinks.get(handle, [])):
            raise NvmlRefusal
        return 1

    def nvmlDeviceGetNvLinkRemoteDeviceType(self, handle: int, link: int) -> int:  # noqa: N802
        return 2 if self.nvlinks[handle][link] == SWITCH else 0

    def nvmlDeviceGetNvLinkRemotePciInfo(self, handle: int, link: int) -> SimpleNamespace:  # noqa: N802
        return SimpleNamespace(busId=self.nvlinks[handle][link].encode())

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"580.95.05"


FOUR = ("00000000:17:00.0", "00000000:3D:00.0", "00000000:97:00.0", "00010000:BD:00.0")


@pytest.fixture
def pci(tmp_path: Path) -> Path:
    for address, node in (("0000:17:00.0", "0"), ("0000:3d:00.0", "0"), ("0000:97:00.0", "1"), ("10000:bd:00.0", "-1")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "numa_node").write_text(f"{node}\n")
    return tmp_path


def test_gpus_are_told_with_the_kernels_address_and_its_numa_node(pci: Path) -> None:
    gpus = gpu_places(PlacedNvml(FOUR), pci) or ()

    assert gpus[1] == GpuReport(1, "NVIDIA B200", 180.0, "0000:3d:00.0", 0)
    assert [gpu.numa_node for gpu in gpus] == [0, 0, 1, None]  # -1 is the kernel's word for not known
    assert gpus[3].pci_bus_id == "10000:bd:00.0"  # a domain above 16 bits


def test_a_host_without_sysfs_has_no_numa_nodes_to_tell(tmp_path: Path) -> None:
    gpus = gpu_places(PlacedNvml(FOUR), tmp_path / "absent") or ()

    assert [gpu.numa_node for gpu in gpus] == [None] * 4


def test_links_are_the_common_ancestors_of_each_pair() -> None:
    nvml = PlacedNvml(FOUR[:3], {(0, 1): 20, (0, 2): 50, (1, 2): 40})

    assert gpu_links(nvml) == ((0, 1, "multiple"), (0, 2, "system"), (1, 2, "node"))


def test_a_pair_that_nvml_does_not_know_is_left_out() -> None:
    assert gpu_links(PlacedNvml(FOUR[:3], {(0, 1): 10})) == ((0, 1, "single"),)


def test_gpus_behind_nvlink_switches_are_all_linked() -> None:
    ancestors = {(a, b): 50 for a in range(3) for b in range(a + 1, 3)}
    nvml = PlacedNvml(FOUR[:3], ancestors, {0: [SWITCH, SWITCH], 1: [SWITCH], 2: []})

    assert gpu_links(nvml) == ((0, 1, "nvlink"), (0, 2, "system"), (1, 2, "system"))


def test_two_gpus_with_a_bridge_to_a_third_are_not_linked_to_each_other() -> None:
    ancestors = {(a, b): 30 for a in range(3) for b in range(a + 1, 3)}
    nvml = PlacedNvml(FOUR[:3], ancestors, {0: [FOUR[1]], 1: [FOUR[0], FOUR[2]], 2: [FOUR[1]]})

    assert gpu_links(nvml) == ((0, 1, "nvlink"), (0, 2, "hostbridge"), (1, 2, "nvlink"))


def test_the_driver_tells_its_version() -> None:
    assert driver_version(PlacedNvml(FOUR)) == "580.95.05"


def test_emulated_gpus_sit_where_their_ledger_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    GpuLedger.create(tmp_path, [96.0, 96.0], numa_nodes=(0, 1), links=((0, 1, "system"),))
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path))

    gpus = gpu_places() or ()
    assert [(gpu.name, gpu.total_gib, gpu.numa_node) for gpu in gpus] == [
        ("Emulated GPU", 96.0, 0),
        ("Emulated GPU", 96.0, 1),
    ]
    assert gpu_links() == ((0, 1, "system"),)
    assert driver_version() is None


def test_a_ledger_that_does_not_say_where_its_gpus_sit_has_no_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    GpuLedger.create(tmp_path, [96.0])
    monkeypatch.setenv(LEDGER_VARIABLE, str(tmp_path))

    assert [gpu.numa_node for gpu in gpu_places() or ()] == [None]
    assert gpu_links() == ()
