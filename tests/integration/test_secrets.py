"""A key given to a server reaches the server, and nothing that stays or that others can see."""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path

import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
import zstandard

from tests.integration.programs import QUICK, at_work, held, let_go, marked_processes, start, wait_until

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]

KEY = "sk-live-0a1b2c3d4e5f"
TOKEN = "hf_9z8y7x6w5v4u"
SECRETS = (KEY.encode(), TOKEN.encode())


def contents(file: Path) -> bytes:
    """What a file holds once it is unpacked."""
    data = file.read_bytes()
    if file.name.endswith(".zst"):
        return data + zstandard.ZstdDecompressor().decompress(data, max_output_size=50_000_000)
    if file.suffix == ".parquet":
        return data + json.dumps(pq.read_table(file).to_pylist(), default=str).encode()
    return data


def holding(folder: Path) -> list[str]:
    """Files under a folder in which a secret stands."""
    files = [path for path in folder.rglob("*") if path.is_file() and not path.is_symlink()]
    return [str(path) for path in files if any(secret in contents(path) for secret in SECRETS)]


def seen_in_process_list() -> list[str]:
    """Command lines of any process of this host in which a secret stands."""
    found = []
    for entry in os.listdir("/proc"):  # noqa: PTH208
        try:
            line = Path(f"/proc/{entry}/cmdline").read_bytes() if entry.isdigit() else b""
        except OSError:
            continue
        if any(secret in line for secret in SECRETS):
            found.append(line.replace(b"\0", b" ").decode(errors="replace"))
    return found


def test_an_api_key_given_to_a_server_is_in_no_process_list_and_nowhere_on_disk_after_a_run(tmp_path: Path) -> None:
    root = tmp_path / "runs" / "keyed"
    engine = f"""  extra_args: [--api-key, {KEY}]
  env: {{HF_TOKEN: {TOKEN}}}
  before_start: [{{command: [sh, -c, "echo key $1 token $HF_TOKEN", sh, --api-key={KEY}]}}]
  after_stop: [{{command: [sh, -c, "echo key {KEY}; false"]}}]
"""
    keyed = QUICK.replace("  start_speedup", engine + "  start_speedup").replace("[0, 1, 2, 3]", "[0, 2]")
    scenario = held(tmp_path, keyed)
    driver = start("run", str(scenario), "--address", "local", "--run-dir", str(root))
    shown: list[str] = []
    scratch = Path(tempfile.gettempdir()) / f"specsweep-{os.getuid()}" / "keyed"

    def is_loaded() -> bool:
        servers = [line for line in marked_processes("keyed") if "actors.emulator" in line]
        shown.extend(line for line in seen_in_process_list() if "actors.emulator" in line)
        return bool(servers) and bool(at_work(root))

    wait_until(is_loaded, "a server is loaded", of=driver)
    let_go(tmp_path)
    printed, complained = driver.communicate(timeout=300)

    assert driver.returncode == 0, printed + complained
    assert shown == []
    rows = ds.dataset(root / "dataset/requests").to_table(columns=["status"]).to_pylist()
    assert {row["status"] for row in rows} == {"ok"}
    assert holding(root) == []
    assert not scratch.exists()
    assert not any(secret.decode() in printed + complained for secret in SECRETS)
    assert marked_processes("keyed") == []
    log = zstandard.ZstdDecompressor().decompress(
        next(root.glob("logs/*/server.log.zst")).read_bytes(), max_output_size=10_000_000
    )
    assert b"token ***" in log
    assert re.search(rb"\bapi_key['\"]?[=:] ?['\"]\*\*\*", log)  # the server had the key, and printed it
    assert "after_stop: sh -c 'echo key ***; false' ended with exit code 1: key ***" in printed
