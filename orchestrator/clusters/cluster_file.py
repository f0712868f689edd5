"""A cluster file of Ray's (`ray up FILE`) for on-premise hosts: its keys and their types, stricter than Ray's schema.

Ray takes any key below `provider`, so that a typo there is found only when a host is missing.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError

from orchestrator.clusters.cluster_address import address_fault
from orchestrator.clusters.cluster_finding import Finding
from orchestrator.key_types import Strict
from orchestrator.scenarios.model_fault import all_faults
from orchestrator.scenarios.yaml_tree import YamlTree


def _address(text: str) -> str:
    if fault := address_fault(text):
        raise ValueError(fault)
    return text


Address = Annotated[str, AfterValidator(_address)]
Commands = list[str]


class Provider(Strict):
    """The hosts. `head_ip` must be reached from here and from the workers, `external_head_ip` from here only."""

    type: Literal["local"]
    head_ip: Address
    worker_ips: list[Address]
    external_head_ip: Address | None = None


class Auth(Strict):
    """How Ray logs in to the hosts; the private key is copied to the head, which logs in to the workers."""

    ssh_user: str = Field(min_length=1)
    ssh_private_key: str | None = None
    ssh_public_key: str | None = None
    ssh_proxy_command: str | None = None
    ssh_proxy_use_node_id: bool | None = None


class ClusterFile(Strict):
    """The whole file, as Ray takes it for hosts of one's own."""

    cluster_name: str = Field(min_length=1)
    provider: Provider
    auth: Auth
    min_workers: int | None = Field(None, ge=0)
    max_workers: int | None = Field(None, ge=0)
    upscaling_speed: float = 1.0
    idle_timeout_minutes: float = 5.0
    docker: dict[str, Any] = Field(default_factory=dict)
    file_mounts: dict[str, str] = Field(default_factory=dict)
    cluster_synced_files: list[str] = Field(default_factory=list)
    file_mounts_sync_continuously: bool = False
    rsync_exclude: list[str] = Field(default_factory=list)
    rsync_filter: list[str] = Field(default_factory=list)
    metadata: dict[str, Any] = Field(default_factory=dict)
    initialization_commands: Commands = Field(default_factory=list)
    setup_commands: Commands = Field(default_factory=list)
    head_setup_commands: Commands = Field(default_factory=list)
    worker_setup_commands: Commands = Field(default_factory=list)
    head_start_ray_commands: Commands
    worker_start_ray_commands: Commands
    no_restart: bool = False


_OF_A_CLUSTER = {name for name, field in ClusterFile.model_fields.items() if field.is_required()}


def read_cluster(tree: YamlTree) -> ClusterFile | list[Finding]:
    """The file's content, or all that is wrong with its keys and values, by line."""
    try:
        return ClusterFile.model_validate(tree.value)
    except ValidationError as error:
        if isinstance(tree.value, dict) and not tree.value.keys() & _OF_A_CLUSTER:
            needed = ", ".join(sorted(_OF_A_CLUSTER))
            return [Finding(1, "", f"is no cluster file: it has none of {needed}")]
        return [Finding(fault.line, fault.key, fault.message) for fault in all_faults(tree, error, ClusterFile)]
