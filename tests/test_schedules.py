"""Recipes that measure every night: each is parsed by its own rules, and its command by our own command line."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from orchestrator.cli import main
from tests.schedules import (
    COMMANDS,
    CRON,
    DEPLOY,
    GITHUB,
    GITLAB,
    SERVICE,
    cron_lines,
    is_schedule,
)
from tests.unit_files import directives

TIMER = (DEPLOY / "specsweep-nightly.timer").read_text("utf-8")


def plain(words: Sequence[str], image: str = "") -> list[str]:
    """As the shell passes them on; the image is there where somebody gave one."""
    text = "\n".join(words)
    given = f"--candidate-image\n{image}" if image else ""
    return [w for w in re.sub(r"\$\{CANDIDATE_IMAGE:\+--candidate-image\n?.*?\}", given, text).split("\n") if w]


@pytest.mark.parametrize("recipe", COMMANDS)
def test_what_a_recipe_calls_is_our_own_command_with_options_that_it_has(recipe: str) -> None:
    command = main.commands["nightly"]
    asked = command.make_context("nightly", plain(COMMANDS[recipe])).params

    assert asked["scenario"].name == "nightly.yaml"
    assert (asked["address"], asked["wait_s"]) == ("auto", 3600.0)
    if recipe != "self-test":  # which is in no history
        assert str(asked["history"]).endswith("/history")
        assert asked["junit"] is not None
    assert asked["self_test"] is (recipe == "self-test")
    assert asked["summary"] is not None or recipe == "github"  # there the job's own summary is written


@pytest.mark.parametrize("recipe", ["github", "gitlab"])
def test_an_image_that_somebody_gives_becomes_the_candidate(recipe: str) -> None:
    asked = main.commands["nightly"].make_context("nightly", plain(COMMANDS[recipe], "org/sglang:x")).params

    assert asked["candidate_image"] == "org/sglang:x"


def test_lines_of_cron_have_a_schedule_a_user_and_a_command_that_a_shell_understands() -> None:
    assert [(schedule, user) for schedule, user, _ in cron_lines()] == [
        ("15 1 * * *", "specsweep"), ("15 13 1 * *", "specsweep"),
    ]  # fmt: skip
    for schedule, _, command in cron_lines():
        assert is_schedule(schedule)
        assert "%" not in command  # a new line, for cron
        assert len(command) < 998  # what cron reads of a line
        subprocess.run(["/bin/sh", "-nc", command], check=True)
    assert CRON.endswith("\n")  # cron leaves out a last line without


@pytest.mark.parametrize(("text", "is_one"), [
    ("*/5 0-6 1,15 * 1-5", True), ("60 1 * * *", False), ("1 1 * *", False), ("1 24 * * *", False),
    ("1 6-2 * * *", False), ("*/0 1 * * *", False), ("a 1 * * *", False), ("1 1 0 * *", False),
])  # fmt: skip
def test_what_is_no_schedule_is_seen(text: str, is_one: bool) -> None:
    assert is_schedule(text) is is_one


@pytest.mark.parametrize("recipe", ["cron", "systemd"])
def test_two_nights_never_overlap_and_the_second_ends_as_one_that_was_not_measured(recipe: str, tmp_path: Path) -> None:
    whole = cron_lines()[0][2] if recipe == "cron" else directives(SERVICE)["ExecStart"][0]
    words = shlex.split(whole[whole.index("flock ") :])
    options = words[1 : next(i for i, word in enumerate(words) if word.endswith("nightly.lock"))]
    flock = shutil.which("flock")
    if flock is None:
        pytest.skip("no flock here")
    lock = [flock, *options, str(tmp_path / "lock")]

    inside = subprocess.run([*lock, *lock, "true"], check=False)
    alone = subprocess.run([*lock, "true"], check=False)

    assert (inside.returncode, alone.returncode) == (3, 0)


@pytest.mark.parametrize("recipe", ["cron", "systemd"])
def test_a_stop_reaches_the_night_behind_its_lock_and_a_lock_that_is_not_free_is_told(
    recipe: str, tmp_path: Path
) -> None:
    whole = cron_lines()[0][2] if recipe == "cron" else directives(SERVICE)["ExecStart"][0]
    words = shlex.split(whole[whole.index("flock ") :])
    place = next(i for i, word in enumerate(words) if word.endswith("nightly.lock"))
    flock = shutil.which("flock")
    if flock is None:
        pytest.skip("no flock here")
    lock = [flock, *words[1:place], str(tmp_path / "lock")]
    night = subprocess.Popen([*lock, "sh", "-c", "trap 'exit 3' TERM; echo begun; while :; do sleep 0.02; done"],
                             stdout=subprocess.PIPE, text=True)  # fmt: skip
    assert night.stdout is not None
    for line in night.stdout:
        if line == "begun\n":
            break

    other = subprocess.run([*lock, "true"], capture_output=True, text=True, check=False)
    night.terminate()

    assert (other.returncode, "failed to get lock" in other.stderr) == (3, True)
    assert night.wait(timeout=60) == 3  # of its own: else -15, by flock, which would leave it behind


@pytest.mark.parametrize("recipe", ["cron", "self-test", "github", "gitlab"])
def test_a_time_limit_asks_once_for_an_orderly_end_and_the_code_is_that_of_the_night(recipe: str) -> None:
    whole = {
        "cron": cron_lines()[0][2],
        "self-test": cron_lines()[1][2],
        "github": GITHUB["jobs"]["nightly"]["steps"][1]["run"],
        "gitlab": GITLAB["nightly"]["script"][0],
    }
    words = shlex.split(whole[recipe])
    options = words[words.index("timeout") + 1 :][:3]

    # Without --foreground it signals the night and then the night's whole group: twice is an end at once.
    assert options == ["--foreground", "--preserve-status", "--kill-after=300"]


def test_a_unit_gives_a_night_its_time_an_orderly_end_and_secrets_from_a_file() -> None:
    told, timer = directives(SERVICE), directives(TIMER)

    assert (told["Type"], told["TimeoutStartSec"], told["KillMode"]) == (["oneshot"], ["8h"], ["mixed"])
    assert int(told["TimeoutStopSec"][0]) > 60
    assert told["EnvironmentFile"] == ["/etc/specsweep/nightly.env"]
    assert "SuccessExitStatus" not in told  # 1 and 3 are failures
    assert "Restart" not in told
    assert (timer["OnCalendar"], timer["Persistent"]) == (["*-*-* 01:15:00 UTC"], ["false"])
    assert timer["Unit"] == ["specsweep-nightly.service"]


def systemd(*words: str) -> subprocess.CompletedProcess[str]:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd here")
    return subprocess.run([analyze, *words], capture_output=True, text=True, check=False)


def verified_units(folder: Path, wrong: str = "") -> str:
    """What systemd says of all our units, with programs that are there; nothing if all is well."""
    for file in (*DEPLOY.glob("*.service"), *DEPLOY.glob("*.timer")):
        text = re.sub(r"/opt/specsweep/bin/\w+", "/bin/true", file.read_text("utf-8"))
        (folder / file.name).write_text(text.replace("User=specsweep", f"User=root{wrong}"))
    told = systemd("verify", "--man=no", *(str(file) for file in sorted(folder.iterdir())))
    return "\n".join(line for line in told.stderr.splitlines() if "specsweep" in line)


def test_systemd_takes_all_units_and_the_calendar(tmp_path: Path) -> None:
    assert verified_units(tmp_path) == ""
    assert "'Usr'" in verified_units(tmp_path, "\nUsr=x")
    assert systemd("calendar", directives(TIMER)["OnCalendar"][0]).returncode == 0


def test_no_recipe_holds_a_secret() -> None:
    for file in DEPLOY.glob("*nightly*"):
        assert not re.search(r"(?:TOKEN|KEY|SECRET|PASSWORD)=(?!token\b)\S", file.read_text("utf-8")), file.name
