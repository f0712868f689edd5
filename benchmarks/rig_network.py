"""The network of a rig of hosts: a namespace for each, joined by a bridge in one more; nothing of it is outside."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from benchmarks.rig_host import RigHost


def why_impossible() -> str | None:
    """Why this machine cannot have such a rig; None if it can."""
    if os.getuid() != 0:
        return "network namespaces need root"
    missing = [tool for tool in ("ip", "unshare", "nsenter") if shutil.which(tool) is None]
    if missing:
        return f"not installed: {', '.join(missing)} (iproute2, util-linux)"
    name = f"specsweep-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespace can be made: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=False)
    return None


class RigNetwork:
    """One switch, and a cable from it to each host. `name` makes its namespaces those of one rig."""

    def __init__(self, name: str) -> None:
        self._switch = f"{name}-sw"

    def make(self) -> None:
        """The switch, without hosts."""
        _ip("netns", "add", self._switch)
        for words in ("add br0 type bridge", "set br0 up", "set lo up"):
            _ip("-n", self._switch, "link", *words.split())

    def plug_in(self, host: RigHost) -> None:
        """Give a host its network and its cable, if it has none."""
        if Path(f"/run/netns/{host.netns}").exists():
            return
        _ip("netns", "add", host.netns)
        _ip("-n", host.netns, *f"link add eth0 type veth peer name {_port(host)} netns {self._switch}".split())
        _ip("-n", host.netns, "addr", "add", f"{host.address}/24", "dev", "eth0")
        for link in ("lo", "eth0"):
            _ip("-n", host.netns, "link", "set", link, "up")
        _ip("-n", self._switch, "link", "set", _port(host), "master", "br0")

    def cable(self, host: RigHost, *, plugged: bool) -> None:
        """Put the cable of a host in, or pull it."""
        _ip("-n", self._switch, "link", "set", _port(host), "up" if plugged else "down")

    def remove(self, hosts: Iterable[RigHost]) -> None:
        """All of it; whatever is not there is passed over."""
        for name in (*(host.netns for host in hosts), self._switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def _port(host: RigHost) -> str:
    return f"sw{host.number}"


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"ip {' '.join(words)}: {done.stderr.strip()}")
