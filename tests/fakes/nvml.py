"""Four GPUs of a scripted NVML, by number and by UUID; what they tell is added by whoever tests that."""

from __future__ import annotations


class NvmlFault(Exception):
    """What this GPU does not do or tell."""


class FourGpus:
    """The handle of a GPU is its number; its UUID is `GPU-` and that."""

    NVMLError = NvmlFault

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index >= 4:
            raise NvmlFault
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> int:  # noqa: N802
        return self.nvmlDeviceGetHandleByIndex(int(uuid.removeprefix("GPU-")))
