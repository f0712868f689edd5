"""`specsweep fetch`: the directory of a run that was a job, copied here by a small job that writes it to its log."""

from __future__ import annotations

import secrets
import shlex
from pathlib import Path

from rich.console import Console

from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.jobs.job_client import JobClient
from orchestrator.jobs.job_follow import remedy, wait_for_end
from orchestrator.jobs.job_log import told_by
from orchestrator.jobs.job_package import own_package
from orchestrator.jobs.job_talk import client_of, talk
from orchestrator.jobs.run_archive import unpack


def fetch(job_id: str, address: str | None, to: Path, *, with_logs: bool, python: str | None, console: Console) -> None:
    """Copy the run of a job below a folder. BadInput if the job has no run directory."""
    client = client_of(address)
    job = talk(client.job(job_id))
    run_dir = told_by(talk(client.log(job_id))).run_dir or job.metadata.get("run_dir")
    if run_dir is None:
        raise BadInput(
            f"job {job_id} has told no run directory; was it a run of Specsweep? `specsweep status` lists what there is"
        )
    fetch_run(client, run_dir, to, console, python or _python_of(job.entrypoint), with_logs=with_logs)


def _python_of(entrypoint: str) -> str:
    """The Python that a job ran by, which can run Specsweep there; `python` if its command does not tell."""
    words = [word for word in entrypoint.split() if word != "exec"]
    return shlex.split(words[0])[0] if words[1:3] == ["-m", "orchestrator"] else "python"


def fetch_run(
    client: JobClient, run_dir: str, to: Path, console: Console, python: str, *, with_logs: bool = False
) -> None:
    """Copy a run directory of the head below a folder."""
    console.print(f"Copying {run_dir} ...", soft_wrap=True, markup=False)
    root = unpack(talk(_lines(client, run_dir, python, with_logs=with_logs)), to)
    console.print(f"Run: {root}", soft_wrap=True, markup=False)


async def _lines(client: JobClient, run_dir: str, python: str, *, with_logs: bool) -> list[str]:
    package = own_package()
    words = [python, "-m", "orchestrator", "send-run", run_dir, *(["--logs"] if with_logs else [])]
    job_id = await client.submit(
        {
            "entrypoint": f"exec {shlex.join(words)}",
            "submission_id": f"specsweep-fetch-{secrets.token_hex(6)}",
            "runtime_env": {"working_dir": await client.upload(package.name, package.data)},
        }
    )
    end = await wait_for_end(client, job_id, poll_s=0.5)
    log = await client.log(job_id)
    await client.forget(job_id)
    if end.job.status != "SUCCEEDED":
        last = log.strip().splitlines()[-1:] or [end.job.message]
        raise SpecsweepError(f"{run_dir} cannot be copied from the head: {last[0]}{remedy(end.job, log)}")
    return log.splitlines()
