"""The host: its memory, its disks and shared memory, ports, and crashes below Python."""

from __future__ import annotations

from actors.diagnosis.rule import Rule, Weight, words
from orchestrator.outcome import Label, Phase

_CHILD_ENDED = (
    r"(?:Rank \d+ scheduler died during initialization \(exit code: {code}\)"
    r"|Subprocess \S+ \(pid=\d+\) crashed with exit code {code}\b|Exit code: {code}$"
    r"|Scheduler or DataParallelController \d+ terminated with {code}$"
    r"|.{{0,60}}\b(?:exitcode|exit code)[: =]+{code}\b|.{{0,60}}died with <Signals\.{name}: )"
)


def _child_ended(code: str, name: str) -> str:
    return _CHILD_ENDED.format(code=code, name=name)


RULES = (
    Rule(
        "kernel_killed_for_memory",
        Label.HOST_OOM,
        words(
            r"(?:\[[^\]]{1,40}\] )?(?:Out of memory: Kill(?:ed)? process|oom-kill:|Memory cgroup out of memory"
            r"|\S+ invoked oom-killer)|.{0,40}\bOOMKilled\b|slurmstepd: error: Detected \d+ oom.kill event"
            r"|Task was killed due to the node running low on memory|\d+ Workers? .{0,60}killed due to memory pressure"
        ),
        "[Sun Mar 24 23:54:53 2024] Out of memory: Killed process 6154 (python) total-vm:18109076kB",
        means="the kernel of the host ended a process since the host's memory was full",
        usual=Phase.WEIGHTS,
        source="Linux",
    ),
    Rule(
        "driver_out_of_host_memory",
        Label.HOST_OOM,
        words(r"(?:\[[^\]]{1,40}\] )?NVRM: .*NV_ERR_NO_MEMORY"),
        "NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY] @ mem_desc.c:1359",
        means="the driver found no memory; where host and GPU share one memory, offloading to the CPU frees nothing",
        usual=Phase.WEIGHTS,
        source="NVIDIA driver",
    ),
    Rule(
        "host_allocation_failed",
        Label.HOST_OOM,
        words(
            r"\[Errno 12\] Cannot allocate memory|std::bad_alloc|MemoryError\b(?!: insufficient free VRAM)"
            r"|.{0,60}unable to allocate host memory"
            r"|.{0,60}: Cannot allocate memory$|.{0,60}\bfork: Cannot allocate memory"
            r"|Unable to allocate \S+ [KMGT]iB for an array"
        ),
        "OSError: [Errno 12] Cannot allocate memory",
        means="the host had no memory left to give, or a limit of the process (ulimit, cgroup) was reached",
        usual=Phase.WEIGHTS,
        source="Python",
    ),
    Rule(
        "host_cache_does_not_fit",
        Label.HOST_OOM,
        words(r"Not enough host memory (?!for request)"),
        "ValueError: Not enough host memory available. Requesting 80.00 GB but only have 20.00 GB free. Please reduce "
        "the size of the hierarchical cache.",
        means="the part of the KV cache that lies in host memory is larger than what is free there",
        advice=("lower --hicache-size or --hicache-ratio",),
        usual=Phase.KV_POOL,
    ),
    Rule(
        "child_was_killed",
        Label.HOST_OOM,
        words(
            _child_ended("-9", "SIGKILL")
            + r"|.{0,60}\bterminated with signal SIGKILL|A worker was killed.{0,60}SIGKILL|.{0,60}exit_?code=137\b"
            r"|\S{1,80} exited with code 137\b"
        ),
        "RuntimeError: Rank 0 scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a "
        "common cause is the OS OOM killer.",
        weight=Weight.HINT,
        means="a process of the server was killed from outside; mostly by the kernel for lack of memory",
        usual=Phase.WEIGHTS,
    ),
    Rule(
        "shared_memory_too_small",
        Label.SHM_OR_DISK,
        words(
            r".{0,120}(?:Error while creating shared memory segment|failed to extend /dev/shm/"
            r"|posix_fallocate failed|\bout of shared memory|insufficient shared memory"
            r"|unable to (?:write to|resize|mmap|allocate shared memory).{0,60}(?:torch_|shm|/dev/shm)"
            r"|DataLoader worker .{0,40}killed by signal: Bus error)"
        ),
        "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-lNPZ0f (size 7340384)",
        means="/dev/shm is too small or full",
        advice=("give the container more shared memory (--shm-size 32g, --ipc=host, or an emptyDir of medium Memory)",),
        usual=Phase.DIST_INIT,
        source="NCCL, torch",
    ),
    Rule(
        "disk_full",
        Label.SHM_OR_DISK,
        words(
            r".{0,200}(?:No space left on device|Disk quota exceeded|not enough disk space|ENOSPC)"
            r"|\[Errno (?:28|122)\]"
        ),
        "OSError: [Errno 28] No space left on device",
        means="a disk (or /dev/shm, or the cache folder's quota) is full",
        usual=Phase.WEIGHTS,
        source="Linux",
    ),
    Rule(
        "disk_will_be_too_small",
        Label.SHM_OR_DISK,
        words(r".{0,200}Not enough free disk space to download"),
        "UserWarning: Not enough free disk space to download the file. The expected file size is: 3945.44 MB.",
        weight=Weight.HINT,
        means="the download is larger than what is free; it goes on and fails later",
        usual=Phase.WEIGHTS,
        source="huggingface_hub",
    ),
    Rule(
        "http_port_taken",
        Label.PORT_IN_USE,
        words(
            r"\[Errno (?:98|48)\] error while attempting to bind|.{0,40}error while attempting to bind on address"
            r"|Port (?:\d+ )?is (?:already in use(?!, trying)|not available)|couldn't bind HTTP server socket"
        ),
        "[Errno 98] error while attempting to bind on address ('127.0.0.1', 30000): address already in use",
        means="another program listens on the server's port",
        usual=Phase.HTTP_BIND,
        source="uvicorn",
    ),
    Rule(
        "store_port_taken",
        Label.PORT_IN_USE,
        words(r".{0,80}server socket has failed to (?:listen|bind).{0,200}(?:errno: 98|already in use|EADDRINUSE)"),
        "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. "
        "port: 29500, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use",
        means="the port where the ranks of the server meet is taken, mostly by another server on this host",
        advice=("set --nccl-port or --dist-init-addr so that servers on one host use different ports",),
        usual=Phase.DIST_INIT,
        source="torch",
    ),
    Rule(
        "internal_port_taken",
        Label.PORT_IN_USE,
        words(
            r"Address already in use \(addr=|\[Errno (?:98|48)\] |.{0,120}\bEADDRINUSE\b|Address already in use"
            r"|(?:\w+ ){0,3}\w*port(?: at)? \d+ is (?:already in use(?!, trying)|not available)"
            r"|Failed to bind to address"
        ),
        "zmq.error.ZMQError: Address already in use (addr='tcp://127.0.0.1:29236')",
        means="a port between the processes of the server is taken, mostly by another server on this host",
        advice=("set --nccl-port and --port so that servers on one host lie some hundred ports apart",),
        usual=Phase.SPAWN,
        source="ZeroMQ, torch",
    ),
    Rule(
        "crash_below_python",
        Label.SEGFAULT_ABORT,
        words(
            r"Fatal Python error: (?:Segmentation fault|Bus error|Illegal instruction|Floating)|!+ Segfault encountered"
            r"|(?:\S+: line \d+: +\d+ |(?:\[[^\]]{1,60}\] )?Signal: |zsh: |.{0,40}signal: )?Segmentation fault\b"
            r"|(?:double free or corruption|corrupted size vs\. prev_size|free\(\): invalid"
            r"|malloc\(\): |\*\*\* stack smashing detected|munmap_chunk\(\): )|\*\*\* SIGSEGV|Caught signal (?:11|7) "
        ),
        "Fatal Python error: Segmentation fault",
        means="a process crashed in compiled code",
        usual=Phase.GRAPH_TARGET,
        source="Python, glibc",
    ),
    Rule(
        "aborted_below_python",
        Label.SEGFAULT_ABORT,
        words(
            r"Fatal Python error: Aborted|Aborted(?: \(core dumped\))?$|\S+: line \d+: +\d+ Aborted +\(core dumped\)"
            r"|.{0,60}\bterminated with signal SIG(?:SEGV|ABRT|BUS|ILL|FPE)|\S{1,80} exited with code 13[49]\b"
            r"|terminate called (?:after throwing"
            r"|without an)"
            r"|" + _child_ended("-(?:11|6|4|7|8)", "SIG(?:SEGV|ABRT|ILL|BUS|FPE)")
        ),
        "Fatal Python error: Aborted",
        weight=Weight.HINT,
        means="a process aborted in compiled code; if another line tells why, that one is the cause",
        usual=Phase.GRAPH_TARGET,
        source="Python, glibc",
    ),
)
