"""Where a host's GPUs sit: PCI address, NUMA node, and what lies between each two of them."""

from __future__ import annotations

import os
from itertools import combinations
from pathlib import Path
from typing import Any

from actors.gpus.gpu import GIB, installed_nvml, nvml_text
from actors.gpus.gpu_ledger import GpuLedger, ledger_of
from orchestrator.host_report import GpuReport

Links = tuple[tuple[int, int, str], ...]

PCI_DEVICES = Path("/sys/bus/pci/devices")
# NVML_TOPOLOGY_*: how far up the PCI tree the first common ancestor of two GPUs is.
_ANCESTORS = {0: "internal", 10: "single", 20: "multiple", 30: "hostbridge", 40: "node", 50: "system"}
_NVLINK_ENABLED = 1
_MOST_NVLINKS = 36
_REMOTE_IS_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH
_SWITCH = "switch"


def gpu_places(nvml: Any | None = None, pci_devices: Path = PCI_DEVICES) -> tuple[GpuReport, ...] | None:
    """All GPUs of the host in NVML's order; None where no driver (and no ledger in its place) answers."""
    if nvml is None and (ledger := ledger_of(os.environ)) is not None:
        return _ledger_gpus(ledger)
    nvml = nvml or installed_nvml()
    if nvml is None:
        return None
    try:
        return tuple(_gpu(nvml, index, pci_devices) for index in range(nvml.nvmlDeviceGetCount()))
    except nvml.NVMLError:
        return None


def gpu_links(nvml: Any | None = None) -> Links:
    """(index, index, kind) of each pair of GPUs, as HostReport tells them; pairs that NVML does not know are left out.

    A pair is `nvlink` where an NVLink between the two is up, or both have one up to the switches of the host.
    """
    if nvml is None and (ledger := ledger_of(os.environ)) is not None:
        return _ledger_links(ledger)
    nvml = nvml or installed_nvml()
    if nvml is None:
        return ()
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    except nvml.NVMLError:
        return ()
    peers = [_nvlink_peers(nvml, handle) for handle in handles]
    addresses = [_bus_id(nvml, handle) for handle in handles]
    found = []
    for a, b in combinations(range(len(handles)), 2):
        linked = addresses[b] in peers[a] or addresses[a] in peers[b] or _SWITCH in peers[a] & peers[b]
        kind = "nvlink" if linked else _ancestor(nvml, handles[a], handles[b])
        if kind is not None:
            found.append((a, b, kind))
    return tuple(found)


def driver_version(nvml: Any | None = None) -> str | None:
    """The version of the NVIDIA driver; None without one."""
    if nvml is None and ledger_of(os.environ) is not None:
        return None
    nvml = nvml or installed_nvml()
    if nvml is None:
        return None
    try:
        return nvml_text(nvml.nvmlSystemGetDriverVersion())
    except nvml.NVMLError:
        return None


def _gpu(nvml: Any, index: int, pci_devices: Path) -> GpuReport:
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    bus_id = _bus_id(nvml, handle)
    return GpuReport(
        index=index,
        name=nvml_text(nvml.nvmlDeviceGetName(handle)),
        total_gib=nvml.nvmlDeviceGetMemoryInfo(handle).total / GIB,
        pci_bus_id=bus_id,
        numa_node=_numa_node(bus_id, pci_devices),
    )


def _bus_id(nvml: Any, handle: Any) -> str:
    try:
        return _address(nvml.nvmlDeviceGetPciInfo(handle).busId)
    except nvml.NVMLError:
        return ""


def _address(bus_id: str | bytes) -> str:
    """As the kernel writes it, `0000:17:00.0`; NVML's domain has 8 digits."""
    domain, _, rest = nvml_text(bus_id).lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def _numa_node(bus_id: str, pci_devices: Path) -> int | None:
    """None for -1, which the kernel writes for hosts with one node and for firmware that does not tell."""
    try:
        node = int((pci_devices / bus_id / "numa_node").read_text())
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def _nvlink_peers(nvml: Any, handle: Any) -> frozenset[str]:
    """PCI addresses at the other ends of a GPU's NVLinks that are up; one name for all switches of the host."""
    found = set()
    for link in range(_MOST_NVLINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != _NVLINK_ENABLED:
                continue
            if nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link) == _REMOTE_IS_SWITCH:
                found.add(_SWITCH)
            else:
                found.add(_address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
        except nvml.NVMLError:  # a GPU with fewer links, or none at all
            continue
    return frozenset(found)


def _ancestor(nvml: Any, one: Any, other: Any) -> str | None:
    try:
        return _ANCESTORS.get(int(nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)))
    except nvml.NVMLError:
        return None


def _ledger_gpus(ledger: GpuLedger) -> tuple[GpuReport, ...] | None:
    try:
        traits = ledger.traits
    except (OSError, ValueError, TypeError, KeyError):
        return None
    nodes = (*traits.numa_nodes, *[None] * len(traits.total_gib))
    return tuple(GpuReport(i, traits.name, gib, f"ledger:{i:02x}", nodes[i]) for i, gib in enumerate(traits.total_gib))


def _ledger_links(ledger: GpuLedger) -> Links:
    try:
        return ledger.traits.links
    except (OSError, ValueError, TypeError, KeyError):
        return ()
