"""What a rule about SGLang's settings is made of, and how rules read settings. Pure.

Settings are read as SGLang 0.5.23 would before it fills anything in; where a setting is absent, its default holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.sglang.dialect import dialect_of, is_since
from orchestrator.sglang.gpu_arch import Arch

Settings = Mapping[str, Any]
Fault = tuple[str, str] | None
Check = Callable[[Settings, Arch | None], Fault]


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing that SGLang refuses. `check` gives the setting to change and the message, or None.

    `since`/`until`: first and last release in whose source it was found (both None: in all that were read, 0.5.9 to
    0.5.23). `archs`: where it can be broken; such a rule is silent while the architecture is unknown.
    """

    name: str
    says: str
    check: Check
    since: str | None = None
    until: str | None = None
    archs: frozenset[Arch] | None = None
    sglang: str = "refuses"

    def holds_in(self, version: str | None) -> bool:
        """Whether the rule is one of this version's, which counts as the release whose options it has."""
        release = dialect_of(version).release
        return (self.since is None or is_since(release, self.since)) and (
            self.until is None or is_since(self.until, release)
        )


def number(settings: Settings, name: str, default: float) -> Any:
    """A numeric setting, or what it is when it is not given."""
    value = settings.get(name)
    return default if value is None else value


def algorithm(settings: Settings) -> str | None:
    """The speculative algorithm as SGLang names it internally (NEXTN is EAGLE); None without speculation."""
    named = settings.get("speculative_algorithm")
    if named is None or settings.get("speculative_num_steps") == 0:
        return None
    kind = str(named).upper()
    return "EAGLE" if kind == "NEXTN" else kind


def is_drafting_by_steps(settings: Settings) -> bool:
    """Whether steps, topk and draft tokens mean what they say (EAGLE, STANDALONE and plug-ins alike)."""
    return algorithm(settings) not in {None, "NGRAM", "DFLASH", "DSPARK", "UNO"}


def topk(settings: Settings) -> int:
    """Branches per draft step; for NGRAM its largest breadth, which SGLang takes as topk."""
    if algorithm(settings) == "NGRAM":
        return int(number(settings, "speculative_ngram_max_bfs_breadth", 10))
    return int(number(settings, "speculative_eagle_topk", 1))


def attention_dp(settings: Settings) -> int:
    """Ranks of attention data parallelism, in either spelling; 1 without it."""
    ranks = int(number(settings, "attn_dp_size", 1))
    if ranks == 1 and settings.get("enable_dp_attention"):
        return int(number(settings, "dp_size", 1))
    return ranks


def attention_backends(settings: Settings) -> tuple[str | None, str | None]:
    """Backends of prefill and decode as far as they are given; None where SGLang chooses."""
    both = settings.get("attention_backend")
    prefill, decode = settings.get("prefill_attention_backend"), settings.get("decode_attention_backend")
    return prefill or both, decode or both


def uses_backend(settings: Settings, name: str) -> bool:
    """Whether a backend is given for prefill, decode or both."""
    return name in attention_backends(settings)


def backend_setting(settings: Settings, name: str) -> str:
    """The setting by which a backend is given."""
    for setting in ("prefill_attention_backend", "decode_attention_backend"):
        if settings.get(setting) == name:
            return setting
    return "attention_backend"


def page_size(settings: Settings) -> int:
    """Tokens per page once the backends had their say; 1 where nothing raises it."""
    size = int(number(settings, "page_size", 1))
    if uses_backend(settings, "flashmla") or uses_backend(settings, "hpc_ops"):
        return 64
    if any(uses_backend(settings, name) for name in ("trtllm_mla", "cutedsl_mla")) and size not in {32, 64}:
        return 64
    drafts_with = settings.get("speculative_draft_attention_backend")
    is_trtllm = uses_backend(settings, "trtllm_mha") or drafts_with == "trtllm_mha"
    return 64 if is_trtllm and size not in {16, 32, 64, 128} else size


def on(arch: Arch | None) -> str:
    """` on SM120` for messages; nothing while the architecture is unknown."""
    return f" on {arch}" if arch else ""


class _Shown(dict[str, Any]):
    """Settings as messages show them."""

    def __missing__(self, name: str) -> str:
        return "left open"


def refuse(
    setting: str | Callable[[Settings], str], message: str, when: Callable[[Settings], bool], **more: Callable[..., Any]
) -> Check:
    """A check that tells `message`, with `{name}` replaced by settings (or by `more`), when `when` holds."""

    def check(settings: Settings, _: Arch | None) -> Fault:
        if not when(settings):
            return None
        shown = _Shown(settings)
        shown.update({name: value(settings) for name, value in more.items()})
        return (setting if isinstance(setting, str) else setting(settings)), message.format_map(shown)

    return check


def spelled_attention_dp(settings: Settings) -> str:
    """The setting that turned attention-DP on."""
    return "attn_dp_size" if number(settings, "attn_dp_size", 1) > 1 else "enable_dp_attention"
