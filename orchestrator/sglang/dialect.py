"""Settings by their names of today -> the command-line flags of the SGLang release that a host has. Pure.

What a release calls otherwise or cannot say is data: its option table, and the few meanings below that were told in
another way. A setting that a release lacks is refused with the setting, the release and the reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.sglang.options import (
    BECAME_VALUE,
    NEWEST,
    OWNED,
    RELEASES,
    Option,
    SettingsFault,
    canonical_name,
    former_names,
    known_options,
    options_of,
    setting_name,
    unknown_name,
    value_fault,
)


@dataclass(frozen=True, slots=True)
class Expression:
    """How releases up to `until` tell what today is `name: value`. `{value}` in a flag stands for the value."""

    name: str
    value: Any
    flags: tuple[str, ...]
    until: str
    since: str = RELEASES[0]

    def holds(self, name: str, value: Any, release: str) -> bool:
        fits = self.value is ANY or (value == self.value and type(value) is type(self.value))
        return (
            self.name == name
            and fits
            and RELEASES.index(self.since) <= RELEASES.index(release) <= RELEASES.index(self.until)
        )


# Builds of a branch call themselves 0.0.0.dev...
_DEVELOPMENT = (0, 1)
ANY = object()
# Up to 0.5.13 `--disable-cuda-graph` meant the graphs of decode alone; graphs of prefill were opt-in in 0.5.9, and then
# had a switch of their own. Attention-DP was a switch beside the number of data-parallel ranks.
EXPRESSIONS = (
    Expression("cuda_graph_backend_decode", "full", (), "0.5.13"),
    Expression("cuda_graph_backend_decode", "disabled", ("--disable-cuda-graph",), "0.5.13"),
    Expression("cuda_graph_backend_prefill", "disabled", (), "0.5.9"),
    Expression("cuda_graph_backend_prefill", "disabled", ("--disable-piecewise-cuda-graph",), "0.5.13", "0.5.12"),
    Expression("cuda_graph_backend_prefill", "breakable", ("--enable-breakable-cuda-graph",), "0.5.13", "0.5.12"),
    Expression("disable_cuda_graph", True, ("--disable-cuda-graph",), "0.5.9"),
    Expression(
        "disable_cuda_graph", True, ("--disable-cuda-graph", "--disable-piecewise-cuda-graph"), "0.5.13", "0.5.12"
    ),
    Expression("disable_decode_cuda_graph", True, ("--disable-cuda-graph",), "0.5.13"),
    Expression("disable_prefill_cuda_graph", True, (), "0.5.9"),
    Expression("disable_prefill_cuda_graph", True, ("--disable-piecewise-cuda-graph",), "0.5.13", "0.5.12"),
    Expression("attn_dp_size", 1, (), "0.5.21"),
    Expression("attn_dp_size", ANY, ("--enable-dp-attention", "--dp-size", "{value}"), "0.5.21"),
)
# Values that were renamed and meant the same: today's -> the former, used where a release knows only that one.
# (`fp4_e2m1` was the block-16 recipe; `tokenspeed_mla` means more than `cutedsl_mla` and is left as it is.)
FORMER_VALUES = {"dsa": "nsa", "dsv4": "compressed", "fp4_mx_block16": "fp4_e2m1"}
_TODAYS_VALUES = {former: today for today, former in FORMER_VALUES.items()}

# Variables of the server that a release no longer reads, with the releases that did (0.5.9 had it off by default).
GONE_VARIABLES = {
    "SGLANG_ENABLE_SPEC_V2": ("0.5.9", "0.5.13"),
    "SGLANG_CUTLASS_MOE": ("0.5.9", "0.5.15"),
    "SGLANG_ENABLE_FLASHINFER_FP8_GEMM": ("0.5.9", "0.5.9"),
    "SGLANG_FLASHINFER_FP4_GEMM_BACKEND": ("0.5.9", "0.5.9"),
    "SGLANG_SUPPORT_CUTLASS_BLOCK_FP8": ("0.5.9", "0.5.9"),
    "SGLANG_NSA_FUSE_TOPK": ("0.5.9", "0.5.12"),
    "SGLANG_NSA_ENABLE_MTP_PRECOMPUTE_METADATA": ("0.5.9", "0.5.12"),
    "SGLANG_ENABLE_UNIFIED_RADIX_TREE": ("0.5.12", "0.5.19"),
    "SGLANG_EXPERIMENTAL_CPP_RADIX_TREE": ("0.5.9", "0.5.19"),
    "SGLANG_USE_CUTEDSL_GDN_DECODE": ("0.5.9", "0.5.9"),
    "SGLANG_OPT_SWA_RADIX_CACHE_COMPACT": ("0.5.12", "0.5.19"),
    "SGLANG_USE_DYNAMIC_MXFP4_LINEAR": ("0.5.9", "0.5.21"),
}


@dataclass(frozen=True, slots=True)
class Dialect:
    """The options of the release whose table is used for a version."""

    release: str
    version: str

    @property
    def options(self) -> Mapping[str, Option]:
        return options_of(self.release)

    def option(self, name: str) -> Option | None:
        """The option that a setting of today is here, under whatever name; None if there is none."""
        for known_as in (name, *former_names(name)):
            if known_as in self.options:
                return self.options[known_as]
        spelling = "--" + name.replace("_", "-")
        return next((o for o in self.options.values() if spelling in o.spellings), None)


def dialect_of(version: str | None) -> Dialect:
    """The table for a version: its own, else the newest that is not newer; the newest for a version unknown.

    Development builds (0.0.0.dev...) count as newest, anything older than the oldest table as the oldest.
    """
    numbers = release_numbers(version)
    if not numbers or numbers < _DEVELOPMENT:
        return Dialect(NEWEST, version or NEWEST)
    older = [release for release in RELEASES if release_numbers(release) <= numbers]
    return Dialect(older[-1] if older else RELEASES[0], version or NEWEST)


def release_numbers(version: str | None) -> tuple[int, ...]:
    """(0, 5, 15) of `0.5.15.post1` or `v0.5.15rc0`; empty if it does not begin like a version."""
    match = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version or "")
    return tuple(int(n) for n in match.groups() if n is not None) if match else ()


def is_since(version: str | None, first: str) -> bool:
    """Whether a version is this release or a later one: a development build is, an unknown version is not."""
    numbers = release_numbers(version)
    return bool(numbers) and (numbers < _DEVELOPMENT or numbers >= release_numbers(first))


def canonical_setting(name: str, value: Any) -> tuple[str, Any]:
    """A setting under its name of today; the value None, of an old switch that is off, is the server's own default."""
    plain = setting_name(name)
    if plain in BECAME_VALUE:
        today, meaning = BECAME_VALUE[plain]
        return today, meaning if value else None
    today = canonical_name(name)
    option = known_options().get(today)
    return today, value if option is None else _value_there(option, value, _TODAYS_VALUES)


