"""Commands that run containers: what they are, what they get, and what is refused."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from actors.servers.container import Needs, command_fault, container_name, container_runtime, containerised
from actors.servers.container_options import ContainerRefusal, parse_run

NEEDS = Needs("run-1", "name-1", 31000)
OURS = "--name name-1 --label specsweep.run=run-1 --rm --init --network host"


def argv(command: str, **changes: object) -> str:
    """The whole command line."""
    found = containerised(shlex.split(command), replace(NEEDS, **changes))  # type: ignore[arg-type]
    assert found is not None
    return shlex.join(found.argv)


@pytest.mark.parametrize(
    "command",
    ["", "python3 -m sglang.launch_server", "numactl -N 0 python3 -m x", "my-tool docker run image", "./run docker"],
)
def test_other_commands_are_no_containers(command: str) -> None:
    assert containerised(command.split(), NEEDS) is None
    assert container_runtime(command.split()) == ()


@pytest.mark.parametrize(
    ("command", "runtime", "image", "inner"),
    [
        ("docker run image", "docker", "image", ""),
        ("docker run -e A=1 -eB=2 -v/a:/b --ipc host --gpus=all image python3 -m x", "docker", "image", "python3 -m x"),
        (
            "sudo -n /usr/bin/docker --context far run -i --rm image run",
            "sudo -n /usr/bin/docker --context far",
            "image",
            "run",
        ),
        ("podman container run --tls-verify=false --device a image", "podman", "image", ""),
        ("nerdctl -n k8s run -- image --flag", "nerdctl -n k8s", "image", "--flag"),
        ("env A=1 docker run -iP --cap-add X image", "env A=1 docker", "image", ""),
        ("docker run --new-option=3 image", "docker", "image", ""),
    ],
)
def test_the_image_is_the_first_word_that_belongs_to_no_option(
    command: str, runtime: str, image: str, inner: str
) -> None:
    run = parse_run(command.split())
    assert run is not None
    assert (" ".join(run.runtime), run.image, " ".join(run.inner)) == (runtime, image, inner)
    assert container_runtime(command.split()) == tuple(runtime.split())


def test_what_is_missing_is_added_and_what_the_user_gave_stays() -> None:
    assert argv("docker run image x") == f"docker run {OURS} image x"
    given = "docker run --init=false --rm --network=host --ipc host"
    assert argv(f"{given} image") == f"{given} --name name-1 --label specsweep.run=run-1 image"
    assert argv("docker run --pid host image") == f"docker run --pid host {OURS.replace(' --init', '')} image"


def test_a_published_port_replaces_the_network_of_the_host() -> None:
    added = OURS.removesuffix(" --network host")
    assert argv("docker run -p {port}:{port} image") == f"docker run -p 31000:31000 {added} image"
    found = containerised(("docker", "run", "-p", "127.0.0.1:{port}:{port}/tcp", "image"), NEEDS)
    assert found is not None
    assert not found.on_host_network


@pytest.mark.parametrize(
    ("command", "gpus", "expected"),
    [
        ("docker run image", "3", "--gpus device=3"),
        ("docker run image", "0,1", "--gpus '\"device=0,1\"'"),
        ("nerdctl run --gpus all image", "0,1", "--gpus '\"device=0,1\"'"),
        ("docker run --gpus 2 image", "4,5", "--gpus '\"device=4,5\"'"),
        ("docker run --gpus=all image", "3", "--gpus device=3"),
        ("podman run --gpus all image", "0,1", "--device nvidia.com/gpu=0 --device nvidia.com/gpu=1"),
        ("docker run --privileged image", "3", "--gpus all"),
    ],
)
def test_a_container_gets_the_gpus_of_its_slot_and_counts_them_from_zero(
    command: str, gpus: str, expected: str
) -> None:
    line = argv(command, gpu_ids=tuple(gpus.split(",")), variables=("CUDA_VISIBLE_DEVICES", "A"))
    privileged = "--privileged" in command
    variables = "-e CUDA_VISIBLE_DEVICES -e A" if privileged else "-e A"
    start = command.split(maxsplit=1)[0] + " run" + (" --privileged" if privileged else "")
    assert line == f"{start} {OURS} {expected} {variables} image"


@pytest.mark.parametrize(
    "options",
    [
        "--gpus '\"device=0,1\"'",
        "--gpus '\"device={gpus}\"'",
        "--device nvidia.com/gpu=0",
        "-e NVIDIA_VISIBLE_DEVICES={gpus}",
    ],
)
def test_gpus_that_the_user_names_stay(options: str) -> None:
    filled = options.replace("{gpus}", "0,1")
    assert argv(f"docker run {options} image", gpu_ids=("0", "1")) == shlex.join(
        shlex.split(f"docker run {filled} {OURS} image")
    )


def test_amd_devices_are_all_seen_so_the_numbers_of_the_host_go_in() -> None:
    line = argv("docker run --device /dev/kfd image", gpu_ids=("3",), variables=("CUDA_VISIBLE_DEVICES",))
    assert line == f"docker run --device /dev/kfd {OURS} -e CUDA_VISIBLE_DEVICES image"


def test_limits_variables_and_files() -> None:
    line = argv(
        "docker run -e A=9 -e B=1 -e HF_TOKEN=hf_x image",
        variables=("A", "C"),
        ulimits=(("nofile", 65536), ("memlock", -1)),
        mounts=(Path("/s/f.yaml"),),
    )
    assert line == (
        f"docker run -e B=1 {OURS} --ulimit nofile=65536 --ulimit memlock=-1 -v /s/f.yaml:/s/f.yaml:ro "
        "-e A -e C -e HF_TOKEN image"
    )
    found = containerised(("docker", "run", "-e", "HF_TOKEN=hf_x", "image"), NEEDS)
    assert found is not None
    assert found.secrets == {"HF_TOKEN": "hf_x"}


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("docker run -d image", "has `-d`: the server must stay in the foreground: leave -d/--detach out"),
        ("docker run --detach=true image", "has `--detach=true`: the server must stay"),
        ("docker run -it image", "has `-it`: a server has no terminal: leave -t/--tty out"),
        ("docker run --name mine image", "has `--name`: Specsweep names the container"),
        ("docker run --restart always image", "has `--restart`: a server that comes back by itself"),
        ("docker run --network none image", "has `--network none`: the server could not be reached; leave it out"),
        ("docker run --network bridge image", "publish the server's own port with `-p {port}:{port}`"),
        ("docker run -p 30000:30000 image", "publish the server's own port with `-p {port}:{port}`"),
        ("docker exec box python3", "is `docker exec`; only `docker run` starts a container that is ours to end"),
        ("docker compose run box", "is `docker compose`; only"),
        (
            "docker run --new-option 3 image",
            "has `--new-option`, which is not a known option of `run`: write `--new-option=VALUE`",
        ),
        ("docker run -x image", "has `-x`, which is not a known option"),
        ("docker run --rm", "`docker run` names no image; write it after the options"),
        ("docker run -e", "ends with `-e`, which takes a value"),
        ("docker", "calls docker without `run`"),
    ],
)
def test_what_cannot_work_is_refused(command: str, told: str) -> None:
    assert told in (command_fault(command.split()) or "")


def test_gpus_of_another_slot_are_refused() -> None:
    with pytest.raises(ContainerRefusal, match="has `--gpus device=3`, but this slot has GPU 0: leave --gpus out"):
        argv("docker run --gpus device=3 image", gpu_ids=("0",))


def test_names_are_those_that_docker_takes_and_differ_for_different_trials() -> None:
    name = container_name("größe 1/2", "31000", "t-r0")
    assert name == container_name("größe 1/2", "31000", "t-r0")
    assert name.startswith("specsweep-gr-e-1-2-31000-")
    assert len({name, container_name("größe 1/2", "31000", "t-r1"), container_name("größe 1/2", "31320", "t-r0")}) == 3
    assert len(container_name("x" * 500, "31000", "t")) < 100
