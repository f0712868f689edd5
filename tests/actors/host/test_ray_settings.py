"""How Ray was started, by the command lines and environments of its processes."""

from __future__ import annotations

import base64
import json

from actors.host.ray_settings import RayProcess, option_of, settings_in, start_of

SESSION = "--session-name=session_2026-11-30_05-12-00_818968_14471"


def gcs(system_config: dict[str, object], env: dict[str, str] | None = None) -> RayProcess:
    encoded = base64.b64encode(json.dumps(system_config).encode()).decode()
    return RayProcess("gcs_server", ("/ray/gcs_server", f"--config_list={encoded}", SESSION), env or {})


RAYLET = RayProcess("raylet", ("/ray/raylet", SESSION), {"RAY_worker_niceness": "0", "PATH": "/bin"})


def test_settings_are_those_of_ray_and_never_a_secret() -> None:
    env = {
        "RAY_worker_niceness": "0",
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "5ecret",
        "RAY_JOB_CONFIG_JSON_ENV_VAR": '{"env_vars": {"HF_TOKEN": "hf_x"}}',
        "RAY_redis_password": "hunter2",
        "RAY_object_spilling_config": '{"uri": "s3://key:secret@bucket"}',
        "RAY_JOB_ID": "01000000",
        "HOME": "/root",
    }

    assert settings_in(env) == (("RAY_AUTH_MODE", "token"), ("RAY_worker_niceness", "0"))


def test_a_worker_host_tells_its_raylets_settings_and_has_no_gcs() -> None:
    start = start_of(RAYLET, [RAYLET])

    assert start.raylet == (("RAY_worker_niceness", "0"),)
    assert start.gcs is None
    assert start.dashboard_host is None


def test_a_system_config_counts_for_the_gcs_and_its_environment_wins() -> None:
    head = gcs(
        {"health_check_period_ms": 1000, "health_check_timeout_ms": 2000, "object_spilling_config": {"type": "x"}},
        {"RAY_health_check_period_ms": "500"},
    )

    assert start_of(RAYLET, [head]).gcs == (
        ("RAY_health_check_period_ms", "500"),
        ("RAY_health_check_timeout_ms", "2000"),
    )


def test_a_system_config_that_cannot_be_read_leaves_the_environment() -> None:
    head = RayProcess("gcs_server", ("/ray/gcs_server", "--config_list=%%%"), {"RAY_health_check_period_ms": "500"})

    assert start_of(RAYLET, [head]).gcs == (("RAY_health_check_period_ms", "500"),)


def test_the_dashboard_tells_where_it_listens() -> None:
    dashboard = RayProcess("python", ("python", "/site/ray/dashboard/dashboard.py", "--host=0.0.0.0"), {})

    assert start_of(RAYLET, [dashboard]).dashboard_host == "0.0.0.0"


def test_usage_statistics_without_a_frontend_are_no_dashboard() -> None:
    words = ("python", "/site/ray/dashboard/dashboard.py", "--host=0.0.0.0", "--disable-frontend")

    assert start_of(RAYLET, [RayProcess("python", words, {})]).dashboard_host is None


def test_an_option_is_read_whole() -> None:
    assert option_of(("--port=1", "--port-retries=50"), "port-retries") == "50"
    assert option_of(("--port=1",), "host") is None
