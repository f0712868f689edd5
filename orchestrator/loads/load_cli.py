"""The command that loads one running server."""

from __future__ import annotations

from typing import Any

import click

from orchestrator.cli_options import PATH, json_option
from orchestrator.terminal import console


@click.command()
@click.option(
    "--url", required=True, metavar="URL", help="Base URL of the running server, e.g. http://127.0.0.1:30000."
)
@click.option(
    "--api", type=click.Choice(["auto", "generate", "completions", "chat"]), default="auto", show_default=True,
    help="auto: /generate where it is SGLang, else /v1/completions.",
)  # fmt: skip
@click.option(
    "--model", metavar="NAME", help="Model name for the OpenAI APIs; default: the first that the server lists."
)
@click.option(
    "--concurrency", type=click.IntRange(min=1), metavar="N", help="Closed loop: requests in flight; default: 1."
)
@click.option("--request-rate", type=float, metavar="R", help="Open loop: requests per second.")
@click.option("--max-concurrency", type=click.IntRange(min=1), metavar="N", help="Open loop: most requests in flight.")
@click.option("--trace-speed", type=float, metavar="X", help="Open loop: replay a trace X times as fast.")
@click.option(
    "--arrival", type=click.Choice(["poisson", "constant", "gamma"]), help="Open loop: gaps; default: poisson.",
)  # fmt: skip
@click.option("--burstiness", type=float, metavar="B", help="Shape of gamma gaps: 1 is Poisson, less is burstier.")
@click.option("--ramp-s", type=float, default=0.0, metavar="S", help="Seconds in which the load grows from nothing.")
@click.option("--requests", type=click.IntRange(min=1), metavar="N", help="Measured requests.")
@click.option("--duration-s", type=float, metavar="S", help="Measured seconds; default: 30, without --requests.")
@click.option(
    "--warmup-requests",
    type=click.IntRange(min=0),
    metavar="N",
    help="Not counted; default: one for each in flight, and 2 s.",
)
@click.option("--warmup-s", type=float, metavar="S", help="Or: seconds of load that are not counted.")
@click.option("--dataset", default="random_text", show_default=True, metavar="FILE|KIND", help="As in a scenario.")
@click.option(
    "--input-tokens", type=click.IntRange(min=1), default=256, show_default=True, metavar="N", help="Of a prompt."
)
@click.option(
    "--output-tokens", type=click.IntRange(min=1), default=256, show_default=True, metavar="N", help="Of an answer."
)
@click.option(
    "--shared-prefix-tokens", type=click.IntRange(min=0), default=0, metavar="N", help="Of the input, the same for all."
)
@click.option("--temperature", type=float, default=0.0, show_default=True, metavar="T", help="Of the sampling.")
@click.option("--slo", metavar="ttft_ms=..,tpot_ms=..", help="Limits per request, for goodput.")
@click.option("--header", multiple=True, metavar="NAME=VALUE", help="Sent with every request; may be repeated.")
@click.option("--api-key-env", metavar="VAR", help="Environment variable that holds the server's API key.")
@click.option("--processes", type=click.IntRange(1, 64), metavar="N", help="Share the load; default: 1.")
@click.option(
    "--seed", type=click.IntRange(min=0), metavar="N", help="Repeat exactly these prompts; default: fresh ones."
)
@click.option(
    "--timeout-s", type=float, default=600.0, show_default=True, metavar="S", help="Longest time without progress."
)
@click.option("--tokenizer", metavar="DIR", help="Counts the tokens of prompts; default: the server's count of one.")
@click.option("--out", type=PATH, metavar="DIR", help="Keep the requests (Parquet), the result and the client.")
@click.option("--histogram", is_flag=True, help="Show TTFT, TPOT and E2E as histograms.")
@click.option("--export-bench-serving", type=PATH, metavar="FILE", help="Append a line as bench_serving writes it.")
@json_option
def load(**options: Any) -> None:
    """Load one running server, and print the metrics.

    SGLang, or any server with an OpenAI API.
    """
    from orchestrator.loads.load_command import load_and_print
    from orchestrator.loads.load_request import LoadRequest

    load_and_print(LoadRequest(**options), console())
