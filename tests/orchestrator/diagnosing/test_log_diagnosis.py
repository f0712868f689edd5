"""Logs in files: packed or not, several of one start, a run's; and the command that shows the verdict."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import zstandard
from click.testing import CliRunner

from orchestrator.cli import main
from orchestrator.diagnosing.log_diagnosis import diagnose_log, first_cause
from orchestrator.errors import BadInput
from orchestrator.outcome import Label

READY = b"[2026-08-07 17:36:00] server_args={}\n[2026-08-07 17:36:01] The server is fired up and ready to roll!\n"
DEATH = (
    b"[2026-08-07 17:36:03 TP0] Scheduler hit an exception: Traceback (most recent call last):\n"
    b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.93 GiB. GPU 0 has a total capacity of 79.14 GiB "
    b"of which 3.79 GiB is free.\n"
)
PEER = (
    b"[2026-08-07 17:36:02 TP1] Scheduler hit an exception: Traceback (most recent call last):\n"
    b"RuntimeError: [../third_party/gloo/pair.cc:534] Connection closed by peer [10.0.0.1]:10812\n"
)


def file_of(folder: Path, data: bytes, name: str = "server.log") -> Path:
    file = folder / name
    file.write_bytes(data)
    return file


def told(*arguments: str, stdin: bytes | None = None) -> str:
    done = CliRunner().invoke(main, ["diagnose", *arguments], input=stdin, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout


def refused(*arguments: str) -> str:
    done = CliRunner().invoke(main, ["diagnose", *arguments], catch_exceptions=False)
    assert done.exit_code == 2
    return done.stderr


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("server.log", READY + DEATH),
        ("server.log.gz", gzip.compress(READY + DEATH)),
        ("no-name-says-so", zstandard.compress(READY + DEATH)),
        ("frames.zst", zstandard.compress(READY) + zstandard.compress(DEATH)),
    ],
)
def test_a_log_is_unpacked_by_what_it_is(tmp_path: Path, name: str, packed: bytes) -> None:
    found = diagnose_log(file_of(tmp_path, packed, name)).diagnosis
    assert (found.label, found.line_number) == (Label.RUNTIME_OOM, 4)


@pytest.mark.parametrize("packed", [gzip.compress(READY + DEATH)[:-9], zstandard.compress(READY + DEATH)[:-3] + b"xyz"])
def test_a_damaged_file_is_bad_input_and_no_verdict(tmp_path: Path, packed: bytes) -> None:
    with pytest.raises(BadInput, match="cannot be unpacked"):
        diagnose_log(file_of(tmp_path, packed))


def test_without_an_exit_code_the_server_may_be_alive(tmp_path: Path) -> None:
    file = file_of(tmp_path, READY)
    assert diagnose_log(file).diagnosis.label is Label.READY
    assert diagnose_log(file, exit_code=-9).diagnosis.label is Label.UNKNOWN
    assert diagnose_log(file, exit_code=-11).diagnosis.label is Label.SEGFAULT_ABORT


def test_the_log_of_another_engine_is_read_by_the_rules_that_know_no_phases(tmp_path: Path) -> None:
    file = file_of(tmp_path, b"error: unknown argument: --grammar\n")
    assert diagnose_log(file, exit_code=1, engine="command").diagnosis.label is Label.FLAG_INVALID


def test_of_several_ranks_the_one_that_died_first_tells(tmp_path: Path) -> None:
    """Rank 1 lost its connection a second before rank 0 told why it had died."""
    files = [
        file_of(tmp_path, READY + PEER, "rank1.log"),
        file_of(tmp_path, READY, "rank2.log"),
        file_of(tmp_path, READY + DEATH, "rank0.log"),
        file_of(tmp_path, READY + DEATH.replace(b"17:36:03", b"17:36:04"), "rank3.log"),
    ]
    verdicts = [diagnose_log(file) for file in files]
    assert first_cause(verdicts).file.endswith("rank0.log")
    assert first_cause(verdicts[::-1]).file.endswith("rank0.log")
    assert first_cause(verdicts[:2]).diagnosis.label is Label.PEER_RANK_FAILED


def test_the_verdict_for_machines(tmp_path: Path) -> None:
    file = file_of(tmp_path, READY + DEATH)
    assert json.loads(told(str(file), "--exit-code", "-9", "--json")) == {
        "file": str(file),
        "label": "runtime_oom",
        "phase": "serving",
        "evidence": DEATH.decode().splitlines()[1],
        "line": 4,
        "confidence": "high",
        "rule": "device_out_of_memory",
        "infeasible": True,
        "explanation": "the device ran out of memory in a forward pass",
        "advice": [
            "lower --mem-fraction-static by at least 0.03 (1.14 GiB more were needed)",
            "lower --mem-fraction-static",
            "compute less at once: --chunked-prefill-size, --max-running-requests",
        ],
    }


def test_the_verdict_for_people_fits_a_screen(tmp_path: Path) -> None:
    shown = told(str(file_of(tmp_path, READY + b"launch_server.py: error: unrecognized arguments: --x\n")))
    assert shown.splitlines() == [
        f"{tmp_path}/server.log: flag_invalid in phase args (confidence high, infeasible)",
        "  line 3: launch_server.py: error: unrecognized arguments: --x",
        "  means: the command line was refused: the server's command line does not know this argument, or "
        "not this value",
        "  change: 1. compare with `--help` of the release that runs there; trying again changes nothing",
    ]


def test_standard_input_and_several_logs(tmp_path: Path) -> None:
    assert json.loads(told("-", "--json", stdin=READY + DEATH))["file"] == "standard input"
    files = [str(file_of(tmp_path, READY + log, name)) for name, log in (("a", PEER), ("b", DEATH))]
    both = json.loads(told(*files, "--json"))
    assert (both["label"], [f["label"] for f in both["files"]]) == ("runtime_oom", ["peer_rank_failed", "runtime_oom"])
    assert told(*files).splitlines()[-1].startswith(f"{files[0]}: peer_rank_failed (serving): RuntimeError: [../third")


def test_what_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    assert "none.log: cannot be read: No such file" in refused(str(tmp_path / "none.log"))
    assert "is not a run directory" in refused(str(tmp_path))
    file = file_of(tmp_path, READY)
    assert "give one run directory alone" in refused(str(tmp_path), str(file))
    assert "give one run directory alone" in refused(str(tmp_path), "--exit-code", "1")


def a_run(folder: Path, events: list[dict[str, object]], logs: dict[str, bytes]) -> Path:
    """A run directory as far as its failed starts go; events as a release wrote them that knew fewer labels."""
    manifest = {"schema": 1, "run_id": "r", "engine": "sglang", "scenario": {}, "starts": []}
    (folder / "manifest.json").write_text(json.dumps(manifest))
    (folder / "journal.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
    for name, log in logs.items():
        (folder / "logs" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "logs" / name).write_bytes(zstandard.compress(log))
    return folder


def ended(trial: str, outcome: str, label: str, exit_code: int | None = -9, attempt: int = 1) -> dict[str, object]:
    told = {"label": label, "phase": "dist_init", "evidence": "as it was told", "exit_code": exit_code}
    return {"event": "trial_ended", "trial_id": trial, "attempt": attempt, "outcome": outcome, **told}


def test_failed_starts_of_a_run_are_judged_anew(tmp_path: Path) -> None:
    sm = b"RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
    run = a_run(
        tmp_path,
        [
            ended("t-1", "failed", "unknown"),
            ended("t-1", "infeasible", "kv_budget", attempt=2),
            ended("t-2", "measured", ""),
            ended("t-3", "failed", "start_timeout", -15),
            ended("t-4", "failed", "a_label_of_tomorrow"),
        ],
        {
            "t-1/server.log.zst": READY + sm,
            "t-1/server-2.log.zst": b"RuntimeError: Not enough memory\n",
            "t-3/server.log.zst": READY[:38],
        },
    )
    starts = json.loads(told(str(run), "--json"))["starts"]
    assert [(s["trial_id"], s["attempt"], s["recorded"], s["label"]) for s in starts] == [
        ("t-1", 1, "unknown", "kernel_arch"),
        ("t-1", 2, "kv_budget", "kv_budget"),
        ("t-3", 1, "start_timeout", "start_timeout"),
        ("t-4", 1, "unknown", "unknown"),
    ]
    assert starts[2]["evidence"] == "as it was told"
    assert "t-1 attempt 1: failed, recorded as unknown" in told(str(run))


def test_a_run_without_failed_starts_says_so(tmp_path: Path) -> None:
    assert told(str(a_run(tmp_path, [ended("t-1", "measured", "")], {}))) == "no start of this run failed\n"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_a_log_that_a_windows_shell_wrote_is_read(tmp_path: Path, encoding: str) -> None:
    log = tmp_path / "server.log"
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    log.write_bytes(mark + "launch_server.py: error: unrecognized arguments: --foo\r\n".encode(encoding))
    found = diagnose_log(log).diagnosis
    assert (found.label, found.line_number) == (Label.FLAG_INVALID, 1)
