"""Servers that hang, that were asked to stop, and what healthy servers say that sounds like death."""

from __future__ import annotations

import re

from actors.diagnosis.rule import Rule, Weight, words
from orchestrator.outcome import Confidence, Label, Phase

_HEALTH = re.compile(
    r"forlast(?P<waited>\d+)seconds.*?ticstarttime:(?P<tic>\d\d:\d\d:\d\d).*?last_heartbeattime:(?P<beat>[\d:]{8})"
)
_DAY_S = 24 * 3600


def _stale_or_busy(message: str) -> Label:
    """A detokenizer that spoke within the time that the check itself waits was busy when the check began, not dead."""
    told = _HEALTH.search("".join(message.split()))  # wherever a terminal cut it
    if told is None:
        return Label.HEALTH_STALE
    silent_s = (_seconds(told["tic"]) - _seconds(told["beat"])) % _DAY_S
    return Label.BENIGN if silent_s <= int(told["waited"]) else Label.HEALTH_STALE


def _seconds(clock: str) -> int:
    hours, minutes, seconds = (int(part) for part in clock.split(":"))
    return hours * 3600 + minutes * 60 + seconds


RULES = (
    Rule(
        "asked_to_stop",
        Label.STOP_REQUESTED,
        words(
            r"SIGTERM received\b|INFO: +Received signal (?:15|2|SIGTERM|SIGINT)\b"
            r"|Gracefully exiting\.\.\.|Received (?:signal )?(?:SIGTERM|SIGINT|15\b|2\b)"
            r"|Signal SIGTERM received while|KeyboardInterrupt$|Keyboard interrupt received|Received exit signal"
            r"|Stopping Container|(?:Interrupted|Terminated) by (?:user|signal)|.{0,60}: Stopping .{0,80}\.\.\.$"
        ),
        "[2026-09-14 20:17:38] SIGTERM received. signum=None frame=None. Draining requests and shutting down...",
        means="somebody asked the server to stop; what it says after that is about the stop",
        fixed=Phase.SHUTDOWN,
    ),
    Rule(
        "job_cancelled",
        Label.STOP_REQUESTED,
        words(r"slurmstepd: error: \*\*\* (?:JOB|STEP) \S+ ON \S+ CANCELLED AT \S+ (?:\*\*\*|DUE TO (?:TIME|PREEMPT))"),
        "slurmstepd: error: *** JOB 12345 ON host-a CANCELLED AT 2026-01-05T10:03:00 DUE TO TIME LIMIT ***",
        means="the cluster's scheduler ended the job, on request or since its time was up",
        fixed=Phase.SHUTDOWN,
        source="Slurm",
    ),
    Rule(
        "http_server_ended",
        Label.STOP_REQUESTED,
        words(
            r"INFO: +(?:Shutting down|Finished server process)|Shutting down FastAPI HTTP server"
            r"|srun: error: .*: Terminated$"
        ),
        "INFO:     Shutting down",
        weight=Weight.HINT,
        means="the HTTP server ended in good order; it does so when it is told to",
        fixed=Phase.SHUTDOWN,
        source="uvicorn",
    ),
    Rule(
        "no_forward_step",
        Label.WATCHDOG_HANG,
        words(r"(?:\w+ )?watchdog timeout \(self\.(?!.*soft=True)"),
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
        means="a step took longer than the watchdog allows, so the server ended itself",
        usual=Phase.SERVING,
    ),
    Rule(
        "no_heartbeat",
        Label.HEALTH_STALE,
        words(r"Health check failed\. Server couldn't get a response from detokenizer"),
        "Health check failed. Server couldn't get a response from detokenizer for last 20 seconds. tic start time: "
        "04:35:35. last_heartbeat time: 04:30:01",
        means="requests go in and nothing comes out of the detokenizer",
        usual=Phase.SERVING,
        decide=_stale_or_busy,
        wraps=True,
    ),
    Rule(
        "warmup_not_answered",
        Label.START_TIMEOUT,
        words(r"HTTPS?ConnectionPool\(host='[^']*', port=\d+\): Read timed out"),
        "requests.exceptions.ReadTimeout: HTTPConnectionPool(host='0.0.0.0', port=8000): Read timed out. (read "
        "timeout=600)",
        weight=Weight.HINT,
        means="the server's own warm-up request was not answered in time",
        advice=("look for kernels compiled at first use; SGLANG_WARMUP_TIMEOUT gives the warm-up longer",),
        fixed=Phase.WARMUP,
        source="requests",
    ),
    Rule(
        "pool_leaks",
        Label.SOFTWARE_BUG,
        words(r".{0,60}\bmemory leak detected!"),
        "ValueError: token_to_kv_pool_allocator memory leak detected! available_size=3189424, protected_size=0",
        means="the server's own check found slots of a pool that nobody holds; no memory setting helps",
        usual=Phase.SERVING,
    ),
    Rule(
        "answer_lost",
        Label.SOFTWARE_BUG,
        words(r"['\"]?Decode status not found for request"),
        "RuntimeError: Decode status not found for request 61f1. It may be due to the request being evicted from the "
        "decode status due to memory pressure.",
        means="the detokenizer had forgotten a request that still runs",
        advice=("raise SGLANG_DETOKENIZER_MAX_STATES",),
        usual=Phase.SERVING,
    ),
)

