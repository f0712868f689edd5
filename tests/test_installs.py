"""What is fetched for tests: a network that fails once, and a run that is cut off in the middle, cost time only."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

TESTS = Path(__file__).resolve().parent
# Stands in for the Python that installs: `pip` leaves half a file and fails as often as FAILURES (a file) has lines.
PYTHON = """#!/usr/bin/env bash
set -eu
fails() { [ -s "$FAILURES" ] && sed -i 1d "$FAILURES"; }
case "$*" in
  "-m venv "*)
    mkdir -p "$3/bin"
    cp "$0" "$3/bin/python"
    cp "$0" "$3/bin/pip" ;;
  "-m pip download "*)
    wheel="$8/sglang-${9##*==}-py3-none-any.whl"
    [ -e "$wheel" ] && exit 0 # pip takes a file that is there for whole
    if fails; then echo half >"$wheel"; exit 1; fi
    echo whole >"$wheel" ;;
  "-m zipfile -e "*)
    mkdir -p "$5"
    cp "$4" "$5/parser.py" ;;
  "install "*)
    venv=$(dirname "$0")/..
    [ -e "$venv/torch.py" ] && exit 0
    if fails; then echo half >"$venv/torch.py"; exit 1; fi
    echo whole >"$venv/torch.py" ;;
  *make_tiny_model.py*)
    mkdir -p "$2"
    echo {} >"$2/config.json"
    if fails; then exit 1; fi
    echo {} >"$2/generation_config.json" ;;
  *) echo "unexpected: $*" >&2; exit 64 ;;
esac
"""


def installed(folder: Path, script: str, failures: int, again_s: str = "") -> subprocess.CompletedProcess[str]:
    """What an `install.sh` said that installs into a folder; it tries again after `again_s`."""
    python = folder / "python"
    python.write_text(PYTHON)
    python.chmod(0o755)
    (folder / "failures").write_text("once\n" * failures)
    told = {"PYTHON": str(python), "FAILURES": str(folder / "failures"), "AGAIN_S": again_s}
    return subprocess.run(
        ["bash", str(TESTS / script), str(folder / "root")], env={**os.environ, **told}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip


def again(script: str, folder: Path) -> tuple[int, str]:
    told = {"AGAIN_S": "0 0", "COUNT": str(folder / "count")}
    done = subprocess.run(
        [str(TESTS / "again.sh"), "bash", "-c", script], env={**os.environ, **told}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_what_fails_twice_is_run_a_third_time_and_what_always_fails_ends_with_its_own_code(tmp_path: Path) -> None:
    counted = 'echo x >>"$COUNT"; [ "$(wc -l <"$COUNT")" = 3 ] && echo done'

    assert again(counted, tmp_path) == (0, "done\n")
    assert again("exit 7", tmp_path) == (7, "")


def test_dialects_are_unpacked_from_whole_files_after_a_run_that_was_cut_off(tmp_path: Path) -> None:
    assert installed(tmp_path, "dialects/install.sh", 1).returncode == 1
    assert installed(tmp_path, "dialects/install.sh", 0).returncode == 0

    unpacked = {file.parent.name: file.read_text() for file in (tmp_path / "root").glob("*/parser.py")}
    assert (len(unpacked), set(unpacked.values())) == (8, {"whole\n"})


def test_sglang_is_installed_anew_after_a_run_that_was_cut_off(tmp_path: Path) -> None:
    assert installed(tmp_path, "sglang_cpu/install.sh", 1).returncode == 1
    assert installed(tmp_path, "sglang_cpu/install.sh", 0).returncode == 0

    assert (tmp_path / "root/venv/torch.py").read_text() == "whole\n"


def test_a_model_is_there_whole_or_is_made_again(tmp_path: Path) -> None:
    assert installed(tmp_path, "sglang_cpu/install.sh", 0).returncode == 0
    (tmp_path / "root/models/target/config.json").unlink()
    assert installed(tmp_path, "sglang_cpu/install.sh", 1).returncode == 1
    assert not (tmp_path / "root/models/target/config.json").exists()
    assert installed(tmp_path, "sglang_cpu/install.sh", 0).returncode == 0

    made = sorted(f"{file.parent.name}/{file.name}" for file in (tmp_path / "root/models").glob("*/*.json"))
    assert made == [f"{m}/{f}.json" for m in ("draft", "eagle", "target") for f in ("config", "generation_config")]
