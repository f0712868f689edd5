"""What a shell command tells `ray start`."""

from __future__ import annotations

import pytest

from orchestrator.clusters.start_command import RayStart, ray_start_in, sources_in


@pytest.mark.parametrize(
    ("command", "env"),
    [
        ("A=1 ray start", {"A": "1"}),
        ("A=1 B='x y' /opt/venv/bin/ray start", {"A": "1", "B": "x y"}),
        ("env A=1 ray start", {"A": "1"}),
        ("export A=1 B=2; ray start", {"A": "1", "B": "2"}),
        ("export A=1 && C=3 nohup ray start &", {"A": "1", "C": "3"}),
        ("A=1; ray start", {}),  # a shell variable, not exported
        ("A=1 echo; ray start", {}),  # echo's, not Ray's
        ("nice -n 0 sudo -E A=1 ray start", {"A": "1"}),
        ("ulimit -c unlimited\nA=1 ray start # B=2", {"A": "1"}),
        ("(ulimit -n 70000; A=1 ray start --head)", {"A": "1"}),
    ],
)
def test_only_what_the_shell_exports_to_ray_counts(command: str, env: dict[str, str]) -> None:
    start = ray_start_in(command)

    assert start is not None
    assert start.env == env


def test_options_are_read_as_ray_reads_them() -> None:
    command = """ray start --head --port=6379 --dashboard-port 8265 --labels="a=b,host=$(hostname -s)" --block"""

    assert ray_start_in(command) == RayStart(
        {},
        None,
        {
            "head": "true",
            "port": "6379",
            "dashboard-port": "8265",
            "labels": "a=b,host=$(hostname -s)",
            "block": "true",
        },
    )


@pytest.mark.parametrize(
    ("before", "limit"),
    [
        ("ulimit -n 65536", 65536),
        ("ulimit -Sn 4096", 4096),
        ("ulimit -HSn 9", 9),
        ("ulimit -c unlimited", None),
        ("true", None),
    ],
)
def test_the_limit_of_open_files_is_that_of_the_same_shell(before: str, limit: int | None) -> None:
    start = ray_start_in(f"{before}; ray start")

    assert start is not None
    assert start.open_files == limit


@pytest.mark.parametrize("command", ["ray stop", "echo ray start", "echo 'ray start", "", "python -m ray start"])
def test_what_does_not_start_ray_is_not_mistaken_for_it(command: str) -> None:
    assert ray_start_in(command) is None


def test_what_a_file_or_a_service_may_set_is_told() -> None:
    sourced = ray_start_in(". ~/ray.env; ray start --head")

    assert sourced is not None
    assert sourced.sourced == ". ~/ray.env"
    assert sources_in("sudo systemctl restart ray") == "sudo systemctl"
    assert sources_in("ray stop") is None