# Said by healthy servers. None of these is a reason to restart.
BENIGN_RULES = (
    Rule(
        "requests_retracted",
        Label.BENIGN,
        words(r"KV cache pool is full\. Retract requests|Decode out of memory happened\.|Testing retraction"),
        "KV cache pool is full. Retract requests. #retracted_reqs: 1, #new_tokens_gained: 9",
        weight=Weight.NOTE,
        means="requests were put back and will be computed again: slower, but no failure",
        advice=("for a fair measurement lower the load or give the pool more room",),
        usual=Phase.SERVING,
    ),
    Rule(
        "requests_capped_by_state_cache",
        Label.BENIGN,
        words(r"max_running_requests (?:is|was) (?:capped|reduced)"),
        "max_running_requests is capped to 2 by the mamba state cache (max_mamba_cache_size=10, 5 state slots per "
        "request).",
        weight=Weight.NOTE,
        means="fewer requests run at once than were asked for: above that number a load test measures the queue",
        advice=("raise --max-mamba-cache-size or --mamba-full-memory-ratio, or test with fewer requests at once",),
        fixed=Phase.STATE_POOL,
    ),
    Rule(
        "graphs_take_much_memory",
        Label.BENIGN,
        words(r"Capture [\w -]*graph end\b.*mem usage=(?:[4-9]|\d\d+)\.\d+ GB"),
        "Capture cuda graph end. Time elapsed: 19.50 s. mem usage=6.19 GB. avail mem=5.24 GB.",
        weight=Weight.NOTE,
        means="the graphs took several GB and fitted",
        advice=("a smaller --cuda-graph-max-bs would give that memory back",),
        usual=Phase.GRAPH_TARGET,
    ),
    Rule(
        "soft_watchdog",
        Label.BENIGN,
        words(r"(?:\w+ )?watchdog timeout \(self\..*soft=True"),
        "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=True)",
        weight=Weight.NOTE,
        means="a step was slow; this watchdog only tells",
        usual=Phase.SERVING,
    ),
    Rule(
        "request_aborted_by_pool",
        Label.BENIGN,
        words(r"retract_decode: aborted"),
        "retract_decode: aborted last request 7 due to OOM",
        weight=Weight.NOTE,
        means="one request was ended since it did not fit; the server lives",
        usual=Phase.SERVING,
    ),
    Rule(
        "request_failed",
        Label.BENIGN,
        words(r"Exception in ASGI application|Error in request: |.{0,120}\" 500 Internal Server"),
        "ERROR:    Exception in ASGI application",
        weight=Weight.NOTE,
        means="one request failed in the HTTP layer; the server lives",
        usual=Phase.SERVING,
        confidence=Confidence.MEDIUM,
        source="uvicorn",
    ),
    Rule(
        "transfer_of_request_failed",
        Label.BENIGN,
        words(r"(?:Decode|Prefill) (?:transfer|bootstrap|handshake) failed for request"),
        "Decode transfer failed for request rank=1 decode_req.req.rid='3ce8' with exception KVTransferError",
        weight=Weight.NOTE,
        means="the KV cache of one request did not come from prefill to decode; that request failed, the server lives",
        advice=("if many fail, look at the RDMA settings and at the log of the other side",),
        usual=Phase.SERVING,
    ),
    Rule(
        "warning_while_serving",
        Label.BENIGN,
        words(
            r"(?:asyncio\.exceptions\.)?CancelledError$|(?:[\w.]+\.)?ClientDisconnect$"
            r"|Input length .{0,40}exceeds the maximum allowed|KV cache pool leak detected!$"
        ),
        "Input length (140001 tokens) exceeds the maximum allowed length (131066 tokens). Use a shorter input.",
        weight=Weight.NOTE,
        means="one request was refused, or the server's check of its pool warned; the server lives",
        usual=Phase.SERVING,
        confidence=Confidence.MEDIUM,
        aside=True,
    ),
    Rule(
        "only_a_warning",
        Label.BENIGN,
        words(
            r"Using default MoE kernel config|Config file not found at .{0,200}/configs/|.{0,60}no scaling factors"
            r"|Image processor \S+ does not accept|.{0,20}WARNING: destroy_process_group\(\) was not called"
            r"|.{0,100}\(may not be an issue\b|.{0,300}\bTo silence this warning\b"
            r"|max_total_tokens=\d+ is larger than the profiled value \d"
        ),
        "Using default MoE kernel config. Performance might be sub-optimal! Config file not found at "
        "/opt/sglang/configs/E=128,N=192,device_name=NVIDIA_H20.json",
        weight=Weight.NOTE,
        means="a warning that healthy servers give too",
        confidence=Confidence.MEDIUM,
        aside=True,
    ),
)

GOES_ON = Rule(
    "goes_on_without",
    Label.BENIGN,
    words(
        r"Ignore |.*\b(?:fall(?:ing|s)?[ -]?back|skipping|retrying in|will be ignored|refusing|is disabled|disabling)\b"
    ),
    "Ignore import error when loading sglang.srt.models.mamba: cannot import name 'causal_conv1d_fn'",
    weight=Weight.NOTE,
    means="the server tells of something that it goes on without",
    confidence=Confidence.MEDIUM,
    aside=True,
)
