"""What a job is sent: the two packages, the scenario, and every file that the scenario names.

Named files go to `files/<hash of their content>/<name>`, and the scenario that is sent names them so: the same data has
the same name from whichever machine it comes, which is what `--resume` compares.
"""

from __future__ import annotations

import hashlib
import io
import os
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from actors.servers.launch import API_KEY_VARIABLE
from orchestrator.errors import BadInput, ScenarioError
from orchestrator.paths import user_file
from orchestrator.planning.planner import dataset_files
from orchestrator.redaction import holds_secrets, storable
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import read_tree, scenario_from_tree
from orchestrator.scenarios.yaml_tree import Path as KeyPath
from orchestrator.scenarios.yaml_tree import dotted, parse_yaml

SCENARIO_NAME = "scenario.yaml"
# The dashboard takes 100 MiB at once.
MOST_MIB = 90
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class NamedFile:
    """A file or folder that a scenario names at `key`; of a folder only `members` are sent."""

    key: KeyPath
    path: Path
    prefix: str = ""
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobPackage:
    """`data` is a zip file, `name` is made of its content. `scenario_text` is not in it if it holds secrets."""

    name: str
    data: bytes = field(repr=False)
    scenario_text: str = field(repr=False)
    is_secret: bool


def pack(scenario: Scenario, file: Path | None, *, on_hosts: bool = False) -> JobPackage:
    """All that a job for this scenario needs. `on_hosts`: the files that it names are there already.

    BadInput or ScenarioError with the line for a file that cannot be sent.
    """
    told = scenario.model_dump(mode="json", exclude_unset=True)
    members: dict[str, bytes] = {}
    for named in named_files(scenario):
        if on_hosts:
            _check_absolute(named, file)
            continue
        folder, contents = _contents(named)
        members |= contents
        _assign(told, named.key, named.prefix + folder)
    text = yaml.safe_dump(told, sort_keys=False, allow_unicode=True)
    sent = scenario_from_tree(parse_yaml(text.encode(), SCENARIO_NAME))
    assert sent.model_dump(mode="json", exclude_unset=True) == told, "YAML changed a value on the way"
    is_secret = holds_secrets(storable(scenario)) or (
        scenario.engine.kind == "attach" and API_KEY_VARIABLE in os.environ
    )
    if not is_secret:
        members[SCENARIO_NAME] = text.encode()
    data = _zipped({**own_files(), **members})
    if len(data) > MOST_MIB * 2**20:
        raise BadInput(_too_large(len(data), members))
    return JobPackage(_name(data), data, text, is_secret)


def own_package() -> JobPackage:
    """The two packages alone, for a job that has its scenario on the head."""
    data = _zipped(own_files())
    return JobPackage(_name(data), data, "", is_secret=False)


def _name(data: bytes) -> str:
    return f"_ray_pkg_{hashlib.sha256(data).hexdigest()[:40]}.zip"


def own_files() -> dict[str, bytes]:
    """Both packages, by their paths below the working directory."""
    root = Path(__file__).resolve().parent.parent.parent
    files = (f for package in ("orchestrator", "actors") for f in sorted((root / package).rglob("*")))
    return {str(f.relative_to(root)): f.read_bytes() for f in files if f.is_file() and "__pycache__" not in f.parts}


def named_files(scenario: Scenario) -> Iterator[NamedFile]:
    """Files of this machine that a scenario names. A tokenizer that is not here is one of the load hosts'."""
    for dataset in dataset_files(scenario):
        yield NamedFile(dataset.key, Path(dataset.path), prefix="file:")
    if scenario.engine.faults is not None:
        yield NamedFile(("engine", "faults"), Path(scenario.engine.faults))
    if scenario.model.config is not None:
        config = Path(scenario.model.config)
        yield NamedFile(("model", "config"), config / "config.json" if config.is_dir() else config)
    for i, workload in enumerate(scenario.workloads):
        if workload.tokenizer is not None and Path(workload.tokenizer, _TOKENIZER_FILES[0]).is_file():
            yield NamedFile(("workloads", i, "tokenizer"), Path(workload.tokenizer), members=_TOKENIZER_FILES)


def _contents(named: NamedFile) -> tuple[str, dict[str, bytes]]:
    """Where it goes, and what goes there."""
    with user_file(f"{dotted(named.key)}: {named.path}", "read"):
        if not named.members:
            data = _read(named.path, named.key)
            place = f"files/{hashlib.sha256(data).hexdigest()[:12]}/{named.path.name}"
            return place, {place: data}
        found = {m: _read(named.path / m, named.key) for m in named.members if (named.path / m).is_file()}
    place = f"files/{hashlib.sha256(b''.join(found.values())).hexdigest()[:12]}/{named.path.resolve().name}"
    return place, {f"{place}/{member}": data for member, data in found.items()}


def _read(path: Path, key: KeyPath) -> bytes:
    size = path.stat().st_size
    if size > MOST_MIB * 2**20 * 20:  # even what packs very well
        raise BadInput(f"{dotted(key)}: " + _too_large(size, {str(path): b""}))
    return path.read_bytes()


def _check_absolute(named: NamedFile, file: Path | None) -> None:
    if named.path.is_absolute():
        return
    message = f"{named.path}: with --on-hosts give an absolute path, the same on every host"
    if file is None:
        raise BadInput(f"{dotted(named.key)}: {message}")
    raise ScenarioError(str(file), read_tree(file).line_of(named.key), dotted(named.key), message)


def _assign(told: Any, key: KeyPath, value: str) -> None:
    place: Any = told
    for part in key[:-1]:
        place = place[part]
    place[key[-1]] = value


def _zipped(members: dict[str, bytes]) -> bytes:
    """The same members give the same bytes, so that a cluster is sent them once."""
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr, info.compress_type = 0o644 << 16, zipfile.ZIP_DEFLATED
            archive.writestr(info, members[name])
    return sink.getvalue()


def _too_large(size: int, members: dict[str, bytes]) -> str:
    largest: Sequence[str] = sorted(members, key=lambda name: -len(members[name]))[:1]
    return (
        f"{size / 2**20:.0f} MiB are more than the {MOST_MIB} that a dashboard takes (largest: {', '.join(largest)}). "
        "Copy the file to the same absolute path on every host, name it so in the scenario, and submit with --on-hosts"
    )
