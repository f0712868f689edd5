"""The commands about results outside of one run: import-points."""

from __future__ import annotations

from pathlib import Path

import click

from orchestrator.terminal import console

_PATH = click.Path(path_type=Path)


@click.command("import-points")
@click.argument("file", type=_PATH)
@click.option(
    "--from", "kind", type=click.Choice(["vllm", "bench_serving", "guidellm", "aiperf"]),
    help="Which client wrote it; default: told by its content.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="For machines.")
def import_points(file: Path, kind: str | None, as_json: bool) -> None:
    """Show the results of another load client (FILE) under the names of our metrics.

    Read are SGLang's bench_serving (JSON lines), vLLM's bench serve, GuideLLM and AIPerf (JSON).
    """
    from orchestrator.import_command import import_and_print

    import_and_print(file, kind, as_json=as_json, console=console())


EXCHANGE_COMMANDS = (import_points,)
