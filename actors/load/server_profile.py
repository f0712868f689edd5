"""The server's own profiler, from outside: begin, end, and where its traces are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import PurePosixPath
from typing import Any

from orchestrator.trial import Point, ProfileSpec

Post = Callable[[str, dict[str, Any] | None], Awaitable[tuple[int | None, str]]]


def profile_request(spec: ProfileSpec, folder: str) -> dict[str, Any]:
    """Body of `/start_profile`. Without a number of steps SGLang traces until it is told to stop."""
    return {
        "output_dir": folder,
        "activities": list(spec.activities),
        "profile_by_stage": spec.by_stage,
        "with_stack": spec.with_stack,
        "record_shapes": spec.record_shapes,
    }


def profile_folder(point: Point, spec: ProfileSpec) -> str:
    """Where the traces of a point go, on the server's host."""
    return str(PurePosixPath(spec.output_dir) / f"{point.trial_id}-{point.point_id}")


class ServerProfile:
    """One profile; `told` is the folder of its traces, or what the server refused."""

    def __init__(self, post: Post, point: Point, spec: ProfileSpec) -> None:
        self._post = post
        self._spec = spec
        self._folder = profile_folder(point, spec)
        self.told = ""

    async def begin(self) -> bool:
        """Whether the server traces now."""
        status, text = await self._post("/start_profile", profile_request(self._spec, self._folder))
        self.told = "" if status == 200 else f"no profile: /start_profile answered {status or 'nothing'} {text[:200]}"
        return status == 200

    async def end(self) -> None:
        """Returns when the server has written its traces."""
        status, text = await self._post("/stop_profile", None)
        self.told = self._folder
        if status != 200:
            self.told = f"profile cut short: /stop_profile answered {status or 'nothing'} {text[:200]}"
