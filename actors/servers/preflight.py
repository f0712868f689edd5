"""What is asked on a server's own host before it is launched: rules of its real GPUs, and an environment that fakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from actors.gpus.gpu import gpu_capability
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec
from orchestrator.sglang.faked_results import faked_in_account, faked_in_env, faked_in_words, refusal
from orchestrator.sglang.gpu_arch import Arch, arch_of_capability
from orchestrator.sglang.options import canonical_name
from orchestrator.sglang.sglang_rules import RULED_ENGINES, broken_rule


def objection(
    spec: LaunchSpec, gpu_ids: Sequence[str], env: Mapping[str, str], argv: Sequence[str], version: str | None = None
) -> Diagnosis | None:
    """Why a server must not be launched like this, by its whole environment and command line; None if it may.

    `version` is that of the host's SGLang, None where it is not known.

    An emulated server does not use the host's GPUs, so their architecture says nothing about it.
    """
    faked = faked_in_env(env, spec.allow_faked)
    if faked is None and (word := faked_in_words(argv, spec.allow_faked)):
        faked = word[1]
    if faked is not None:
        return _conflict(refusal(faked))
    if spec.engine not in RULED_ENGINES:
        return None
    settings = {canonical_name(n): list(v) if isinstance(v, tuple) else v for n, v in spec.settings}
    broken = broken_rule(settings, version=version, arch=slot_arch(gpu_ids) if spec.engine == "sglang" else None)
    return None if broken is None else _conflict(f"{broken.setting} {broken.reason}")


def slot_arch(gpu_ids: Sequence[str], nvml: Any | None = None) -> Arch | None:
    """The architecture of a slot's GPUs; None without GPUs, without NVML, or if they differ."""
    capability = gpu_capability(gpu_ids, nvml) if gpu_ids else None
    return None if capability is None else arch_of_capability(*capability)


def faked_account(spec: LaunchSpec, account: Mapping[str, Any]) -> Diagnosis | None:
    """Why a server that serves must not be measured: its own account names a variable that makes results up."""
    faked = faked_in_account(account, spec.allow_faked)
    return None if faked is None else _conflict(f"the server's own account: {refusal(faked)}")


def _conflict(evidence: str) -> Diagnosis:
    return Diagnosis(Label.CONFIG_CONFLICT, Phase.ARGS, evidence)
