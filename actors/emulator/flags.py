"""SGLang's own command line, rebuilt from the option table, and the flags that only the emulator knows."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from actors.emulator.noise import HIDDEN_FLAG, NoiseLevels
from actors.emulator.worse_build import UNCHANGED, BuildChange, factor
from orchestrator.sglang.options import Option, known_options

_SUFFIX = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_SUFFIX |= {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_GRAPH_BACKENDS = ("full", "breakable", "disabled")


@dataclass(frozen=True, slots=True)
class EmulatorFlags:
    """Start-up is `start_speedup` times shorter than modelled; the timing of tokens never is."""

    profile: str | None
    start_speedup: float
    seed: int
    faults: str | None = None
    noise: NoiseLevels | None = None
    change: BuildChange = UNCHANGED


def human_readable_int(text: str) -> int:
    """A whole number with an optional suffix: `64k` is 64000, `64Ki` is 65536; `64K` is refused."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(k|m|g|t|Ki|Mi|Gi|Ti)?", text.strip())
    if match is None:
        raise argparse.ArgumentTypeError(f"invalid human-readable integer: {text!r}")
    return int(float(match[1]) * _SUFFIX[match[2] or ""])


def _graph_backend(text: str) -> str:
    if text == "tc_piecewise":
        raise argparse.ArgumentTypeError("tc_piecewise was removed; select breakable, full, or disabled")
    return text


def _json_list(text: str) -> list[Any]:
    value = json.loads(text)
    if not isinstance(value, list):
        raise argparse.ArgumentTypeError(f"expected a JSON list, got {text!r}")
    return value


def _nullable_str(text: str) -> str | None:
    return None if text in {"", "None", "none", "null"} else text


_CONVERTERS: dict[str, Any] = {
    "int": int,
    "float": float,
    "str": str,
    "type": str,
    "human_readable_int": human_readable_int,
    "loads": json.loads,
    "json_list_type": _json_list,
    "nullable_str": _nullable_str,
    "parse_cuda_graph_backend_arg": _graph_backend,
    "parse_cuda_graph_config_arg": json.loads,
}


class _DeprecatedFlag(argparse.Action):
    """Accepted, with the warning that SGLang prints."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> None:
        sys.stderr.write(
            f"\033[33m'{self.option_strings[0]}' is deprecated and will be removed in a future release.\033[0m\n"
        )
        setattr(namespace, self.dest, True)


def _add(parser: argparse.ArgumentParser, option: Option) -> None:
    common: dict[str, Any] = {"dest": option.name, "default": option.default}
    if option.action == "BooleanOptionalAction":
        positive = [spelling for spelling in option.spellings if not spelling.startswith("--no-")]
        parser.add_argument(*positive, action=argparse.BooleanOptionalAction, **common)
    elif option.action == "DeprecatedStoreTrueAction":
        parser.add_argument(*option.spellings, action=_DeprecatedFlag, nargs=0, **common)
    elif option.takes == "flag":
        parser.add_argument(*option.spellings, action="store_true", **common)
    else:
        nargs = "+" if option.takes == "many" else None
        choices = _GRAPH_BACKENDS if option.kind == "parse_cuda_graph_backend_arg" else option.choices
        convert = _CONVERTERS[option.kind or "str"]
        parser.add_argument(*option.spellings, type=convert, nargs=nargs, choices=choices, **common)


def server_parser() -> argparse.ArgumentParser:
    """The parser of SGLang 0.5.23: same spellings, prefixes, ambiguities and choices."""
    parser = argparse.ArgumentParser(prog="sglang serve")
    for option in known_options().values():
        _add(parser, option)
    return parser


def _emulator_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--emulator-profile", default=None)
    parser.add_argument("--emulator-start-speedup", type=float, default=1.0)
    parser.add_argument("--emulator-seed", type=int, default=0)
    parser.add_argument("--emulator-faults", default=None)
    for name in ("slowdown", "kv-share", "accept-share"):
        parser.add_argument(f"--emulator-{name}", type=factor, default=1.0)
    parser.add_argument(HIDDEN_FLAG, type=NoiseLevels.of_text, default=None)
    return parser


def _with_config_file(argv: list[str]) -> list[str]:
    """Flags of a `--config FILE.yaml` before all others, each value as its text, the way SGLang merges them."""
    if "--config" not in argv[:-1]:
        return argv
    place = argv.index("--config")
    told = yaml.safe_load(Path(argv[place + 1]).read_text(encoding="utf-8")) or {}
    merged: list[str] = []
    for name, value in told.items():
        values = [] if value is True else value if isinstance(value, list) else [value]
        merged += [f"--{name}", *map(str, values)]
    return [*merged, *argv[:place], *argv[place + 2 :]]


def parse_flags(argv: Sequence[str]) -> tuple[EmulatorFlags, dict[str, Any]]:
    """The emulator's own flags, and every SGLang option by its setting name. Exits with 2 as argparse does."""
    own, rest = _emulator_parser().parse_known_args(argv)
    if own.emulator_start_speedup <= 0:
        _emulator_parser().error("--emulator-start-speedup must be above 0")
    parser = server_parser()
    values = vars(parser.parse_args(_with_config_file(rest)))
    if not values["model_path"]:
        parser.error("the following arguments are required: --model-path/--model")
    change = BuildChange(own.emulator_slowdown, own.emulator_kv_share, own.emulator_accept_share)
    flags = EmulatorFlags(
        own.emulator_profile, own.emulator_start_speedup, own.emulator_seed, own.emulator_faults, own.emulator_noise,
        change,
    )  # fmt: skip
    return flags, values
