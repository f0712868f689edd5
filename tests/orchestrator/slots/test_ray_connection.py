"""Which cluster a command joins, and with which token, by what is at hand; Ray itself is not started."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from orchestrator.errors import ClusterRefusal
from orchestrator.slots import ray_connection, ray_patience
from orchestrator.slots.ray_connection import Connection, connect, resolve_address, use_token_at_hand


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_ADDRESS", "RAY_TMPDIR", "TMPDIR", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    # Set first, so that what a test leaves in its place is taken back.
    monkeypatch.setenv("RAY_AUTH_MODE", "")
    monkeypatch.delenv("RAY_AUTH_MODE")
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.mark.parametrize("variable", ["TMPDIR", "RAY_TMPDIR"])
def test_a_cluster_is_found_where_its_temporary_folder_was_moved_to(
    variable: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(variable, str(tmp_path))
    assert resolve_address(None) == "local"

    (tmp_path / "ray").mkdir()
    (tmp_path / "ray/ray_current_cluster").write_text("10.0.0.1:6379")
    assert resolve_address(None) == "auto"


def test_an_address_that_is_named_counts_before_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")

    assert resolve_address("local") == "local"
    assert resolve_address(None) == "auto"


def test_a_token_in_the_usual_place_is_used_without_any_variable(tmp_path: Path) -> None:
    use_token_at_hand()
    assert "RAY_AUTH_MODE" not in os.environ

    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("t")
    use_token_at_hand()
    assert os.environ["RAY_AUTH_MODE"] == "token"


def test_a_mode_that_the_user_chose_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN", "t")
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")

    use_token_at_hand()
    assert os.environ["RAY_AUTH_MODE"] == "disabled"


SLOW = Exception(
    "The current node timed out during startup. This could happen because some of the raylet failed to startup"
)


@pytest.fixture
def inits(monkeypatch: pytest.MonkeyPatch) -> list[Exception | None]:
    """What `ray.init` is going to raise, call after call; None for a cluster that comes up."""
    import ray

    planned: list[Exception | None] = []

    def init(**options: object) -> None:
        raised = planned.pop(0)
        if raised is not None:
            raise raised

    monkeypatch.setattr(ray, "init", init)
    return planned


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_is_told_to_stop_while_ray_starts_leaves_it_whole_and_stops_then(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray
    from ray._private import utils

    seen: list[str] = []

    def init(**options: object) -> None:
        utils.set_sigterm_handler(lambda *_: seen.append("Ray would have ended us here"))
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
        seen.append("whole")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray, "shutdown", lambda: seen.append("left"))
    before = signal.getsignal(number)

    with pytest.raises(KeyboardInterrupt):
        connect(Connection("local"), "run-1")
    assert seen == ["whole", "left"]
    assert signal.getsignal(number) is before


def test_who_is_told_to_stop_while_ray_waits_for_its_processes_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray
    from ray._private import services

    asked: list[str] = []

    def get_node(gcs_address: str, node_id: str) -> None:
        asked.append(node_id)
        os.kill(os.getpid(), signal.SIGINT)
        raise RuntimeError("not registered yet")

    monkeypatch.setattr(services, "get_node", get_node)
    monkeypatch.setattr(ray_patience, "raylet_lives", lambda: True)
    monkeypatch.setattr(ray, "init", lambda **_: services.get_node("head", "n1"))

    with pytest.raises(KeyboardInterrupt):
        connect(Connection("local"), "run-1")
    assert asked == ["n1"]


def test_a_start_that_fails_of_who_was_told_to_stop_is_no_refusal(
    inits: list[Exception | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    inits += [Exception("out of luck")]
    monkeypatch.setattr(ray_connection, "end_start", lambda _: os.kill(os.getpid(), signal.SIGINT))

    with pytest.raises(KeyboardInterrupt):
        connect(Connection("local"), "run-1")


@pytest.mark.parametrize("slow", [SLOW, Exception("Timed out waiting for file /tmp/s/gcs_server_port_1")])
def test_a_cluster_of_ones_own_that_comes_up_too_slowly_is_tried_again(
    slow: Exception, inits: list[Exception | None]
) -> None:
    inits += [slow, slow, None]

    connect(Connection("local"), "run-1")
    assert inits == []


@pytest.mark.parametrize(
    ("raised", "told", "left"),
    [
        ([SLOW] * 4, "Ray's own processes do not come up, however often they are started", 1),
        ([Exception("out of luck")] * 2, "out of luck", 1),
        ([RuntimeError("no disk")] * 2, "no disk", 1),
    ],
)
def test_whatever_ray_raises_at_its_start_is_told_as_a_cluster_that_there_is_not(
    raised: list[Exception | None], told: str, left: int, inits: list[Exception | None]
) -> None:
    inits += raised

    with pytest.raises(ClusterRefusal, match=told):
        connect(Connection("local"), "run-1")
    assert len(inits) == left
