"""What a server was asked for against what it says that it runs: silent changes, and servers that are the same. Pure.

SGLang resolves its arguments after parsing, and caps some when it knows its memory; `/server_info` has the result. What
is ranked is what ran, so every difference is told, and configs that came to the same server are one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from orchestrator.sglang.options import canonical_name, former_names, known_options
from orchestrator.trial import content_hash

# Other words for the same choice: SGLang resolves the left to the right.
_SAME_VALUE = {
    "NEXTN": "EAGLE",
    "nsa": "dsa",
    "compressed": "dsv4",
    "tokenspeed_mla": "cutedsl_mla",
    "bfloat16": "bf16",
}
# What differs between any two starts, or says nothing about how the server computes.
_NO_MATTER = frozenset(
    {
        "host", "port", "nccl_port", "dist_init_addr", "random_seed", "api_key", "admin_api_key", "base_gpu_id",
        "log_level", "log_level_http", "log_requests", "log_requests_level", "log_requests_format", "config",
        "log_requests_target", "decode_log_interval", "served_model_name", "enable_metrics", "crash_dump_folder",
        "engine_info_bootstrap_port", "disaggregation_bootstrap_port", "encoder_bootstrap_port",
    }
)  # fmt: skip
# Kernels and memory layout; where they are left open, SGLang may choose differently for configs of one sweep.
TELLING = (
    "attention_backend", "prefill_attention_backend", "decode_attention_backend", "page_size", "kv_cache_dtype",
    "chunked_prefill_size", "cuda_graph_backend_decode", "cuda_graph_backend_prefill", "disable_cuda_graph",
    "disable_overlap_schedule", "disable_radix_cache", "enable_mixed_chunk", "moe_runner_backend", "sampling_backend",
    "fp4_gemm_runner_backend", "fp8_gemm_runner_backend", "mem_fraction_static", "speculative_draft_attention_backend",
    "mamba_radix_cache_strategy", "linear_attn_backend", "schedule_policy",
)  # fmt: skip
# Asked in one way, told by the account in another.
_TOLD_ELSEWHERE: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "enable_dp_attention": lambda resolved: (resolved.get("attn_dp_size") or 1) > 1,
    "disable_cuda_graph": lambda resolved: resolved.get("cuda_graph_backend_decode") == "disabled",
}


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One setting that the server runs with another value than it was asked for; `why` where it can be told."""

    name: str
    asked: Any
    resolved: Any
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name} {_shown(self.asked)} asked, {_shown(self.resolved)} run" + (
            f" ({self.why})" if self.why else ""
        )

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "asked": self.asked, "resolved": self.resolved, "why": self.why}


def setting_changes(asked: Mapping[str, Any], resolved: Mapping[str, Any]) -> tuple[SettingChange, ...]:
    """Every asked setting that came out otherwise, by the server's own account (`/server_info`, any release).

    A setting that the account does not mention is not compared; an empty account gives no changes.
    """
    changes = []
    for name, value in sorted(asked.items()):
        if name in _NO_MATTER or name.endswith("_path") or _is_open(value) or name not in known_options():
            continue
        found = told_value(name, resolved, _ABSENT)
        if found is _ABSENT or _same(value, found):
            continue
        if value is True and name in _TOLD_ELSEWHERE and _TOLD_ELSEWHERE[name](resolved):
            continue
        changes.append(SettingChange(name, value, found))
    changes += _capped(asked, resolved)
    return tuple(changes)


def _capped(asked: Mapping[str, Any], resolved: Mapping[str, Any]) -> list[SettingChange]:
    """Limits that memory lowered after the arguments were resolved, and graphs that are off without being asked."""
    found = []
    running, tokens = effective_running_requests(resolved), resolved.get("max_total_num_tokens")
    wanted = asked.get("max_running_requests")
    told = resolved.get("max_running_requests")
    if running is not None and isinstance(wanted, int) and running < wanted and _same(told, wanted):
        found.append(SettingChange("max_running_requests", wanted, running, _why_capped(running, tokens, resolved)))
    limit = asked.get("max_total_tokens")
    if isinstance(limit, int) and isinstance(tokens, int) and 0 < tokens < limit:
        found.append(SettingChange("max_total_tokens", limit, tokens, "the KV cache holds no more"))
    on_gpu = asked.get("device", resolved.get("device")) != "cpu"
    # Where the backend was asked for, it is among the plain differences.
    if on_gpu and _graphs_off(resolved) and not _graphs_off(asked) and "cuda_graph_backend_decode" not in asked:
        found.append(SettingChange("cuda_graph_backend_decode", "auto", "disabled", "decode runs without graphs"))
    return found


def _why_capped(running: int, tokens: Any, resolved: Mapping[str, Any]) -> str:
    if isinstance(tokens, int) and running == tokens // 2:
        return f"the KV cache holds {tokens} tokens"
    if resolved.get("max_mamba_cache_size") or "mamba" in str(resolved.get("linear_attn_backend") or ""):
        return "capped by the mamba state cache"
    return "capped by memory"


def _graphs_off(settings: Mapping[str, Any]) -> bool:
    return settings.get("cuda_graph_backend_decode") == "disabled" or settings.get("disable_cuda_graph") is True


