#!/usr/bin/env python3
"""llama.cpp's own HTTP server, from the package xllamacpp, behind a command line like that of `llama-server`.

The package has the server but no command. Runs until SIGTERM or SIGINT. A server that cannot start ends with exit code
1 and a line that begins with `error:`; the reasons are in llama.cpp's log lines before it.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading

import xllamacpp

NGRAM_KINDS = ("ngram_simple", "ngram_map_k", "ngram_map_k4v", "ngram_mod")
KINDS = ("none", "draft_simple", *NGRAM_KINDS)
# Requests are short; a larger batch only takes memory.
BATCH = 512


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    """The command line; exit code 2 for one that cannot be served."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0], allow_abbrev=False)
    parser.add_argument("-m", "--model", required=True, help="GGUF file")
    parser.add_argument("-a", "--alias", default="model", help="name of the model in /v1/models")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("-c", "--ctx-size", type=int, default=8192, help="tokens of all slots together")
    parser.add_argument("-np", "--parallel", type=int, default=4, help="slots: requests that run at once")
    parser.add_argument("-t", "--threads", type=int, default=2)
    parser.add_argument("--spec-type", choices=KINDS, default="none", help="what drafts")
    parser.add_argument("-md", "--model-draft", help="GGUF file of the draft model (draft_simple)")
    parser.add_argument("--draft-max", type=int, default=3, help="most tokens that the draft model proposes at once")
    parser.add_argument("--ngram-n", type=int, default=3, help="length of the n-gram that is looked up")
    parser.add_argument("--ngram-m", type=int, default=8, help="tokens proposed after a hit")
    given = parser.parse_args(words)
    if (given.spec_type == "draft_simple") != (given.model_draft is not None):
        parser.error("--spec-type draft_simple and --model-draft go together")
    # llama.cpp would start, draft nothing, and not say a word about it.
    if given.spec_type == "ngram_simple" and given.ngram_m < given.ngram_n:
        parser.error(f"--ngram-m {given.ngram_m} is below --ngram-n {given.ngram_n}: ngram_simple would never draft")
    return given


def parameters(given: argparse.Namespace) -> xllamacpp.CommonParams:
    """The server's parameters. No prompt cache in host memory and no look at the network."""
    p = xllamacpp.CommonParams()
    p.model.path, p.model_alias = given.model, {given.alias}
    p.hostnames = [given.host] if isinstance(p.hostnames, list) else given.host
    p.port, p.n_ctx, p.n_parallel = given.port, given.ctx_size, given.parallel
    p.n_batch = p.n_ubatch = BATCH
    p.cpuparams.n_threads = p.cpuparams_batch.n_threads = given.threads
    p.endpoint_metrics = p.cont_batching = p.use_jinja = p.offline = True
    p.cache_ram_mib = 0
    if given.spec_type != "none":
        _speculate(p.speculative, given)
    return p


def _speculate(speculative: xllamacpp.CommonParamsSpeculative, given: argparse.Namespace) -> None:
    kind = f"COMMON_SPECULATIVE_TYPE_{given.spec_type.upper()}"
    speculative.types = [getattr(xllamacpp.common_speculative_type, kind)]
    if given.model_draft is not None:
        speculative.draft.mparams.path = given.model_draft
        # A draft of every length up to the most, however sure the draft model is.
        speculative.draft.n_max, speculative.draft.n_min, speculative.draft.p_min = given.draft_max, 0, 0.0
    for name in ("ngram_simple", "ngram_map_k", "ngram_map_k4v"):
        table = getattr(speculative, name)
        table.size_n, table.size_m = given.ngram_n, given.ngram_m
    speculative.ngram_mod.n_match, speculative.ngram_mod.n_max = given.ngram_n, given.ngram_m
    speculative.ngram_mod.n_min = 1


def main() -> None:
    """Serve until a signal comes."""
    given = arguments()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        server = xllamacpp.Server(parameters(given))
    except (RuntimeError, ValueError) as error:
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
        os._exit(1)  # llama.cpp's threads may live
    sys.stdout.write(f"serving on {server.listening_address}\n")
    sys.stdout.flush()
    stop.wait()
    os._exit(0)


if __name__ == "__main__":
    main()
