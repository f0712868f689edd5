"""The cluster file that `specsweep cluster init` writes: hosts, user, pins -> text that passes its check. Pure."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestrator.clusters.cluster_ports import FIXED, WORKER_PORTS
from orchestrator.clusters.raylet_settings import OPEN_FILES, TUNED

VENV = "~/specsweep-venv"
# Batches of records pass through it, and nothing else; Ray would take 30 % of a host's memory.
OBJECT_STORE_BYTES = 2 * 2**30


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """`python` is an interpreter's name or path on the hosts, `pins` exact versions by package with its extras.

    `token` is the file on this machine that all hosts get.
    """

    head: str
    workers: Sequence[str]
    user: str
    python: str
    pins: Mapping[str, str]
    key: str | None = None
    token: str = "~/.ray/auth_token"
    name: str = "specsweep"


def cluster_text(plan: ClusterPlan) -> str:
    """The YAML file, with comments."""
    key = ""
    if plan.key:
        key = f"\n  ssh_private_key: {json.dumps(plan.key)}  # copied to the head, which logs in to the workers"
    return f"""\
# Ray on hosts of one's own. Check it with `specsweep cluster check FILE`, start it with `ray up -y FILE`, end it with
# `ray down -y FILE`. Needed: ssh without a password from here to the head and from the head to the workers, rsync and
# {plan.python} on all hosts. Ports, firewall and security: docs/security.md.
cluster_name: {json.dumps(plan.name)}
provider:
  type: local
  head_ip: {_address(plan.head)}  # reached under this address from here and from the workers
  worker_ips: [{", ".join(map(_address, plan.workers))}]
auth:
  ssh_user: {json.dumps(plan.user)}{key}
max_workers: {len(plan.workers)}
idle_timeout_minutes: 525600  # no host is let go in the middle of a sweep
file_mounts:
  "~/.ray/auth_token": {json.dumps(plan.token)}  # the same token on all hosts
setup_commands:  # on all hosts, the same versions as here; nothing is fetched where they are installed already
  - test -x {VENV}/bin/python || {plan.python} -m venv {VENV}
{_folded(f"{VENV}/bin/pip install --quiet {' '.join(_pins(plan.pins))}")}
worker_setup_commands: []  # SGLang: best in an environment of its own, which a scenario names in `engine.command`
# Each command runs in a shell of its own: limits and settings must stand before `ray start`, in the same one.
# `ray stop` ends whatever Ray this user runs on the host.
head_start_ray_commands:
  - {VENV}/bin/ray stop
{_folded(_start(_head_options(plan), is_head=True))}
worker_start_ray_commands:
  - {VENV}/bin/ray stop
{_folded(_start(_worker_options(), is_head=False))}
"""


def _head_options(plan: ClusterPlan) -> list[str]:
    own = ["--head", f"--node-ip-address={plan.head}"]
    gpus = ["--num-gpus=0"] if plan.workers else []
    role = "head" if plan.workers else "gpu"
    return [*own, *gpus, f'--labels="role={role},host=$(hostname -s)"', "--dashboard-host=127.0.0.1",
            "--autoscaling-config=~/ray_bootstrap_config.yaml"]  # fmt: skip


def _worker_options() -> list[str]:
    port = next(known.port for known in FIXED if known.option == "port")
    return [f"--address=$RAY_HEAD_IP:{port}", '--labels="role=gpu,host=$(hostname -s)"']


def _start(options: Sequence[str], *, is_head: bool) -> str:
    settings = [f"{name}={value}" for name, value in TUNED.items()]
    ports = [f"--{known.option}={known.port}" for known in FIXED if is_head or not known.head_only]
    ports += [f"--min-worker-port={WORKER_PORTS[0]}", f"--max-worker-port={WORKER_PORTS[1]}"]
    store = f"--object-store-memory={OBJECT_STORE_BYTES}"
    # A job's command is run with this PATH: `python` in it is that of the environment.
    words = [
        f"PATH={VENV}/bin:$PATH",
        *settings,
        f"{VENV}/bin/ray start",
        *options,
        *ports,
        store,
        "--disable-usage-stats",
    ]
    return f"ulimit -n {OPEN_FILES}; {' '.join(words)}"


def _pins(pins: Mapping[str, str]) -> list[str]:
    return [f"'{name}=={version}'" if "[" in name else f"{name}=={version}" for name, version in pins.items()]


def _folded(command: str) -> str:
    """A list item over several lines, which YAML folds into one."""
    lines = textwrap.wrap(command, 110, break_long_words=False, break_on_hyphens=False)
    return "\n".join(["  - >-", *(f"    {line}" for line in lines)])


def _address(text: str) -> str:
    return text if text.replace(".", "").isdigit() else json.dumps(text)
