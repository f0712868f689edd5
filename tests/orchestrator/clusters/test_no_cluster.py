"""What a user is told when a cluster cannot be joined; the words are those that Ray 2.60 printed."""

from __future__ import annotations

import pytest

from orchestrator.clusters.no_cluster import no_cluster

WRONG_TOKEN = (
    "[2026-11-30 05:39:08,627 W 447 447] gcs_client.cc:210: Failed to get cluster ID from GCS server: Unauthenticated: "
    "RPC error: InvalidAuthToken: Authentication token is missing or incorrect"
)


@pytest.mark.parametrize(
    ("told", "todo"),
    [
        ("Failed to connect to Ray cluster at 10.77.0.10:6379", "Ray takes drivers on hosts of the cluster only"),
        (
            "validate_socket_filename failed: AF_UNIX path length cannot exceed 107 bytes: /a/b",
            "set TMPDIR to a folder",
        ),
        ("ConnectionRefusedError: [Errno 111] Connection refused", "Start one with `ray up ray_cluster.yaml`"),
        ("", "Start one with `ray up ray_cluster.yaml`"),
    ],
)
def test_what_to_do_follows_from_what_ray_said(told: str, todo: str) -> None:
    said = no_cluster("10.77.0.10:6379", told)

    assert said.startswith(f"no Ray cluster at --address 10.77.0.10:6379: {told or 'no answer'}\n")
    assert todo in said


@pytest.mark.parametrize("after", ["", "\nFailed to connect to Ray cluster at 10.77.0.10:6379"])
def test_a_token_that_is_refused_is_told_without_rays_log_prefix(after: str) -> None:
    said = no_cluster("10.77.0.10:6379", WRONG_TOKEN + after)

    assert said.startswith(
        "no Ray cluster at --address 10.77.0.10:6379: Failed to get cluster ID from GCS server: Unauthenticated: "
        "RPC error: InvalidAuthToken: Authentication token is missing or incorrect\n"
        "This machine has another token than the cluster, or none"
    )


def test_warnings_that_do_no_harm_are_not_told_as_the_reason() -> None:
    harmless = "[2026-11-30 06:40:22,904 W 431 431] network_util.cc:357: Unable to detect local IP address."

    assert no_cluster("local", f"the folder is full\n{harmless}").splitlines() == [
        "no Ray cluster at --address local: the folder is full",
        "Ray could not be started on this machine. To join a cluster that runs, name it: --address HEAD:6379.",
    ]


def test_the_last_line_of_what_ray_printed_is_kept() -> None:
    assert no_cluster("auto", "first\nlast\n").splitlines()[0] == "no Ray cluster at --address auto: last"