def setting_fault(name: str, value: Any, version: str | None = None) -> str | None:
    """Why a setting cannot be given to a server of a version (None: the newest), or None if its parser takes it."""
    plain = setting_name(name)
    if plain in BECAME_VALUE and not isinstance(value, bool):
        return f"is a switch: true or false, not {value!r}"
    canonical, meaning = canonical_setting(name, value)
    if meaning is None and value is not None:
        return None
    if canonical in OWNED:
        return f"is not a setting to sweep: {OWNED[canonical]}"
    dialect = dialect_of(version)
    if canonical in known_options() and (fault := value_fault(known_options()[canonical], meaning)):
        # An older release may have taken it.
        if version is None or _spelling_fault(canonical, meaning, dialect) is not None:
            return fault
        return None
    return _spelling_fault(canonical, meaning, dialect)


def _spelling_fault(name: str, value: Any, dialect: Dialect) -> str | None:
    try:
        spell({name: value}, dialect)
    except SettingsFault as fault:
        return fault.message
    return None


def spell(settings: Mapping[str, Any], dialect: Dialect) -> tuple[str, ...]:
    """The flags of a release for settings by their names of today, in their order.

    SettingsFault, naming the setting and the release, for what the release cannot be told.
    """
    if (settings.get("attn_dp_size") or 1) > 1 and "attn_dp_size" not in dialect.options:
        settings = _without_same_dp(settings, dialect)
    given = ((name, value) for name, value in settings.items() if value is not None)
    return tuple(word for name, value in given for word in _words(name, value, dialect))


def _without_same_dp(settings: Mapping[str, Any], dialect: Dialect) -> dict[str, Any]:
    """Where attention-DP is told by `--dp-size`, that flag cannot mean something else as well."""
    ranks = settings.get("dp_size", settings["attn_dp_size"])
    if ranks != settings["attn_dp_size"]:
        raise SettingsFault(
            "attn_dp_size",
            f"is {settings['attn_dp_size']} with dp_size {ranks}: SGLang {dialect.version} has one number for both "
            "(rule: one-dp-size)",
        )
    return {name: value for name, value in settings.items() if name not in {"dp_size", "enable_dp_attention"}}


def _words(name: str, value: Any, dialect: Dialect) -> tuple[str, ...]:
    for expression in EXPRESSIONS:
        if expression.holds(name, value, dialect.release):
            return tuple(word.format(value=value) for word in expression.flags)
    option = dialect.option(name)
    if option is None:
        if value is False:  # what a release does not have is off
            return ()
        raise SettingsFault(name, unknown_name(name, dialect.release))
    value = _value_there(option, value, FORMER_VALUES)
    if fault := value_fault(option, value):
        told = "" if dialect.release == NEWEST else f", by SGLang {dialect.version} (rule: release-lacks-value)"
        raise SettingsFault(name, fault + told)
    return _flags(option, name, value)


def _value_there(option: Option, value: Any, other_words: Mapping[str, str]) -> Any:
    """A value that a parser lacks in the other word for it, if the parser has that one."""
    if not isinstance(value, str) or option.choices is None or value in option.choices:
        return value
    other = other_words.get(value)
    return other if other in option.choices else value


def _flags(option: Option, name: str, value: Any) -> tuple[str, ...]:
    own = "--" + name.replace("_", "-")
    flag = own if own in option.spellings else option.flag
    if isinstance(value, bool):
        return (flag,) if value else _denial(option)
    if isinstance(value, tuple | list):
        return (flag, *map(str, value))
    return (flag, str(value))


def _denial(option: Option) -> tuple[str, ...]:
    """The flag that says no; plain switches are denied by their absence."""
    return tuple(spelling for spelling in option.spellings if spelling.startswith("--no-"))[:1]


def ignored_variables(env: Mapping[str, str], version: str | None) -> list[str]:
    """Variables of the environment that a version does not read any more, each with the releases that did."""
    numbers = release_numbers(version)
    return [
        f"{name} is not read by SGLang {version} (it was from {first} to {last})"
        for name, (first, last) in GONE_VARIABLES.items()
        if name in env and numbers and numbers > release_numbers(last)
    ]
