"""Faults before a server is ready, as a script writes them; the key that is there says which."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from actors.emulator.fault import Fault, FloodLine, Lasting, Seconds

Phase = Literal[
    "launch", "args", "dist_init", "weights", "draft_weights", "kv_pool", "graph_target", "graph_draft", "http_bind",
    "warmup",
]  # fmt: skip
StartLabel = Literal[
    "benign", "stop_requested", "oom_weights", "kv_budget", "oom_kv_alloc", "state_pool", "oom_graph_target",
    "oom_graph_draft", "capture_error", "runtime_pool", "runtime_oom", "gpu_occupied", "gpu_unequal", "host_oom",
    "shm_or_disk", "kernel_arch", "jit_toolchain", "cuda_ima", "segfault_abort", "nccl_init", "nccl_timeout",
    "watchdog_hang", "health_stale", "flag_invalid", "config_conflict", "model_missing", "model_download",
    "port_in_use", "peer_rank_failed", "software_bug", "net_config",
]  # fmt: skip


class LabelledEnd(Fault):
    """The start ends with the words, the exit code and in the phase of a label. `benign` goes on and is healthy."""

    label: StartLabel = Field(description="Cause, as the corpus of real logs names it.")
    phase: Phase | None = Field(None, description="Where, if not where this cause usually strikes.")
    rank: int = Field(0, ge=0, description="Which scheduler says it.")


class ReplayedLog(Fault):
    """The start prints a log and nothing else, then ends. Lines `[[gap]]` are left out."""

    replay: str = Field(min_length=1, description="Log file, relative to the script.")
    exit_code: int | None = Field(
        description="How it ends: below 0 by that signal (-9: SIGKILL); null: not at all, it stays silent.",
        ge=-64,
        le=255,
    )
    pace: bool = Field(
        False, description="Wait between lines as their time stamps say, divided by the emulator's start speed-up."
    )


class SilentEnd(Fault):
    """The start ends without a word."""

    exit: Phase = Field(description="In which phase.")
    exit_code: int = Field(ge=-64, le=255, description="Below 0: by that signal.")


class HangingStart(Fault):
    """Silence for ever."""

    hang: Phase = Field(description="In which phase.")
    busy: bool = Field(False, description="It uses a CPU meanwhile, as ranks do that wait for each other.")
    ignore_sigterm: bool = Field(False, description="Then only SIGKILL ends it.")


class SlowStart(Lasting):
    """A phase that takes longer, e.g. weights from a slow disk. In a slow `warmup` the port answers, no bar moves."""

    slow: Phase = Field(description="Which phase.")
    bars: bool = Field(True, description="A progress bar moves meanwhile; otherwise silence.")
    busy: bool = Field(False, description="It uses a CPU meanwhile, as a compiler does; otherwise it sleeps.")


class FloodedStart(Fault):
    """Many log lines before the start goes on."""

    flood: Phase = Field(description="In which phase.")
    mib: Seconds = Field(description="How much, MiB, as fast as it can be written.")
    lines: list[FloodLine] = Field(
        default_factory=lambda: list(get_args(FloodLine)), min_length=1, description="Kinds of lines, in turn."
    )


class IgnoredSigterm(Fault):
    """SIGTERM has no effect until the server is ready."""

    ignore_sigterm: Literal[True] = Field(description="true")


class Orphan(Fault):
    """Leaves a daemonised child behind that outlives the server (for ten minutes, should nobody end it)."""

    orphan: Literal[True] = Field(description="true")


START_FAULTS: dict[str, type[Fault]] = {
    "label": LabelledEnd, "replay": ReplayedLog, "exit": SilentEnd, "hang": HangingStart, "slow": SlowStart,
    "flood": FloodedStart, "ignore_sigterm": IgnoredSigterm, "orphan": Orphan,
}  # fmt: skip
