"""The recipes of deploy/, read."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.unit_files import directives

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
CRON = (DEPLOY / "specsweep-nightly.cron").read_text("utf-8")
SERVICE = (DEPLOY / "specsweep-nightly.service").read_text("utf-8")
GITHUB: dict[Any, Any] = yaml.safe_load((DEPLOY / "nightly-github.yml").read_text("utf-8"))
GITLAB: dict[str, Any] = yaml.safe_load((DEPLOY / "nightly-gitlab.yml").read_text("utf-8"))
PARTS: dict[str, dict[str, Any]] = {
    part["kind"]: part for part in yaml.safe_load_all((DEPLOY / "nightly-cronjob.yaml").read_text("utf-8"))
}
JOB: dict[str, Any] = yaml.safe_load(PARTS["ConfigMap"]["data"]["rayjob.yaml"])
FIELDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))


def is_schedule(text: str) -> bool:
    """Whether these are the five fields of cron: numbers, ranges, lists, steps."""
    fields = text.split()
    return len(fields) == 5 and all(_is_field(f, *bounds) for f, bounds in zip(fields, FIELDS, strict=True))


def _is_field(field: str, low: int, high: int) -> bool:
    for part in field.split(","):
        found = re.fullmatch(r"(?:\*|(\d+)(?:-(\d+))?)(?:/(\d+))?", part)
        if found is None:
            return False
        begin, end, step = (None if n is None else int(n) for n in found.groups())
        if step == 0 or (begin is not None and not low <= begin <= (begin if end is None else end) <= high):
            return False
    return True


def cron_lines() -> list[tuple[str, str, str]]:
    """(schedule, user, command) of each line that starts something."""
    told = [line for line in CRON.splitlines() if line and not line.startswith("#") and not re.match(r"[A-Z_]+=", line)]
    split = [line.split(maxsplit=6) for line in told]
    return [(" ".join(fields[:5]), fields[5], fields[6]) for fields in split]


def after(words: Sequence[str], command: str = "nightly") -> list[str]:
    return list(words)[list(words).index(command) + 1 :]


COMMANDS = {
    "cron": after(shlex.split(cron_lines()[0][2])),
    "self-test": after(shlex.split(cron_lines()[1][2])),
    "systemd": after(shlex.split(directives(SERVICE)["ExecStart"][0])),
    "kubernetes": after(shlex.split(JOB["spec"]["entrypoint"])),
    "github": after(shlex.split(GITHUB["jobs"]["nightly"]["steps"][1]["run"])),
    "gitlab": after(shlex.split(GITLAB["nightly"]["script"][0])),
}
