"""From a launch spec to what is started on this host, or why nothing is: asked of the host before every launch."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from actors.servers.engine_version import installed_software, version_conflict
from actors.servers.launch import server_env
from actors.servers.preflight import objection
from actors.servers.server_command import LaunchRefused, ServerCommand, ServerPlace, server_command
from orchestrator.outcome import Diagnosis, Label, Phase
from orchestrator.server_start import EngineSoftware, LaunchSpec
from orchestrator.sglang.options import SettingsFault


@dataclass(frozen=True, slots=True)
class PreparedLaunch:
    """The command in the words of the host's SGLang, and what was found there beside it."""

    command: ServerCommand
    software: EngineSoftware


async def prepare(spec: LaunchSpec, place: ServerPlace, base: Mapping[str, str]) -> PreparedLaunch | Diagnosis:
    """What to start; a diagnosis if this host's SGLang cannot be told the settings, or must not be started so."""
    software = await installed_software(spec, server_env(spec, place.gpu_ids, base))
    version = software.sglang
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
    return objected or PreparedLaunch(command, software)
