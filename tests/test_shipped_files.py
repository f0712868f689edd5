"""What `ray job submit --working-dir .` sends of a working tree, by Ray's own packaging."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from orchestrator.jobs.job_package import own_files

ROOT = Path(__file__).resolve().parent.parent
SENT = (
    "orchestrator/cli.py", "actors/slot_actor.py", "actors/emulator/__main__.py",
    "actors/workloads/corpus/code.txt.zst", "scenarios/quickstart.yaml", "pyproject.toml", "prompts/mine.jsonl",
    "data/trace.csv",
)  # fmt: skip
KEPT_HERE = (
    ".env", ".env.local", ".envrc", "deploy.env/.env", "secrets/server.key", "secrets/server.pem", ".netrc",
    ".ssh/id_ed25519", "token/auth_token", "runs/quick-1/manifest.json", "runs/quick-1/dataset/requests/a.parquet",
    "results/a.json", ".venv/bin/python", ".venv-gpu/bin/python", "venv/bin/python", ".sglang-cpu/bin/sglang",
    ".sglang-dialects/0.5.9/x", ".llamacpp/server", ".peers/x", "orchestrator/__pycache__/cli.cpython-311.pyc",
    ".mypy_cache/x", ".ruff_cache/x", ".pytest_cache/x", ".hypothesis/x", ".git/config", "build/lib/x.py", "dist/x.whl",
    "specsweep.egg-info/PKG-INFO", "tests/test_x.py", "benchmarks/x.py", "docs/x.md",
)  # fmt: skip


def sent_by_ray(tree: Path, target: Path, *, by_git: bool) -> set[str]:
    packaging = pytest.importorskip("ray._private.runtime_env.packaging")
    packaging._zip_files(str(tree), [], str(target), include_gitignore=by_git)
    with zipfile.ZipFile(target) as archive:
        return {name for name in archive.namelist() if not name.endswith("/")}


@pytest.mark.parametrize("by_git", [True, False])
def test_secrets_results_and_environments_stay_here_whether_gitignore_counts_or_not(
    tmp_path: Path, *, by_git: bool
) -> None:
    tree = tmp_path / "tree"
    for name in (*SENT, *KEPT_HERE):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("x")
    for name in (".rayignore", ".gitignore"):
        (tree / name).write_bytes((ROOT / name).read_bytes())

    sent = sent_by_ray(tree, tmp_path / "sent.zip", by_git=by_git)

    assert sent - {".rayignore", ".gitignore"} == set(SENT)


def test_nothing_of_both_packages_is_left_out(tmp_path: Path) -> None:
    names = {*own_files(), *(f"scenarios/{file.name}" for file in (ROOT / "scenarios").iterdir())}
    tree = tmp_path / "tree"
    for name in names:
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).touch()
    (tree / ".rayignore").write_bytes((ROOT / ".rayignore").read_bytes())
    (tree / ".gitignore").write_bytes((ROOT / ".gitignore").read_bytes())

    assert names - sent_by_ray(tree, tmp_path / "sent.zip", by_git=True) == set()