def effective_running_requests(resolved: Mapping[str, Any]) -> int | None:
    """Requests that all data-parallel ranks together run at once, as they found when their memory was known."""
    states = [s for s in resolved.get("internal_states") or () if isinstance(s, Mapping)]
    each = [s.get("effective_max_running_requests_per_dp") for s in states]
    known = [n for n in each if isinstance(n, int)]
    return sum(known) if known and len(known) == len(each) else None


def _is_open(value: Any) -> bool:
    return value is None or value == "auto"


class _Absent:
    pass


_ABSENT = _Absent()


def told_value(name: str, resolved: Mapping[str, Any], absent: Any = None) -> Any:
    """The value under the setting's name, or under the one that older releases have for it."""
    for spelling in (name, *former_names(name)):
        if spelling in resolved:
            return resolved[spelling]
    return absent


def _same(asked: Any, resolved: Any) -> bool:
    if asked is False and resolved is None:
        return True
    if isinstance(asked, list | tuple) or isinstance(resolved, list | tuple):
        return _listed(asked) == _listed(resolved)
    if isinstance(asked, bool) or isinstance(resolved, bool):
        return bool(asked == resolved)
    if isinstance(asked, int | float) and isinstance(resolved, int | float):
        return abs(asked - resolved) < 1e-9
    left, right = (_SAME_VALUE.get(str(v), str(v)) for v in (asked, resolved))
    return left.lower() == right.lower()


def _listed(value: Any) -> list[str]:
    return [str(v) for v in value] if isinstance(value, list | tuple) else [str(value)]


def _shown(value: Any) -> str:
    return "off" if value is None else "[" + ", ".join(map(str, value)) + "]" if isinstance(value, list) else str(value)


def identity_of(content: str | None, env: Mapping[str, str]) -> str | None:
    """Hash of all that decides how a server computes, from its `server_content`; None if it gave no account of itself.

    The environment counts as asked, since no account shows what it does.
    """
    return None if content is None else content_hash([content, sorted(env.items())])


def server_content(asked: Mapping[str, Any], resolved: Mapping[str, Any]) -> str | None:
    """Hash of what decides how a server computes, its environment apart; None if it gave no account of itself.

    Sizes that depend on what memory was free (KV tokens) are left out, limits count as they are in effect.
    """
    if "speculative_algorithm" not in resolved:  # every SGLang release tells it; without it there is no whole account
        return None
    told = {counted: value for name, value in resolved.items() if (counted := _counted_name(name)) is not None}
    if "random_seed" in asked:
        told["random_seed"] = asked["random_seed"]
    running, tokens = effective_running_requests(resolved), resolved.get("max_total_num_tokens")
    if running is not None:
        told["max_running_requests"] = running
    if isinstance(tokens, int) and isinstance(told.get("max_total_tokens"), int) and tokens < told["max_total_tokens"]:
        told["max_total_tokens"] = None
    captured = _captured(resolved)
    if captured:
        told |= {"cuda_graph_max_bs_decode": None, "cuda_graph_bs_decode": captured, "cuda_graph_config": None}
    return content_hash([resolved.get("version"), told])


@cache
def _counted_name(name: str) -> str | None:
    """Today's name of a setting that decides how a server computes; None for all else that an account has."""
    today = canonical_name(name)
    return today if today in known_options() and today not in _NO_MATTER else None


def _captured(resolved: Mapping[str, Any]) -> list[int]:
    """Batch sizes whose decode graphs the server really captured."""
    for state in resolved.get("internal_states") or ():
        if isinstance(state, Mapping) and state.get("decode_cuda_graph_bs"):
            return [int(n) for n in state["decode_cuda_graph_bs"]]
    return []


def telling_values(resolved: Mapping[str, Any]) -> dict[str, str]:
    """Those of the telling settings that an account mentions, as shown."""
    found = ((name, told_value(name, resolved, _ABSENT)) for name in TELLING)
    return {name: _shown(value) for name, value in found if value is not _ABSENT}


def left_open(
    asked: Mapping[str, Mapping[str, Any]], told: Mapping[str, Iterable[Mapping[str, str]]]
) -> dict[str, dict[str, list[str]]]:
    """Telling settings that no config gave but that came out differently: name -> value -> config ids.

    `asked` and `told` go by config id; `told` has `telling_values` of each start. Such configs differ in more than what
    was swept.
    """
    given = {name for settings in asked.values() for name, value in settings.items() if not _is_open(value)}
    place = {config_id: i for i, config_id in enumerate(told)}
    alike: dict[tuple[frozenset[str], ...], list[str]] = {}
    for config_id, starts in told.items():
        values = tuple(frozenset(start[name] for start in starts if name in start) for name in TELLING)
        alike.setdefault(values, []).append(config_id)
    found = {}
    for i, name in enumerate(TELLING):
        ids: dict[str, list[str]] = {}
        for values, config_ids in alike.items():
            for value in values[i]:
                ids.setdefault(value, []).extend(config_ids)
        if name not in given and len(ids) > 1:
            found[name] = {value: sorted(those, key=place.__getitem__) for value, those in ids.items()}
    return found
