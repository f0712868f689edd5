"""A server from its open port to its last log line: warm-up, ready, drain, and the watch over its children."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import socket
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field

from aiohttp import web

from actors.emulator.app import build_app
from actors.emulator.batching import NEW_TOKEN_RATIO, Batch, BatchLimits
from actors.emulator.flags import EmulatorFlags
from actors.emulator.log import LogWriter
from actors.emulator.memory import MemoryPlan
from actors.emulator.metrics_text import Metrics
from actors.emulator.noise import HIDDEN_FLAG, Noise
from actors.emulator.processes import ProcessTree, kill_self
from actors.emulator.profiles import Profile
from actors.emulator.request_body import Ask, Sampling
from actors.emulator.resolution import EAGLE_PROPER, Settings
from actors.emulator.serving import Engine, EngineOptions
from actors.emulator.span import Span
from actors.emulator.startup import PHASES, startup_seconds
from actors.emulator.state import ServerState
from actors.emulator.tracebacks import scheduler_traceback
from actors.guards.guard import TRIAL_MARK

WARMUP = Ask(tuple(range(10, 18)), Sampling(max_new_tokens=8))
WARMUP_PORT = 40000
DRAIN_POLL_S = 5.0
BIND_FAILURE_S = 5.0
CRASH_SETTLE_S = 5.0
NODE_POLL_S = 0.1


@dataclass
class Server:
    """Everything of one server process. `speedup` shortens start-up and drain polls, never token times."""

    state: ServerState
    tree: ProcessTree
    speedup: float
    log: LogWriter
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    span: Span | None = None

    @classmethod
    def build(
        cls,
        settings: Settings,
        plan: MemoryPlan,
        profile: Profile,
        flags: EmulatorFlags,
        arguments: Sequence[str],
        log: LogWriter,
        tree: ProcessTree,
    ) -> Server:
        """Wire engine, metrics and state of a start that did not die."""
        metrics = _metrics(settings, plan, profile)
        limits = BatchLimits(
            max_running=plan.max_running,
            kv_tokens=plan.kv_tokens,
            chunk_tokens=settings.chunk_tokens,
            captured_batch=plan.captured_batch,
            num_steps=settings.depth,
            draft_tokens=settings.draft_tokens,
            radix_cache=not settings.args["disable_radix_cache"],
            bigram_cache=settings.algorithm in EAGLE_PROPER,
        )
        options = EngineOptions(
            kv_tokens=plan.kv_tokens,
            decode_log_interval=max(1, settings.args["decode_log_interval"]),
            max_queued=settings.args["max_queued_requests"],
            state_slots=plan.state.slots if plan.state else 0,
            captured_prefill=max(settings.capture_prefill, default=0),
            device=settings.device,
        )
        engine = Engine(Batch(profile.speed, limits, flags.seed), options, log, metrics, noise=_noise(flags))
        seconds = startup_seconds(plan, profile)
        state = ServerState(settings, plan, profile, engine, log, metrics, seconds, _launch_command(arguments))
        return cls(state, tree, flags.start_speedup, log)

    async def run(self) -> int:
        """Serve until SIGTERM has drained the last request; answers the exit code."""
        args, pid = self.state.settings.args, os.getpid()
        self.log.say(f"INFO:     Started server process [{pid}]")
        self.log.say("INFO:     Waiting for application startup.")
        self.log.say("INFO:     Application startup complete.")
        runner = web.AppRunner(build_app(self.state), access_log=None, handler_cancellation=True)
        await runner.setup()
        try:
            await web.TCPSite(runner, args["host"], args["port"], reuse_address=True).start()
        except OSError as error:
            await self._fail_to_bind(error)
        self.log.say(f"INFO:     Uvicorn running on http://{args['host']}:{args['port']} (Press CTRL+C to quit)")
        loop = asyncio.get_running_loop()
        engine = loop.create_task(self.state.engine.run())
        background = [engine, loop.create_task(self._watch_children()), loop.create_task(self._watch_nodes(engine))]
        # SGLang installs its drain handler with the first request, which is the warm-up; before that SIGTERM kills.
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._on_signal)
        await self._warm_up()
        await self.stop.wait()
        await self._drain()
        for task in background:
            task.cancel()
        await self._shut_down(runner, pid)
        return 0

    async def _fail_to_bind(self, error: OSError) -> None:
        args = self.state.settings.args
        where = f"('{args['host']}', {args['port']})"
        reason = os.strerror(error.errno or 0).lower()
        text = f"error while attempting to bind on address {where}: {reason}"
        self.log.say(f"ERROR:    [Errno {error.errno}] {text}")
        self.log.say("INFO:     Waiting for application shutdown.")
        # The real warm-up talks to whoever holds the port until it gives up, which took minutes.
        await asyncio.sleep(BIND_FAILURE_S / self.speedup)
        trace = "".join(traceback.format_exception(error))
        self.log.say(f"Initialization failed. warmup error: {trace}")
        self._end_tree()

    async def _warm_up(self) -> None:
        if not self.state.settings.args["skip_server_warmup"]:
            self._warm_up_call("GET /model_info")
            await self.state.ticket(WARMUP, stream=False, internal=True).ended()
            await asyncio.sleep(self.state.profile.times.warmup_s / self.speedup)
            self._warm_up_call("POST /generate")
            self._warm_up_call("POST /freeze_gc")
        if not self.stop.is_set():
            self.state.status = "ready"
            self.log.say("The server is fired up and ready to roll!")

    def _warm_up_call(self, call: str) -> None:
        """SGLang warms itself up over HTTP."""
        self.log.access(f'INFO:     127.0.0.1:{WARMUP_PORT} - "{call} HTTP/1.1" 200 OK')

    def _on_signal(self) -> None:
        if self.stop.is_set():
            return
        self.state.status = "draining"
        self.log.say("SIGTERM received. signum=None frame=None. Draining requests and shutting down...")
        self.stop.set()

    async def _drain(self) -> None:
        """Unbounded, as SGLang's: new requests are still taken while old ones run."""
        while True:
            left = list(self.state.engine.tickets)
            self.log.say(
                f"Gracefully exiting... Remaining number of requests {len(left)}. "
                f"Remaining requests remaining_rids={left}."
            )
            if not left:
                return
            await asyncio.sleep(DRAIN_POLL_S / self.speedup)

    async def _shut_down(self, runner: web.AppRunner, pid: int) -> None:
        kill_line = f"kill_process_tree called: parent_pid={pid}, include_parent=False, pid={pid}"
        if self.span:
            self.span.end()
        self.tree.kill()
        self.log.say(kill_line)
        self.log.say("INFO:     Shutting down")
        self.log.say("INFO:     Waiting for application shutdown.")
        await runner.cleanup()
        self.log.say("INFO:     Application shutdown complete.")
        self.log.say(f"INFO:     Finished server process [{pid}]")
        self.log.say(kill_line)

    async def _watch_children(self) -> None:
        """A scheduler that dies takes the server with it, some seconds later and without ending the streams."""
        while not self.stop.is_set():
            await asyncio.sleep(1.0)
            crash = self.tree.crashed()
            if crash is None:
                continue
            name, child, code = crash
            if self.span:
                self.span.leave()
            self.log.say(
                f"Subprocess {name} (pid={child}) crashed with exit code {code}. Triggering SIGQUIT for cleanup..."
            )
            await self._crash()

    async def _watch_nodes(self, engine: asyncio.Task[None]) -> None:
        """A node that is gone takes the others with it: their next exchange with it fails."""
        while self.span and not self.stop.is_set():
            await asyncio.sleep(NODE_POLL_S)
            broken = self.span.broken()
            if broken is not None:
                engine.cancel()
                self.log.every_rank(f"Scheduler hit an exception: {scheduler_traceback(broken)}")
                await self._crash()

    async def _crash(self) -> None:
        self.log.say("SIGQUIT received. signum=None, frame=None. It usually means one child failed.")
        self.log.say("Sleeping 5 seconds before crash diagnostics to let GPU activity settle.")
        await asyncio.sleep(CRASH_SETTLE_S / self.speedup)
        self.log.say("No live scheduler processes found; skipping py-spy and CUDA coredump.")
        self._end_tree()

    def _end_tree(self) -> None:
        self.log.say(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
        self.tree.kill()
        sys.stderr.flush()
        kill_self()


def _launch_command(arguments: Sequence[str]) -> str:
    """The arguments as typed, without the values of keys, and without what nobody may know who measures."""
    shown, hide = [], False
    for word in arguments:
        shown.append("<redacted>" if hide else word)
        hide = word in {"--api-key", "--admin-api-key", HIDDEN_FLAG}
        if word.startswith(("--api-key=", "--admin-api-key=", f"{HIDDEN_FLAG}=")):
            shown[-1] = word.partition("=")[0] + "=<redacted>"
    return shlex.join(shown)


def _noise(flags: EmulatorFlags) -> Noise | None:
    """Of this start: a trial's is the same whenever it is run, any other process is one by itself."""
    if flags.noise is None:
        return None
    return Noise(flags.noise, socket.gethostname(), os.environ.get(TRIAL_MARK) or f"process {os.getpid()}")


def _metrics(settings: Settings, plan: MemoryPlan, profile: Profile) -> Metrics:
    metrics = Metrics(str(settings.args["served_model_name"]), settings.speculating)
    metrics.gauges |= {
        "kv_available_tokens": plan.kv_tokens,
        "new_token_ratio": NEW_TOKEN_RATIO,
        "num_pages": plan.kv_tokens // settings.args["page_size"],
        "max_total_num_tokens": plan.kv_tokens,
        "context_len": settings.context_length,
        "page_size": settings.args["page_size"],
        "weight_memory_usage_gb": plan.weights_gib,
        "kv_cache_memory_usage_gb": plan.kv_gib,
        "startup_available_gpu_memory_gb": plan.available_gib,
        "spec_num_steps": settings.num_steps,
        "spec_num_draft_tokens": settings.draft_tokens if settings.speculating else 0,
    }
    metrics.graph_gib = dict.fromkeys(PHASES, 0.0) | {graph.metric: graph.cost_gib for graph in plan.graphs}
    seconds = startup_seconds(plan, profile)
    metrics.startup = {name: value for name, value in seconds.items() if name != "cuda_graph"}
    metrics.startup_graphs = seconds["cuda_graph"]
    return metrics
