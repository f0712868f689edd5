"""What one server's account of itself comes to: all that decides what is compared, a hundredth of its size. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic_core import from_json

from orchestrator.sglang.resolved_settings import (
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

    `kv_tokens` is the size of its KV cache and `running_requests` how many it runs at once: as its memory allows, or as
    it was told where it does not tell that. None if it tells neither.
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
        running = effective_running_requests(resolved) or resolved.get("max_running_requests")
        return cls(
            changes=setting_changes(asked, resolved),
            content=server_content(asked, resolved),
            telling=telling_values(resolved),
            engine=str(engine) if engine else None,
            kv_tokens=tokens if isinstance(tokens, int) else None,
            running_requests=running if isinstance(running, int) else None,
        )

    @classmethod
    def of_json(cls, told: Mapping[str, Any]) -> Self:
        """From its fields as JSON has them."""
        return cls(**{**told, "changes": tuple(SettingChange(**change) for change in told["changes"])})


def account_of(row: Mapping[str, Any]) -> ServerAccount | None:
    """Of a row of `trials`, as the table or as `RunRows` has it; None where the server never told."""
    if "account" in row:
        account: ServerAccount | None = row["account"]
        return account
    return (
        ServerAccount.of(json.loads(row["settings_json"]), from_json(row["resolved_json"]))
        if row["resolved_json"]
        else None
    )
