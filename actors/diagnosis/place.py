"""Which part of the start (or of serving) a traceback broke in, by the files and functions of its frames. Pure."""

from __future__ import annotations

import re

from orchestrator.outcome import Phase

# A frame that a terminal wrapped has its line and function on the next line.
FRAME = re.compile(r'^\s*File "(?P<file>[^"]+)",?(?: line \d+(?:,? in (?P<function>[\w<>]+))?)?')
_BEGIN_OF_FRAME = re.compile(r'^\s*File "')
REST_OF_FRAME = re.compile(r"^\s*line \d+,? in (?P<function>[\w<>]+)")
# First match wins.
_PLACES = (
    (Phase.GRAPH_DRAFT, re.compile(r"draft\w*_(?:cuda|npu)_graph_runner|draft_extend\w*graph")),
    (
        Phase.GRAPH_TARGET,
        re.compile(
            r"(?:cuda|npu|hip|cpu)_graph_runner|torch/cuda/graphs|compilation/cuda_graph"
            r"| (?:init_(?:cuda|device)_graphs?|register_graph_buffers|capture_model|_?capture_cudagraphs"
            r"|compile_or_warm_up_model)$"
        ),
    ),
    (
        Phase.SERVING,
        re.compile(
            r" (?:event_loop\w*|run_event_loop|run_batch|forward_batch_generation|run_busy_loop"
            r"|loop_for_forward|exposed_step|forward_thread_func_?|forward_step|forward_(?:decode|prefill|fill)_batch"
            r"|get_next_batch_to_run|get_new_batch_prefill|prepare_for_(?:extend|decode)|move_ready_grammar_requests"
            r"|process_batch_result\w*|process_input_requests|recv_requests|self_check_during_idle|transfer_worker"
            r"|run_engine_loop|engine_step|get_embedding_and_mask)$"
        ),
    ),
    (Phase.STATE_POOL, re.compile(r" _init_mamba_pool$|mamba_pool\.py|swa_memory_pool\.py")),
    (
        Phase.KV_POOL,
        re.compile(
            r"mem_cache/(?!memory_pool_host)\w*(?:pool|configurator)|pool_configurator| (?:init"
            r"|alloc)_memory_pool$|_?(?:initialize|allocate)_kv_cache\w*$"
        ),
    ),
    (
        Phase.WEIGHTS,
        re.compile(
            r"model_loader/| load_model$| create_weights$| get_model$| process_weights_after_loading$"
            r"|/(?:models|layers)/(?!attention/)\S*\.py __init__$"
        ),
    ),
    (
        Phase.DIST_INIT,
        re.compile(
            r" (?:init_torch_distributed|init_distributed_environment|initialize_model_parallel|ncclCommInitRank)$"
        ),
    ),
    (Phase.ARGS, re.compile(r"server_args\.py|/arg_groups/")),
)
# The host's side of a cache in tiers: its memory is the host's.
_HOST_POOL = re.compile(r"memory_pool_host|hicache|pin_memory|cudaHostRegister|host_memory")
# The worker that holds the draft model: what it loads and captures is the draft's.
_DRAFT_WORKER = re.compile(r"speculative/\w*worker\w*\.py")
# The HTTP layer: what breaks there broke one request.
_REQUEST = re.compile(r"/(?:uvicorn|starlette|fastapi)/|/entrypoints/(?:openai/|http_server\.py)")
_STARTING = re.compile(r"(?:scheduler|tp_worker\w*|model_runner)\.py __init__$")


class Frames:
    """Puts the frames of tracebacks together again that a terminal cut, between words or anywhere."""

    def __init__(self) -> None:
        self._begun = ""

    @property
    def is_open(self) -> bool:
        """Whether the next line may belong to a frame."""
        return bool(self._begun)

    def told(self, message: str) -> str | None:
        """The frame that this line is or completes, as "file function"; None where it is something else."""
        begun, self._begun = self._begun, ""
        if rest := REST_OF_FRAME.match(message):
            return f"... {rest['function']}"
        if _BEGIN_OF_FRAME.match(message):
            begun = ""
        elif not begun:
            return None
        whole = None
        for glue in ("", " "):
            whole = FRAME.match(begun + glue + message.strip()) or whole
            if whole is not None and whole["function"]:
                return f"{whole['file']} {whole['function']}"
        if begun:  # the second line did not complete it, so it was whole
            return None
        self._begun = message.strip()
        return f"{whole['file']} " if whole is not None else ""


class Place:
    """The place of the traceback that is being read.

    Later frames are deeper. The outermost that names a place decides, but what is inside a graph of the target may be
    the draft's, and what is inside the pools may be the states'.
    """

    def __init__(self) -> None:
        self.phase: Phase | None = None
        self.is_host_pool = False
        self.is_starting = False
        self.is_request = False
        self._is_draft = False

    def take(self, frame: str) -> None:
        """A frame as "file function"."""
        self.is_host_pool = self.is_host_pool or bool(_HOST_POOL.search(frame))
        self.is_starting = self.is_starting or bool(_STARTING.search(frame))
        self.is_request = self.is_request or bool(_REQUEST.search(frame))
        self._is_draft = self._is_draft or bool(_DRAFT_WORKER.search(frame))
        for phase, pattern in _PLACES:
            if pattern.search(frame):
                here = _OF_DRAFT.get(phase, phase) if self._is_draft else phase
                if self.phase is None or (self.phase, here) in _DEEPER:
                    self.phase = here
                return


_OF_DRAFT = {Phase.WEIGHTS: Phase.DRAFT_WEIGHTS, Phase.GRAPH_TARGET: Phase.GRAPH_DRAFT}
_DEEPER = {
    (Phase.GRAPH_TARGET, Phase.GRAPH_DRAFT),
    (Phase.KV_POOL, Phase.STATE_POOL),
}
