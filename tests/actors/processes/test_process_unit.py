"""Who started a process, by its cgroup and environment; texts as Linux hosts print them."""

from __future__ import annotations

import pytest

from actors.processes.process_unit import Unit, restart_policy, unit_of

ID = "3f4e5d6c7b8a" + "9" * 52
POD = "8c2f6a1e-1111-2222-3333-444455556666"

CASES = {
    "0::/system.slice/sglang.service": ("sglang.service", "systemctl stop sglang.service"),
    "0::/system.slice/sglang@30000.service/payload": ("sglang@30000.service", "systemctl stop sglang@30000.service"),
    "0::/user.slice/user-1000.slice/user@1000.service/app.slice/serve.service": (
        "serve.service", "systemctl --user stop serve.service",
    ),
    f"0::/system.slice/docker-{ID}.scope": ("container 3f4e5d6c7b8a of docker", "docker stop 3f4e5d6c7b8a"),
    f"12:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/": (
        "container 3f4e5d6c7b8a of docker", "docker stop 3f4e5d6c7b8a",
    ),
    f"0::/machine.slice/libpod-{ID}.scope/container": (
        "container 3f4e5d6c7b8a of podman", "podman stop 3f4e5d6c7b8a",
    ),
    f"0::/system.slice/docker-{ID}.scope/system.slice/sglang.service": (
        "container 3f4e5d6c7b8a of docker", "docker stop 3f4e5d6c7b8a",
    ),
    "0::/lxc.payload.101/system.slice/sglang.service": ("sglang.service", "systemctl stop sglang.service"),
    "0::/lxc.payload.101/ns": ("LXC container 101", "lxc-stop -n 101, on the container host"),
}  # fmt: skip


@pytest.mark.parametrize("cgroup", CASES)
def test_a_unit_is_named_with_the_command_that_stops_it(cgroup: str) -> None:
    unit = unit_of(cgroup, {}, 7)
    assert unit is not None
    assert (unit.name, unit.stop) == CASES[cgroup]


@pytest.mark.parametrize("uid", [POD, POD.replace("-", "_")])
def test_a_pod_is_named_by_its_uid_whatever_runtime_it_has(uid: str) -> None:
    path = f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{uid}.slice/cri-containerd-{ID}.scope"
    unit = unit_of(path, {}, 7)
    assert unit is not None
    assert (unit.kind, unit.name) == ("pod", f"Kubernetes pod {POD}")
    assert restart_policy(unit, lambda words: None) == "always"


@pytest.mark.parametrize(
    "cgroup",
    [
        "",
        "0::/",
        "0::/user.slice/user-1000.slice/session-4.scope",
        "0::/user.slice/user-1000.slice/user@1000.service/init.scope",
        "0::/system.slice/ssh.service",
        "0::/system.slice/containerd.service",
    ],
)
def test_what_was_started_by_hand_belongs_to_no_unit(cgroup: str) -> None:
    assert unit_of(cgroup, {"INVOCATION_ID": "abc", "SYSTEMD_EXEC_PID": "6"}, 7) is None


def test_supervisord_is_known_by_what_it_puts_into_the_environment() -> None:
    names = {"SUPERVISOR_PROCESS_NAME": "sglang_0", "SUPERVISOR_GROUP_NAME": "sglang"}
    unit = unit_of("0::/system.slice/supervisor.service", names, 7)
    assert unit == Unit("supervisord", "supervisord program sglang:sglang_0", "supervisorctl stop sglang:sglang_0")
    assert restart_policy(unit, lambda words: None) == "autorestart"


def test_a_systemd_inside_a_container_is_known_by_the_invocation() -> None:
    unit = unit_of("0::/", {"INVOCATION_ID": "0123456789abcdef", "SYSTEMD_EXEC_PID": "7"}, 7)
    assert unit == Unit("systemd", "a systemd unit (invocation 0123456789ab)", "systemctl status 7")
    assert restart_policy(unit, lambda words: pytest.fail("nobody to ask")) is None


def test_the_restart_policy_is_asked_of_whoever_holds_the_process() -> None:
    asked: list[list[str]] = []

    def says(answer: str | None) -> object:
        def ask(words: list[str]) -> str | None:
            asked.append(words)
            return answer

        return ask

    service = unit_of("0::/system.slice/sglang.service", {}, 7)
    container = unit_of(f"0::/docker/{ID}", {}, 7)
    assert service is not None
    assert container is not None
    assert restart_policy(service, says("always\n")) == "always"  # type: ignore[arg-type]
    assert restart_policy(service, says("no\n")) is None  # type: ignore[arg-type]
    assert restart_policy(container, says("unless-stopped\n")) == "unless-stopped"  # type: ignore[arg-type]
    assert restart_policy(container, says(None)) is None  # type: ignore[arg-type]
    assert asked[0] == ["systemctl", "show", "-p", "Restart", "--value", "sglang.service"]
    assert asked[2] == ["docker", "inspect", "-f", "{{.HostConfig.RestartPolicy.Name}}", "3f4e5d6c7b8a"]
