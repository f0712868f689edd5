"""What is told about hosts that are not as a benchmark wants them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from orchestrator.clusters.raylet_settings import TUNED
from orchestrator.host_report import GpuReport, HostReport
from orchestrator.upkeep.host_warnings import HostSeen, HostWarning, host_warnings

SETTINGS = tuple(sorted(TUNED.items()))
GPUS = tuple(GpuReport(i, "NVIDIA B200", 180.0, f"0000:{i:02x}:00.0", i // 4) for i in range(8))
GOOD = HostReport(
    "h1", "AMD EPYC 9655", 192, 2048.0, "6.8.0", GPUS, driver_version="580.95.05", engine_version="0.5.21",
    model_present=True, open_files=65536, scratch_free_gib=900.0, ray_settings=SETTINGS, shm_free_gib=512.0,
    python_version="3.11.7", ray_version="2.60.0",
)  # fmt: skip
HEAD = replace(
    GOOD, hostname="h0", gpus=None, driver_version=None, engine_version=None, model_present=None,
    gcs_settings=SETTINGS, dashboard_host="127.0.0.1",
)  # fmt: skip


def cluster(*reports: HostReport, head: HostReport = HEAD, off_s: float = 0.0) -> list[HostSeen]:
    """A head and hosts with 8 GPUs each."""
    hosts = [HostSeen(f"h{i + 1}", 8, report, off_s, 0.01) for i, report in enumerate(reports)]
    return [HostSeen("h0", 0, head, 0.0, 0.01), *hosts]


def only(seen: list[HostSeen], model: str | None = None) -> HostWarning:
    (warning,) = host_warnings(seen, model)
    return warning


def without(*names: str) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in SETTINGS if name not in names)


def test_a_cluster_as_we_would_start_it_has_nothing_wrong() -> None:
    assert host_warnings(cluster(GOOD, GOOD), "/models/x") == []


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"niceness": 15}, "servers would run at nice 15"),
        ({"oom_score_adj": 1000}, "the first that the kernel kills for memory (oom_score_adj 1000)"),
        ({"open_files": 1024}, "a process may have only 1024 files open"),
        ({"scratch_free_gib": 1.25}, "only 1.2 GiB are free for logs and records"),
        ({"shm_free_gib": 0.0625}, "only 0.1 GiB are free in /dev/shm"),
        ({"ray_settings": without("RAY_grpc_keepalive_time_ms")}, "cut off keeps its servers for minutes"),
        ({"ray_settings": without("RAY_AUTH_MODE")}, "RAY_AUTH_MODE is not set, so Ray may ask for no token"),
        ({"ray_settings": (*without("RAY_AUTH_MODE"), ("RAY_AUTH_MODE", "disabled"))}, "Ray asks for no token"),
        ({"model_present": False}, "the model /models/x is not there"),
        ({"gpus": GPUS[:7]}, "Ray has 8 GPUs where the driver has 7"),
        ({"gpus": (*GPUS[:7], replace(GPUS[7], name="NVIDIA H200"))}, "GPUs of one host differ"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_host_is_told_with_the_host(change: dict[str, object], told: str) -> None:
    warnings = host_warnings(cluster(GOOD, replace(GOOD, **change)), "/models/x")  # type: ignore[arg-type]

    (own,) = [warning for warning in warnings if warning.hosts]
    assert own.hosts == ("h2",)
    assert told in own.what
    assert own.todo


def test_every_warning_says_what_to_set_and_that_ray_must_be_started_anew() -> None:
    warning = only(cluster(GOOD, replace(GOOD, niceness=15)))

    assert warning.told() == (
        "h2: servers would run at nice 15, behind everything else on the host. "
        "Set RAY_worker_niceness=0 RAY_worker_oom_score_adjustment=0 before `ray start` and start Ray there anew"
    )


def test_the_same_on_many_hosts_is_told_once() -> None:
    warning = only(cluster(*[replace(GOOD, open_files=1024)] * 7))

    assert warning.hosts == ("h1", "h2", "h3", "h4", "h5", "h6", "h7")
    assert warning.told().startswith("h1, h2, h3, h4 and 3 more: a process may have only 1024 files open")


def test_a_head_with_rays_defaults_takes_a_minute_to_notice_a_lost_host() -> None:
    slow = without("RAY_health_check_period_ms", "RAY_health_check_timeout_ms", "RAY_health_check_failure_threshold")
    warning = only(cluster(GOOD, head=replace(HEAD, gcs_settings=slow)))

    assert warning.hosts == ("h0",)
    assert warning.what == "this head notices the loss of a host after about 62 s"


def test_settings_on_the_head_alone_leave_an_isolated_host_its_servers() -> None:
    warning = only(cluster(replace(GOOD, ray_settings=(("RAY_AUTH_MODE", "token"),))))

    assert warning.hosts == ("h1",)
    assert "a host that is cut off keeps its servers for minutes" in warning.what
    assert "RAY_gcs_rpc_server_reconnect_timeout_s=20" in warning.todo


def test_one_machine_alone_can_lose_no_host() -> None:
    embedded = replace(GOOD, ray_settings=(("RAY_AUTH_MODE", "token"),), gcs_settings=())

    assert host_warnings([HostSeen("vm", 8, embedded)]) == []


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "10.0.0.1"])
def test_a_dashboard_that_others_reach_is_told(address: str) -> None:
    warning = only(cluster(GOOD, head=replace(HEAD, dashboard_host=address)))

    assert warning.what == f"the dashboard listens on {address}"


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"engine_version": "0.5.9"}, "hosts differ in SGLang: 0.5.21 on h1; 0.5.9 on h2"),
        ({"driver_version": "570.1"}, "hosts differ in NVIDIA driver: 570.1 on h2; 580.95.05 on h1"),
        ({"python_version": "3.12.1"}, "hosts differ in Python: 3.11 on h0, h1; 3.12 on h2"),
        ({"ray_version": "2.61.0"}, "hosts differ in Ray: 2.60.0 on h0, h1; 2.61.0 on h2"),
        ({"gpus": GPUS[:4]}, "hosts of several classes: 4x NVIDIA B200 180 GiB on h2; 8x NVIDIA B200 180 GiB on h1"),
    ],
)
def test_hosts_that_differ_are_told_with_who_has_what(change: dict[str, object], told: str) -> None:
    warnings = host_warnings(cluster(GOOD, replace(GOOD, **change)))  # type: ignore[arg-type]

    assert told in [warning.what for warning in warnings if not warning.hosts]


def test_patch_releases_of_python_are_the_same_python() -> None:
    assert host_warnings(cluster(GOOD, replace(GOOD, python_version="3.11.14"))) == []


def test_what_a_host_does_not_tell_is_no_difference() -> None:
    assert host_warnings(cluster(GOOD, replace(GOOD, engine_version=None, model_present=None)), "org/model") == []


def test_the_head_without_gpus_is_no_class_of_its_own() -> None:
    assert host_warnings(cluster(GOOD)) == []


def test_hosts_without_gpus_may_differ_where_others_serve() -> None:
    small = replace(HEAD, cpus=8, cpu_model="Intel Xeon")

    assert host_warnings(cluster(GOOD, head=small)) == []


@pytest.mark.parametrize(("off_s", "way"), [(3.2, "3.2 s ahead of"), (-0.8, "0.8 s behind")])
def test_a_clock_that_is_off_is_told_with_what_is_known_of_it(off_s: float, way: str) -> None:
    warning = only(cluster(GOOD, off_s=off_s))

    assert warning.what == f"the clock is {way} this machine's (known to 0.01 s)"


def test_a_clock_that_may_be_right_is_not_called_wrong() -> None:
    """Half the time that asking took is the error."""
    assert host_warnings([HostSeen("h0", 0, HEAD), HostSeen("h1", 8, GOOD, 2.4, 2.0)]) == []
    assert host_warnings([HostSeen("h0", 0, HEAD), HostSeen("h1", 8, GOOD, None, 0.0)]) == []
