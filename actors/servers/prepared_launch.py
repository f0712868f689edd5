"""From a launch spec to what is started on this host, or why nothing is: asked of the host before every launch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from actors.servers.engine_version import installed_version, version_conflict
from actors.servers.launch import server_env
from actors.servers.preflight import objection
from actors.servers.server_command import LaunchRefused, ServerCommand, ServerPlace, server_command
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import LaunchSpec
from orchestrator.sglang.options import SettingsFault


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """The command in the words of the host's SGLang; `version` is None where the command does not show it."""

    command: ServerCommand
    version: str | None


async def prepare(spec: LaunchSpec, place: ServerPlace, base: Mapping[str, str]) -> PreparedLaunch | Diagnosis:
    """What to start; a diagnosis if this host's SGLang cannot be told the settings, or must not be started so."""
    version = await installed_version(spec, server_env(spec, place.gpu_ids, base))
    if conflict := version_conflict(spec, version):
        return conflict
    try:
        command = server_command(spec, place, base, version or spec.version)
    except SettingsFault as fault:
        return Diagnosis(Label.FLAG_INVALID, Phase.ARGS, f"{fault.name} {fault.message}")
    except LaunchRefused as refused:
        return Diagnosis(Label.UNKNOWN, Phase.LAUNCH, str(refused))
    objected = await asyncio.to_thread(
        objection, spec, place.gpu_ids, command.env, command.argv, version or spec.version
    )
    return objected or PreparedLaunch(command, version)
