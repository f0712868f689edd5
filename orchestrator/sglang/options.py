"""SGLang's server options, release by release: names, types and choices, as its own argument parser declares them.

The tables beside this file were printed by the parsers of the releases themselves (`tests/dialects`). Settings in a
scenario use the names of the newest: the `dest` column of its table, e.g. `speculative_num_steps`.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from pathlib import Path

TABLES = Path(__file__).with_name("sglang_options")

SettingValue = str | int | float | bool

# Oldest first. Between two of them SGLang's options are those of the lower one as far as known.
RELEASES = ("0.5.9", "0.5.12", "0.5.13", "0.5.14", "0.5.15", "0.5.19", "0.5.21", "0.5.23")
NEWEST = RELEASES[-1]

# Switches of older releases that became a value of another option: name -> (its name today, its value for `true`).
BECAME_VALUE = {
    "disable_piecewise_cuda_graph": ("cuda_graph_backend_prefill", "disabled"),
    "enable_breakable_cuda_graph": ("cuda_graph_backend_prefill", "breakable"),
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
    "nnodes": "give it as slots.nnodes: hosts per server",
    "node_rank": "Specsweep starts every rank of a server itself; give slots.nnodes",
    "dist_init_addr": "Specsweep chooses where the ranks of a server meet; give slots.nnodes",
    "config": "settings come from the scenario, so that what was asked is recorded",
}


# Sizes of something that there is: 0 or less of them ends every start, by a division or an empty list.
COUNTS = frozenset({"tp_size", "pp_size", "dp_size", "ep_size", "nnodes", "page_size", "context_length"})


class SettingsFault(ValueError):
    """A setting or a combination that cannot be served; `name` is the setting to change."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(message)
        self.name = name
        self.message = message


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


def _takes(nargs: str) -> str:
    return "flag" if nargs == "0" else "many" if nargs.strip("'") in {"+", "*"} else "one"


def known_options() -> Mapping[str, Option]:
    """Setting name -> option of the newest release, in the parser's order."""
    return options_of(NEWEST)


@cache
def options_of(release: str) -> Mapping[str, Option]:
    """Name -> option of one of RELEASES. Deprecated spellings of an option count as its own if they take as much."""
    options: dict[str, Option] = {}
    for spellings, name, kind, default, choices, nargs, action in _rows(release):
        takes = _takes(nargs)
        if name in options:
            if options[name].takes == takes:
                options[name] = replace(options[name], spellings=(*options[name].spellings, *spellings))
            continue
        allowed = json.loads(choices)
        options[name] = Option(
            name=name,
            spellings=spellings,
            kind=None if kind == "None" else kind,
            default=json.loads(default),
            choices=None if allowed is None else tuple(allowed),
            takes=takes,
            action=action,
        )
    return options


def _rows(release: str) -> Iterator[tuple[tuple[str, ...], str, str, str, str, str, str]]:
    for line in (TABLES / f"{release}.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        options, name, kind, default, choices, nargs, action = line.split("\t")
        spellings = tuple(s for s in options.split("/") if s.startswith("--"))
        if spellings:
            yield spellings, name, kind, default, choices, nargs, action


@cache
def _former_spellings() -> Mapping[str, str]:
    """Other name -> today's name, wherever a release lists both as one option with one arity."""
    found: dict[str, str] = {}
    for release in RELEASES:
        for spellings, name, _, _, _, nargs, _ in _rows(release):
            today = known_options().get(name)
            if today is None or today.takes != _takes(nargs):
                continue
            found |= {other: name for s in spellings if (other := setting_name(s)) not in known_options()}
    return found


@cache
def former_names(name: str) -> tuple[str, ...]:
    """What a setting was or may be called besides."""
    return tuple(other for other, today in _former_spellings().items() if today == name)


def setting_name(spelling: str) -> str:
    """`--some-option` -> `some_option`."""
    return spelling.removeprefix("--").replace("-", "_")


@lru_cache(maxsize=4096)
def canonical_name(name: str) -> str:
    """The name that the newest parser knows for a setting, whatever release its spelling comes from."""
    plain = setting_name(name)
    if plain in BECAME_VALUE:
        return BECAME_VALUE[plain][0]
    return _former_spellings().get(plain, plain)


def nearest(name: str, known: list[str]) -> str | None:
    """The valid name that a misspelt one most likely meant, if any is close."""
    found = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, known: list[str]) -> str:
    """What to add to a message about a misspelt name; empty where no valid one is close."""
    hint = nearest(name, known)
    return f"; did you mean '{hint}'?" if hint else ""


def unknown_name(name: str, release: str) -> str:
    """What is wrong with a name that no option of a release has, and what may have been meant."""
    known = options_of(release)
    elsewhere = [r for r in RELEASES if name in options_of(r)]
    if elsewhere:
        span = elsewhere[0] if len(elsewhere) == 1 else f"{elsewhere[0]} to {elsewhere[-1]}"
        return f"is no option of SGLang {release} (there from {span}; rule: release-lacks-option)"
    longer = sorted({setting_name(s) for o in known.values() for s in o.spellings if setting_name(s).startswith(name)})
    hint = nearest(name, list(known))
    if longer and longer != [hint]:
        either = f"'{longer[0]}'" if len(longer) == 1 else f"one of {', '.join(longer[:6])}"
        return f"is an abbreviation, which argparse may find ambiguous: write {either}"
    return f"is not an SGLang {release} server option{did_you_mean(name, list(known))}"


def value_fault(option: Option, value: object) -> str | None:
    """Why the parser of a release would refuse a value for its option."""
    if option.takes == "flag":
        return None if isinstance(value, bool) else f"is a switch: true or false, not {value!r}"
    if option.takes == "many":
        if isinstance(value, bool | dict) or value is None:
            return "takes a list"
        each = value if isinstance(value, list | tuple) else (value,)
        return next((fault for one in each if (fault := _one_value_fault(option, one))), None)
    return _one_value_fault(option, value)


def _one_value_fault(option: Option, value: object) -> str | None:
    """Why a value would be refused as the only one, or as one of several."""
    if isinstance(value, bool | list | tuple | dict) or value is None:
        return f"takes one {option.kind or 'value'}, not {value!r}"
    if option.choices is not None and value not in option.choices and str(value) not in map(str, option.choices):
        return f"is {value!r}, allowed: {', '.join(map(str, option.choices))}"
    if option.kind == "int" and (not isinstance(value, int)):
        return f"takes a whole number, not {value!r}"
    if option.kind == "float" and not isinstance(value, int | float):
        return f"takes a number, not {value!r}"
    if option.name in COUNTS and isinstance(value, int) and value < 1:
        return f"is {value}; it must be 1 or more"
    return None
