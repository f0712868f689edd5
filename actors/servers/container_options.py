"""The command line of `docker run` (podman, nerdctl): where its options end, what they are, which image it runs. Pure.

An option that takes a value and one that takes none look alike, so the image can only be found by knowing them all:
the names are those of Docker 28, Podman 5 and nerdctl 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

RUNTIMES = ("docker", "podman", "nerdctl")

_WRAPPERS = frozenset({"sudo", "doas", "env", "nice", "ionice", "numactl", "taskset", "chrt"})
_GLOBAL_SWITCHES = frozenset(
    {"-D", "--debug", "--debug-full", "--tls", "--tlsverify", "-r", "--remote", "--experimental", "--insecure-registry"}
)
_SWITCHES = frozenset(
    """
    detach disable-content-trust env-host help http-proxy init interactive no-healthcheck no-hostname no-hosts
    oom-kill-disable passwd privileged publish-all quiet read-only read-only-tmpfs replace rm rmi rootfs sig-proxy
    tls-verify tty unsetenv-all use-api-socket
    """.split()  # noqa: SIM905 - a list literal would fill the page
)
_VALUED = frozenset(
    """
    add-host annotation arch attach authfile blkio-weight blkio-weight-device cap-add cap-drop cgroup-conf cgroup-parent
    cgroupns cgroups chrootdirs cidfile conmon-pidfile cpu-count cpu-percent cpu-period cpu-quota cpu-rt-period
    cpu-rt-runtime cpu-shares cpus cpuset-cpus cpuset-mems creds decryption-key detach-keys device device-cgroup-rule
    device-read-bps device-read-iops device-write-bps device-write-iops dns dns-opt dns-option dns-search domainname
    entrypoint env env-file env-merge expose gidmap gpus group-add group-entry health-cmd health-interval
    health-log-destination health-max-log-count health-max-log-size health-on-failure health-retries
    health-start-interval health-start-period health-startup-cmd health-startup-interval health-startup-retries
    health-startup-success health-startup-timeout health-timeout hostname hosts-file hostuser image-volume init-ctr
    init-path io-maxbandwidth io-maxiops ip ip6 ipc isolation kernel-memory label label-file link link-local-ip
    log-driver log-opt mac-address memory memory-reservation memory-swap memory-swappiness mount name namespace net
    net-alias network network-alias oom-score-adj os passwd-entry personality pid pidfile pids-limit platform pod
    pod-id-file preserve-fd preserve-fds publish pull rdt-class requires restart retry retry-delay runtime
    sdnotify seccomp-policy secret security-opt shm-size shm-size-systemd snapshotter stop-signal stop-timeout
    storage-opt subgidname subuidname sysctl systemd timeout tmpfs tz uidmap ulimit umask unsetenv user userns uts
    variant volume volume-driver volumes-from workdir
    """.split()  # noqa: SIM905 - a list literal would fill the page
)
_SHORT_SWITCHES = {"d": "detach", "i": "interactive", "t": "tty", "P": "publish-all", "q": "quiet"}
_SHORT_VALUED = {
    "a": "attach", "c": "cpu-shares", "e": "env", "h": "hostname", "l": "label", "m": "memory", "p": "publish",
    "u": "user", "v": "volume", "w": "workdir",
}  # fmt: skip
_SAME = {"net": "network", "net-alias": "network-alias", "dns-option": "dns-opt"}


class ContainerRefusal(ValueError):
    """A command prefix with which no container could be started, reached, or ended."""


@dataclass(frozen=True, slots=True)
class GivenOption:
    """One option as it was written: `words` as they stand in the command, `value` None for a bare switch."""

    name: str
    value: str | None
    words: tuple[str, ...]

    @property
    def is_on(self) -> bool:
        """Whether a switch is on: `--init` and `--init=true` are, `--init=false` is not."""
        return self.value is None or self.value.lower() not in {"false", "0", "f"}


@dataclass(frozen=True, slots=True)
class RunCommand:
    """`runtime` are the words that call the program, `start` those before the options, `inner` what runs inside."""

    runtime: tuple[str, ...]
    start: tuple[str, ...]
    options: tuple[GivenOption, ...]
    image: str
    inner: tuple[str, ...]

    @property
    def program_at(self) -> int:
        """Where in `runtime` the program stands, behind `sudo` and the like."""
        return next(i for i, word in enumerate(self.runtime) if PurePosixPath(word).name in RUNTIMES)

    @property
    def program(self) -> str:
        """`docker`, `podman` or `nerdctl`."""
        return PurePosixPath(self.runtime[self.program_at]).name

    @property
    def is_privileged_call(self) -> bool:
        """Whether another user calls the runtime, who does not see our environment."""
        return PurePosixPath(self.runtime[0]).name in {"sudo", "doas"}

    def given(self, name: str) -> tuple[GivenOption, ...]:
        """Every option of a name, in order."""
        return tuple(option for option in self.options if option.name == name)

    def last(self, name: str) -> GivenOption | None:
        """The option of a name that counts: the last."""
        return next(iter(reversed(self.given(name))), None)


def parse_run(command: Sequence[str]) -> RunCommand | None:
    """The parts of a command that runs a container; None if it does not. ContainerRefusal if it is unclear."""
    at = _program_at(command)
    if at is None:
        return None
    run_at = _run_at(command, at)
    options: list[GivenOption] = []
    place = run_at + 1
    while place < len(command) and command[place].startswith("-") and command[place] not in {"-", "--"}:
        option = _option(command, place)
        options.append(option)
        place += len(option.words)
    place += place < len(command) and command[place] == "--"
    if place >= len(command):
        raise ContainerRefusal(f"`{' '.join(command[at : run_at + 1])}` names no image; write it after the options")
    runtime_end = run_at - (command[run_at - 1] == "container")
    return RunCommand(
        tuple(command[:runtime_end]),
        tuple(command[: run_at + 1]),
        tuple(options),
        command[place],
        tuple(command[place + 1 :]),
    )


def _program_at(command: Sequence[str]) -> int | None:
    """Where the runtime stands: at the start, or behind `sudo` and the like."""
    for i, word in enumerate(command):
        name = PurePosixPath(word).name
        if name in RUNTIMES:
            return i
        if i == 0 and name not in _WRAPPERS:
            return None
    return None


def _run_at(command: Sequence[str], at: int) -> int:
    program, place = PurePosixPath(command[at]).name, at + 1
    while place < len(command):
        word = command[place]
        if word == "run":
            return place
        if not word.startswith("-") and word != "container":
            raise ContainerRefusal(
                f"is `{program} {word}`; only `{program} run` starts a container that is ours to end"
            )
        place += 2 if word.startswith("-") and "=" not in word and word not in _GLOBAL_SWITCHES else 1
    raise ContainerRefusal(f"calls {program} without `run`")


def _option(command: Sequence[str], place: int) -> GivenOption:
    word = command[place]
    if not word.startswith("--"):
        return _short_option(command, place)
    name, equals, value = word[2:].partition("=")
    same = _SAME.get(name, name)
    if equals:
        return GivenOption(same, value, (word,))
    if name in _SWITCHES:
        return GivenOption(same, None, (word,))
    if name not in _VALUED:
        raise ContainerRefusal(
            f"has `{word}`, which is not a known option of `run`: write `{word}=VALUE` (`{word}=true` for a switch)"
        )
    if place + 1 >= len(command):
        raise ContainerRefusal(f"ends with `{word}`, which takes a value")
    return GivenOption(same, command[place + 1], (word, command[place + 1]))


def _short_option(command: Sequence[str], place: int) -> GivenOption:
    """`-e A=1`, `-eA=1`; of several switches in one word (`-it`) the first that we refuse is what counts."""
    word = command[place]
    for i, letter in enumerate(word[1:], 1):
        if letter in _SHORT_VALUED:
            rest = word[i + 1 :].removeprefix("=")
            if not rest and place + 1 >= len(command):
                raise ContainerRefusal(f"ends with `{word}`, which takes a value")
            if i > 1 and _refused(word[1:i]):
                break
            value = rest or command[place + 1]
            return GivenOption(_SHORT_VALUED[letter], value, (word,) if rest else (word, value))
        if letter not in _SHORT_SWITCHES:
            raise ContainerRefusal(f"has `{word}`, which is not a known option of `run`")
    return GivenOption(_SHORT_SWITCHES[_refused(word[1:]) or word[1]], None, (word,))


def _refused(letters: str) -> str:
    return next((letter for letter in letters if letter in "dt"), "")
