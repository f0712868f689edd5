"""SGLang's server options: names, types and choices, as its own argument parser of 0.5.23 declares them.

The table beside this file was printed from that parser (531 rows). Settings in a scenario use the names
in its `dest` column, e.g. `speculative_num_steps`.
"""

from __future__ import annotations

import ast
import difflib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

TABLE = Path(__file__).with_name("sglang-options-0.5.23.tsv")

SettingValue = str | int | float | bool

# Spellings of releases before 0.5.21 and the name that the installed parser knows (0.5.21 dropped the old ones).
RENAMED = {
    "cuda_graph_max_bs": "cuda_graph_max_bs_decode",
    "cuda_graph_bs": "cuda_graph_bs_decode",
    "mamba_scheduler_strategy": "mamba_radix_cache_strategy",
    "stream_output": "incremental_streaming_output",
    "speculative_dflash_draft_window_size": "speculative_draft_window_size",
}

# Set by Specsweep itself for every server; a scenario that set them would break ports, ownership or the numbers.
OWNED = {
    "host": "Specsweep chooses the address",
    "port": "Specsweep chooses a free port for each server",
    "model_path": "give it as model.path",
    "nccl_port": "Specsweep leaves it to SGLang, so that servers on one host do not clash",
    "enable_metrics": "always on, since accept length is read from the metrics",
    "api_key": "secrets do not belong into settings; attach to a server with an API key by environment variable",
    "admin_api_key": "secrets do not belong into settings",
    "config": "settings come from the scenario, so that what was asked is recorded",
}


@dataclass(frozen=True, slots=True)
class Option:
    """One server option. `kind` is the parser's converter name; `takes` is 'flag', 'one' or 'many' values."""

    name: str
    spellings: tuple[str, ...]
    kind: str | None
    default: object
    choices: tuple[object, ...] | None
    takes: str
    action: str

    @property
    def flag(self) -> str:
        """The spelling that we type: the one made of the setting's own name, else the first."""
        own = "--" + self.name.replace("_", "-")
        return own if own in self.spellings else self.spellings[0]


def _literal(text: str) -> object:
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return None
    return value


def _takes(nargs: str, action: str) -> str:
    if action != "_StoreAction" and nargs in {"0", "None"} and "Store" in action and "Path" not in action:
        return "flag"
    if action == "BooleanOptionalAction":
        return "flag"
    return "many" if nargs in {"'+'", "'*'", "+", "*"} else "one"


@cache
def known_options() -> dict[str, Option]:
    """Setting name -> option, in the parser's order."""
    options: dict[str, Option] = {}
    for line in TABLE.read_text(encoding="utf-8").splitlines()[1:]:
        spellings, name, kind, default, choices, nargs, action = line.split("\t")
        if not spellings.startswith("--") or name in options:
            continue
        allowed = _literal(choices)
        options[name] = Option(
            name=name,
            spellings=tuple(s for s in spellings.split("/") if s.startswith("--")),
            kind=None if kind == "None" else kind,
            default=_literal(default),
            choices=tuple(allowed) if isinstance(allowed, list) else None,
            takes=_takes(nargs, action),
            action=action,
        )
    return options


def canonical_name(name: str) -> str:
    """The name that the current parser knows for a setting, whatever release its spelling comes from."""
    plain = name.removeprefix("--").replace("-", "_")
    return RENAMED.get(plain, plain)


def nearest(name: str, known: list[str]) -> str | None:
    """The valid name that a misspelt one most likely meant, if any is close."""
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else None


def setting_fault(name: str, value: object) -> str | None:
    """Why a setting cannot be given to a server, or None if SGLang's parser would take it."""
    canonical = canonical_name(name)
    if canonical in OWNED:
        return f"is not a setting to sweep: {OWNED[canonical]}"
    option = known_options().get(canonical)
    if option is None:
        hint = nearest(canonical, list(known_options()))
        meant = f"; did you mean '{hint}'?" if hint else ""
        return f"is not an SGLang 0.5.23 server option{meant}"
    return _value_fault(option, value)


def _value_fault(option: Option, value: object) -> str | None:
    if option.takes == "flag":
        return None if isinstance(value, bool) else f"is a switch: true or false, not {value!r}"
    if option.takes == "many":
        return None if isinstance(value, list | tuple) or not isinstance(value, bool) else "takes a list"
    if isinstance(value, bool | list | tuple | dict) or value is None:
        return f"takes one {option.kind or 'value'}, not {value!r}"
    if option.choices is not None and value not in option.choices and str(value) not in map(str, option.choices):
        return f"is {value!r}, allowed: {', '.join(map(str, option.choices))}"
    if option.kind == "int" and (not isinstance(value, int)):
        return f"takes a whole number, not {value!r}"
    if option.kind == "float" and not isinstance(value, int | float):
        return f"takes a number, not {value!r}"
    return None
