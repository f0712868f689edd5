"""What a host tells of itself: hardware, software, and how Ray was started there. Frozen, on the wire."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GpuReport:
    """One GPU by its driver. `numa_node` is None where the kernel does not tell; memory in GiB."""

    index: int
    name: str
    total_gib: float
    pci_bus_id: str
    numa_node: int | None = None


@dataclass(frozen=True, slots=True)
class HostReport:
    """One host as a process of Ray's sees it, since servers inherit from that.

    `gpus` is None where no driver answers. `gpu_links` are (index, index, kind) with NVML's kinds of a common ancestor,
    nearest first: `internal`, `single`, `multiple`, `hostbridge`, `node`, `system`, and `nvlink` before all.
    `engine_version` and `model_present` are None where that was not asked or cannot be told. `ray_settings` are the
    `RAY_...` settings of the raylet, `gcs_settings` those of the head's GCS, by its environment and `--system-config`
    (None where none runs or can be seen); both sorted, without secrets. `dashboard_host` is where the dashboard of
    this host listens, None without one.
    """

    hostname: str
    cpu_model: str
    cpus: int
    memory_gib: float
    kernel: str
    gpus: tuple[GpuReport, ...] | None
    gpu_links: tuple[tuple[int, int, str], ...] = ()
    driver_version: str | None = None
    engine_version: str | None = None
    model_present: bool | None = None
    niceness: int = 0
    oom_score_adj: int = 0
    open_files: int = 0
    scratch_free_gib: float = 0.0
    ray_settings: tuple[tuple[str, str], ...] = ()
    shm_free_gib: float | None = None
    python_version: str = ""
    ray_version: str | None = None
    gcs_settings: tuple[tuple[str, str], ...] | None = None
    dashboard_host: str | None = None

    @property
    def host_class(self) -> str:
        """Hosts of one class can be compared: `8x NVIDIA B200 183 GiB`, and for hosts without GPUs the CPUs."""
        if not self.gpus:
            return f"{self.cpus}x {self.cpu_model}"
        kinds = sorted({f"{gpu.name} {gpu.total_gib:.0f} GiB" for gpu in self.gpus})
        return f"{len(self.gpus)}x {' + '.join(kinds)}"
