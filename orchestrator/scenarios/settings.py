"""Base settings + one combination of the sweep -> the settings of one server, or why SGLang would refuse them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.sglang.dialect import canonical_setting, setting_fault
from orchestrator.sglang.gpu_arch import Arch
from orchestrator.sglang.options import SettingsFault
from orchestrator.sglang.sglang_rules import broken_rule

# Algorithms whose draft is a separate model (SGLang 0.5.23 refuses to start without its path).
NEEDS_DRAFT_MODEL = frozenset({"EAGLE", "EAGLE3", "STANDALONE", "DFLASH"})
# Algorithms that have no draft depth to choose: they fix the steps themselves.
NO_DEPTH = frozenset({"NGRAM", "DFLASH", "DSPARK", "UNO"})


@dataclass(frozen=True, slots=True)
class ServerSize:
    """GPUs of a server on each of its hosts; 0 on CPU, or where the server is not ours."""

    gpus: int
    nnodes: int = 1


def canonical_settings(settings: dict[str, Any], version: str | None = None) -> dict[str, Any]:
    """Settings under the names of today (None: the server's default); SettingsFault for bad names, values and clashes.

    `version` is the SGLang release that must be able to take them; None is the newest.
    """
    result: dict[str, Any] = {}
    origin: dict[str, str] = {}
    for name, value in settings.items():
        fault = setting_fault(name, value, version)
        if fault:
            raise SettingsFault(name, fault)
        canonical, meaning = canonical_setting(name, value)
        if canonical in result and result[canonical] != meaning:
            raise SettingsFault(name, f"contradicts '{origin[canonical]}', another spelling of the same setting")
        result[canonical] = meaning
        origin[canonical] = name
    return result


def resolve_settings(
    base: dict[str, Any],
    combination: dict[str, Any],
    *,
    draft_path: str | None,
    bundled_draft: bool,
    size: ServerSize,
    version: str | None = None,
    arch: Arch | None = None,
) -> dict[str, Any]:
    """The settings of one config: base, overridden by the combination, with the three speculation numbers explicit.

    `speculative_num_steps: 0` (or no algorithm) means no speculation: every `speculative_*` setting is left out.
    SettingsFault for what SGLang of this `version` (None: the newest known) would refuse on `arch` (None: not known).
    """
    given = {**canonical_settings(base, version), **canonical_settings(combination, version)}
    settings = {name: value for name, value in given.items() if value is not None}
    _resolve_parallelism(settings, size)
    told_by_us: dict[str, Any] = {} if draft_path is None else {"speculative_draft_model_path": draft_path}
    if size.nnodes > 1:
        told_by_us["nnodes"] = size.nnodes
    broken = broken_rule({**told_by_us, **settings}, version=version, arch=arch)
    if broken is not None:
        raise SettingsFault(broken.setting, broken.reason)
    return _resolve_speculation(settings, draft_path, bundled_draft)


def _resolve_speculation(settings: dict[str, Any], draft_path: str | None, bundled_draft: bool) -> dict[str, Any]:
    steps = settings.get("speculative_num_steps")
    algorithm = settings.get("speculative_algorithm")
    if algorithm is None or steps == 0:
        return {k: v for k, v in settings.items() if not k.startswith("speculative_")}
    kind = str(algorithm).upper()
    result = {**settings, "speculative_algorithm": kind}
    if draft_path is not None:
        result.setdefault("speculative_draft_model_path", draft_path)
    if kind in NEEDS_DRAFT_MODEL and not (bundled_draft and kind == "EAGLE"):
        _require_draft(result, kind)
    return result if kind in NO_DEPTH else _resolve_depth(result)


def _require_draft(settings: dict[str, Any], kind: str) -> None:
    if "speculative_draft_model_path" in settings:
        return
    way = " (or model.bundled_draft: true, if the model has an MTP layer)" if kind == "EAGLE" else ""
    raise SettingsFault("speculative_num_steps", f"{kind} drafts with a model of its own: give model.draft_path{way}")


def _resolve_depth(settings: dict[str, Any]) -> dict[str, Any]:
    """The three numbers are given together, or SGLang picks or crashes (its auto values depend on the model)."""
    steps = settings.get("speculative_num_steps")
    if steps is None:  # adaptive: SGLang starts from a candidate of its own
        return settings
    topk = settings.get("speculative_eagle_topk", 1)
    tokens = settings.get("speculative_num_draft_tokens", steps + 1)
    return {**settings, "speculative_eagle_topk": topk, "speculative_num_draft_tokens": tokens}


def _resolve_parallelism(settings: dict[str, Any], size: ServerSize) -> None:
    """GPUs of a server = tp x pp x dp (attention-DP lies inside tp); left open, tp takes the whole slot."""
    gpus, nnodes = size.gpus, size.nnodes
    if gpus == 0:
        _resolve_ranks(settings, nnodes)
        return
    total = gpus * nnodes
    slot = f"slots.gpus is {gpus}" if nnodes == 1 else f"slots.gpus x slots.nnodes is {gpus} x {nnodes} = {total}"
    attention_dp = settings.get("enable_dp_attention", False)
    others = settings.get("pp_size", 1) * (1 if attention_dp else settings.get("dp_size", 1))
    if "tp_size" not in settings:
        if total % others:
            raise SettingsFault("pp_size", f"x dp_size is {others}, which does not divide the server's GPUs: {slot}")
        settings["tp_size"] = total // others
    needed = settings["tp_size"] * others
    if needed != total:
        raise SettingsFault("tp_size", f"makes a server of {needed} GPUs (tp x pp x dp), but {slot}")


def _resolve_ranks(settings: dict[str, Any], nnodes: int) -> None:
    """On CPU only the hosts count: each runs as many ranks; left open, one."""
    if nnodes == 1:
        return
    settings.setdefault("tp_size", nnodes)
    ranks = settings["tp_size"] * settings.get("pp_size", 1)
    if ranks % nnodes:
        raise SettingsFault("tp_size", f"makes {ranks} ranks (tp x pp), which slots.nnodes {nnodes} does not divide")
