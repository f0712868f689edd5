"""Which dashboard is asked and with which token, and what is told where none answers as it should."""

from __future__ import annotations

import io
import socket
import threading
from pathlib import Path

import pytest
from rich.console import Console

from orchestrator.clusters.cluster_token import cluster_token
from orchestrator.errors import BadInput, ClusterRefusal
from orchestrator.jobs.job_client import dashboard_address
from orchestrator.jobs.job_commands import show_status
from tests.fakes.dashboard import FakeDashboard


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without anything of the user's."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def said() -> Console:
    return Console(file=io.StringIO(), width=200)


def test_a_cluster_with_a_token_says_within_a_moment_what_is_missing(
    said: Console, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    with FakeDashboard(token="right").serving() as head:
        with pytest.raises(ClusterRefusal, match=r"wants the cluster's token and we have none.*ray get-auth-token"):
            show_status(None, head.address, as_json=True, console=said)
        monkeypatch.setenv("RAY_AUTH_TOKEN", "wrong")
        with pytest.raises(ClusterRefusal, match="does not accept our token") as refused:
            show_status(None, head.address, as_json=True, console=said)
        assert "wrong" not in str(refused.value)
        monkeypatch.delenv("RAY_AUTH_TOKEN")
        (place / "home/.ray").mkdir(parents=True)
        (place / "home/.ray/auth_token").write_text("right\n")
        show_status(None, head.address, as_json=True, console=said)


def test_where_the_token_is_looked_for_is_as_ray_does(place: Path) -> None:
    file = place / "token"
    file.write_text("of-the-file\n")

    assert cluster_token({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_TOKEN_PATH": str(file)}) == "t"
    assert cluster_token({"RAY_AUTH_TOKEN_PATH": str(file)}) == "of-the-file"
    assert cluster_token({"RAY_AUTH_TOKEN": "t", "RAY_AUTH_MODE": "disabled"}) is None
    assert cluster_token({}) is None
    with pytest.raises(BadInput, match="RAY_AUTH_TOKEN_PATH /none: cannot be read"):
        cluster_token({"RAY_AUTH_TOKEN_PATH": "/none"})


@pytest.mark.parametrize(
    ("given", "environ", "address"),
    [
        ("http://head:8265/", {}, "http://head:8265"),
        ("head:8265", {}, "http://head:8265"),
        ("https://head:443/ray", {}, "https://head:443/ray"),
        ("http://[fd00::1]:8265", {}, "http://[fd00::1]:8265"),
        ("a:1", {"RAY_API_SERVER_ADDRESS": "http://b:2"}, "http://a:1"),
        (None, {"RAY_API_SERVER_ADDRESS": "http://b:2", "RAY_ADDRESS": "http://c:3"}, "http://b:2"),
        (None, {"RAY_ADDRESS": "http://c:3"}, "http://c:3"),
        (None, {"RAY_ADDRESS": "10.0.0.1:6379"}, "http://10.0.0.1:8265"),
        (None, {"RAY_ADDRESS": "ray://10.0.0.1:10001"}, "http://10.0.0.1:8265"),
        (None, {"RAY_ADDRESS": "auto"}, "http://127.0.0.1:8265"),
        (None, {}, "http://127.0.0.1:8265"),
    ],
)
def test_where_the_dashboard_is(given: str | None, environ: dict[str, str], address: str) -> None:
    assert dashboard_address(given, environ) == address


@pytest.mark.parametrize("given", ["auto", "head", "ray://head:10001", "http://head", "head:eight", "http://:8265"])
def test_what_is_no_dashboard_is_refused(given: str) -> None:
    with pytest.raises(BadInput, match=r"give the dashboard of the head, e\.g\. http://HEAD:8265"):
        dashboard_address(given, {})


def test_where_something_else_than_http_answers_no_bytes_of_it_are_told(said: Console) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"\0\0\x18\x04\0\0\0\0\0")

        speaker = threading.Thread(target=answer)
        speaker.start()
        with pytest.raises(ClusterRefusal, match="what answers there speaks no HTTP\nGive the dashboard of the head"):
            show_status(None, f"127.0.0.1:{server.getsockname()[1]}", as_json=True, console=said)
        speaker.join()


def test_where_nothing_listens_the_way_there_is_told(said: Console) -> None:
    with pytest.raises(ClusterRefusal, match=r"no Ray dashboard answers at --address http://127.0.0.1:1: .*\n.*ssh -L"):
        show_status(None, "127.0.0.1:1", as_json=True, console=said)
