"""What was seen of a server and its GPUs while it lived, moment by moment. Frozen, on the wire."""

from __future__ import annotations

from dataclasses import dataclass

# Whatever of these is among `GpuSample.throttle`, the GPU computed slower than it could.
SLOWING = frozenset({"power_cap", "hw_slowdown", "sync_boost", "sw_thermal", "hw_thermal", "hw_power_brake"})


@dataclass(frozen=True, slots=True)
class GpuSample:
    """One GPU; None is what it does not tell. `gpu` as in `trials.gpu_ids`.

    `throttle`: why its clocks are not higher (NVML's reasons in our words, `idle` among them); empty if they are.
    `ecc_errors`: uncorrected ones since the driver was loaded.
    """

    gpu: str
    memory_used_gib: float | None = None
    memory_total_gib: float | None = None
    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    utilization_percent: int | None = None
    throttle: tuple[str, ...] | None = None
    ecc_errors: int | None = None

    @property
    def memory_free_gib(self) -> float | None:
        if self.memory_used_gib is None or self.memory_total_gib is None:
            return None
        return self.memory_total_gib - self.memory_used_gib


@dataclass(frozen=True, slots=True)
class ServerSample:
    """What a server says of itself, and what its processes use; None is what it does not tell, or did not in time.

    Requests, used tokens and speed are sums over data-parallel ranks, `token_usage` is the share of its KV cache that
    the fullest one uses. `accept_length`: tokens that a verification step gave, as the server averages them.
    `cpu_cores`: CPU seconds per second.
    """

    running_requests: int | None = None
    queued_requests: int | None = None
    retracted_requests: int | None = None
    used_tokens: int | None = None
    token_usage: float | None = None
    generation_tok_s: float | None = None
    cache_hit_rate: float | None = None
    accept_length: float | None = None
    processes: int | None = None
    rss_gib: float | None = None
    cpu_cores: float | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One moment on one host of a server. `rank` is that of the host, 0 where the server is on one host.

    `at_s`: seconds since the slot was told to start the server, by the host's monotonic clock: since the trial began.
    `lived_s`: since the server's process ran, which is the clock of `trials.phases`; None before. `unix_s`: the wall
    clock of the host.
    """

    at_s: float
    unix_s: float
    lived_s: float | None
    server: ServerSample
    gpus: tuple[GpuSample, ...] = ()
    rank: int = 0

    @property
    def gpu_free_gib(self) -> float | None:
        """Of the fullest GPU; None where none tells."""
        return min((free for gpu in self.gpus if (free := gpu.memory_free_gib) is not None), default=None)


@dataclass(frozen=True, slots=True)
class Sampled:
    """Samples that were not fetched before, and how many there have been in all of this server start."""

    samples: tuple[Sample, ...]
    told: int
