"""What one server's account of itself comes to: all that decides what is compared, a hundredth of its size. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from orchestrator.resolved_settings import (
    SettingChange,
    effective_running_requests,
    server_content,
    setting_changes,
    telling_values,
)


@dataclass(frozen=True, slots=True)
class ServerAccount:
    """`changes`: what it runs otherwise than asked. `content`: hash of all by which it computes, its environment apart;
    None if it gave no whole account. `telling`: kernels and memory layout, as shown. `engine` names a stand-in.

    `kv_tokens` is the size of its KV cache and `running_requests` how many it runs at once, None if it did not tell.
    """

    changes: tuple[SettingChange, ...]
    content: str | None
    telling: Mapping[str, str]
    engine: str | None
    kv_tokens: int | None
    running_requests: int | None

    @classmethod
    def of(cls, asked: Mapping[str, Any], resolved: Mapping[str, Any]) -> Self:
        """From the settings it was asked for and `/server_info`, of any release."""
        engine, tokens = resolved.get("engine"), resolved.get("max_total_num_tokens")
        return cls(
            changes=setting_changes(asked, resolved),
            content=server_content(asked, resolved),
            telling=telling_values(resolved),
            engine=str(engine) if engine else None,
            kv_tokens=tokens if isinstance(tokens, int) else None,
            running_requests=effective_running_requests(resolved),
        )

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Self:
        """From its fields as JSON has them."""
        return cls(**{**told, "changes": tuple(SettingChange(**change) for change in told["changes"])})
