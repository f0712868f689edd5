"""What each label means, and what to change: SGLang's own options, in the order in which to try them."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.outcome import Label

_GRAPH_MOVES = (
    "lower --mem-fraction-static; one small step is often not enough",
    "capture smaller batches: --cuda-graph-max-bs-decode (--cuda-graph-max-bs up to 0.5.19)",
    "lower --context-length or --max-total-tokens",
)


@dataclass(frozen=True, slots=True)
class LabelFact:
    """`means`: what happened. `advice`: what to change, best first; empty where nothing is to be changed."""

    means: str
    advice: tuple[str, ...] = ()


LABELS: dict[Label, LabelFact] = {
    Label.KV_BUDGET: LabelFact(
        "no memory was left for the KV cache within the server's budget",
        (
            "raise --mem-fraction-static",
            "check that nothing else held the GPU when the server started",
            "make weights or draft smaller: --quantization, a larger --tp-size, a smaller draft model",
        ),
    ),
    Label.OOM_KV_ALLOC: LabelFact(
        "the device ran out of memory while the KV cache was allocated",
        ("lower --mem-fraction-static a little", "or cap the cache with --max-total-tokens"),
    ),
    Label.STATE_POOL: LabelFact(
        "the pool of the linear-attention or sliding-window states does not fit",
        (
            "set --max-mamba-cache-size or --mamba-full-memory-ratio; --mem-fraction-static decides only where less is "
            "left than one state takes",
            "halve the states with --mamba-ssm-dtype bfloat16, or lower --max-running-requests",
        ),
    ),
    Label.OOM_WEIGHTS: LabelFact(
        "the device ran out of memory while weights were created, loaded or repacked",
        (
            "put fewer weights on each GPU: a larger --tp-size, --quantization, a smaller draft model",
            "check that nothing else holds the GPU; --mem-fraction-static does not help here",
        ),
    ),
    Label.OOM_GRAPH_TARGET: LabelFact(
        "the device ran out of memory while the target's graphs were captured", _GRAPH_MOVES
    ),
    Label.OOM_GRAPH_DRAFT: LabelFact(
        "the device ran out of memory while the draft's graphs were captured, after those of the target had fitted",
        (*_GRAPH_MOVES, "draft less: --speculative-num-steps, --speculative-num-draft-tokens"),
    ),
    Label.RUNTIME_OOM: LabelFact(
        "the device ran out of memory in a forward pass",
        (
            "lower --mem-fraction-static",
            "compute less at once: --chunked-prefill-size, --max-running-requests",
        ),
    ),
    Label.RUNTIME_POOL: LabelFact(
        "a pool of the server was exhausted while it served; the device was not",
        (
            "lower --max-running-requests",
            "give the pool more: --mem-fraction-static, --swa-full-tokens-ratio, --max-mamba-cache-size",
            "the same load will end it again: do not just restart",
        ),
    ),
    Label.OUT_OF_MEMORY: LabelFact(
        "device memory ran out, and the log does not show in which part of its life the server was",
        ("look at the lines before: weights, cache, graphs and serving each need something else",),
    ),
    Label.FLAG_INVALID: LabelFact(
        "the command line was refused",
        ("compare with `--help` of the release that runs there; trying again changes nothing",),
    ),
    Label.CONFIG_CONFLICT: LabelFact(
        "the options are known, but not in this combination, or not with this model",
        ("change one of the options that the message names",),
    ),
    Label.CAPTURE_ERROR: LabelFact(
        "a graph could not be captured, and memory was not the reason",
        (
            "take another backend: --attention-backend, --moe-runner-backend",
            "or switch off the feature that the traceback names; memory settings are useless here",
        ),
    ),
    Label.KERNEL_ARCH: LabelFact(
        "there is no kernel for this GPU's architecture in this build",
        ("use an image or wheel that was built for this GPU", "or another backend; trying again is useless"),
    ),
    Label.JIT_TOOLCHAIN: LabelFact(
        "a kernel had to be compiled on the host, and could not be",
        (
            "put nvcc (a toolkit that fits torch's CUDA), a C++ compiler and ninja on the PATH of the server, "
            "CUDA_HOME set",
            "or use an image with the kernels built in",
        ),
    ),
    Label.CUDA_IMA: LabelFact(
        "a kernel made an illegal access: a bug, not a lack of memory",
        (
            "change the backend (--attention-backend), --speculative-eagle-topk, or the graphs (--disable-cuda-graph)",
            "run once with CUDA_LAUNCH_BLOCKING=1 to see the kernel, and report it",
        ),
    ),
    Label.SEGFAULT_ABORT: LabelFact(
        "a process crashed in compiled code",
        ("try once more on a clean host (stale shared memory, caches)", "then change the backend, and report it"),
    ),
    Label.SOFTWARE_BUG: LabelFact(
        "an exception in the server's own code ended it", ("report it with the traceback; restart once at most",)
    ),
    Label.GPU_UNEQUAL: LabelFact(
        "the cards of one group differ in size",
        ("use cards of the same size for one server (slots, CUDA_VISIBLE_DEVICES)",),
    ),
    Label.GPU_OCCUPIED: LabelFact(
        "somebody else holds the GPU's memory",
        ("find and end the process that holds it (nvidia-smi, fuser /dev/nvidia*); change no option",),
    ),
    Label.SHM_OR_DISK: LabelFact(
        "a disk or /dev/shm is full or too small", ("free or enlarge it; no GPU option helps",)
    ),
    Label.HOST_OOM: LabelFact(
        "the host ran out of memory",
        (
            "look at `dmesg -T | grep -i oom` and the container's limit",
            "hold less in host memory: --hicache-size, --cpu-offload-gb, pinned tables; or add swap for the load",
        ),
    ),
    Label.NCCL_INIT: LabelFact(
        "the ranks could not set up their communication",
        (
            "look at the logs of the other ranks first: one may have died earlier",
            "do not start servers on one host at the same moment; run with NCCL_DEBUG=INFO",
        ),
    ),
    Label.NCCL_TIMEOUT: LabelFact(
        "a collective waited until its time was up",
        ("find the first rank that stopped; the others only waited for it",),
    ),
    Label.NET_CONFIG: LabelFact(
        "the network of this host is not as it was configured",
        ("set devices and GID index for each host: --disaggregation-ib-device, MC_GID_INDEX, NCCL_IB_GID_INDEX",),
    ),
    Label.PEER_RANK_FAILED: LabelFact(
        "this rank only tells that another one failed", ("look at the logs of the other ranks and hosts",)
    ),
    Label.HEALTH_STALE: LabelFact(
        "the server takes requests and answers none",
        ("end and restart it; with py-spy see where scheduler and detokenizer stand",),
    ),
    Label.WATCHDOG_HANG: LabelFact(
        "one step took longer than the watchdog allows",
        (
            "look for kernels compiled at first use, or a pool without room, before the timeout",
            "raise --watchdog-timeout if the first steps are slow",
        ),
    ),
    Label.MODEL_DOWNLOAD: LabelFact(
        "the model could not be downloaded",
        ("check network, proxy and HF_ENDPOINT, or download it before and pass a path",),
    ),
    Label.MODEL_MISSING: LabelFact(
        "the model, or a file of it, is not there",
        ("fix the path, mount or revision; check that all shards are whole",),
    ),
    Label.PORT_IN_USE: LabelFact(
        "a port that the server needs is taken", ("choose another --port, or end the server that has it",)
    ),
    Label.START_TIMEOUT: LabelFact(
        "the start took longer than allowed",
        ("look at the phase: raise timeouts.start_s if it still moved, else find out why it hangs",),
    ),
    Label.STOP_REQUESTED: LabelFact("somebody asked the server to stop; not a crash"),
    Label.CLIENT_ERRORS: LabelFact("the server lives, but its answers are errors", ("look at the requests' errors",)),
    Label.HUNG: LabelFact("requests were sent, and no answer came", ("look at the server's log of that minute",)),
    Label.HOST_LOST: LabelFact("the host or its actor went away", ("look at the host and at Ray's log",)),
    Label.COMMAND_NOT_FOUND: LabelFact(
        "the program to start is not there", ("check engine.command and the environment of the host",)
    ),
    Label.USER_COMMAND: LabelFact("a command of yours around the server failed", ("see its last words",)),
    Label.UNKNOWN: LabelFact(
        "the log does not show why", ("look at the lines before the end, and at `dmesg` of the host",)
    ),
    Label.READY: LabelFact("no failure: the server is up, or its start goes well"),
    Label.BENIGN: LabelFact("frightening lines of a healthy server; do not restart it"),
}
