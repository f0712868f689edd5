"""The real argument parser of one SGLang release: print its options, or ask it about command lines. Nothing is served.

    PYTHONPATH=.sglang-dialects/0.5.15 .sglang-cpu/venv/bin/python -m tests.dialects.server_parser options
    ... server_parser parse < command_lines.json      # [["--model-path", "m", ...], ...]

`options` prints the table that `orchestrator/sglang/sglang_options/` holds (PYTHONHASHSEED=0: some choices are sets).
`parse` prints {"options": that table, "answers": [...]} with one answer a command line: {"values": {...}} as the parser
understood it, or {"error": "..."} as it refused it.
Standard library only, besides what that release imports itself.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import logging
import sys
import warnings
from typing import Any

HEAD = ("options", "dest", "type", "default", "choices", "nargs", "action")


def real_parser() -> argparse.ArgumentParser:
    """The parser of the SGLang that is first on sys.path."""
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    _accept_known_models()
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="launch_server")
    ServerArgs.add_cli_args(parser)
    return parser


def _accept_known_models() -> None:
    """Releases before 0.5.19 bring model types that a newer transformers has itself and so refuses to take."""
    from transformers import AutoConfig

    register = AutoConfig.register

    def lenient(model_type: str, config: Any, exist_ok: bool = False) -> None:
        del exist_ok
        register(model_type, config, exist_ok=True)

    AutoConfig.register = staticmethod(lenient)


def rows(parser: argparse.ArgumentParser) -> list[tuple[str, ...]]:
    """The table, one row an option, in the parser's order."""
    return [
        (
            "/".join(action.option_strings),
            action.dest,
            str(getattr(action.type, "__name__", action.type)),
            json.dumps(action.default),
            json.dumps(None if action.choices is None else list(action.choices)),
            repr(action.nargs),
            type(action).__name__,
        )
        for action in parser._actions
        if action.dest != "help"
    ]


def answer(parser: argparse.ArgumentParser, argv: list[str]) -> dict[str, Any]:
    """What the parser makes of one command line."""
    said = io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(io.StringIO()):
            known = parser.parse_args(argv)
    except SystemExit:
        return {"error": said.getvalue().strip().splitlines()[-1]}
    except Exception as error:  # noqa: BLE001 - an action of theirs may raise anything; that is a refusal as well
        return {"error": f"{type(error).__name__}: {error}"}
    return {"values": json.loads(json.dumps(vars(known), default=str))}


def main() -> None:
    out, sys.stdout = sys.stdout, sys.stderr  # what their imports print is not our answer
    parser = real_parser()
    table = "\n".join("\t".join(row) for row in [HEAD, *rows(parser)]) + "\n"
    if sys.argv[1:] == ["options"]:
        out.write(table)
    elif sys.argv[1:] == ["parse"]:
        answers = [answer(parser, argv) for argv in json.load(sys.stdin)]
        json.dump({"options": table, "answers": answers}, out)
    else:
        raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
