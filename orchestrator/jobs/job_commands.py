"""`specsweep status`, `logs` and `stop`: the runs that are jobs of a cluster."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.jobs.job_client import ConnectionLost, JobClient, JobFacts
from orchestrator.jobs.job_follow import JobEnd, wait_for_end
from orchestrator.jobs.job_log import JobTold, is_for_machines, told_by
from orchestrator.jobs.job_talk import client_of, talk
from orchestrator.jobs.submit_command import Failed, followed, keep_result, raise_if_bad, with_resume
from orchestrator.terminal import print_json

# Logs are read whole; of jobs that are over only the last few are of interest.
SHOWN_ENDED = 20
# Less is no time to end a server in.
LEAST_GRACE_S = 20.0


@dataclass(frozen=True)
class _Shown:
    job: JobFacts
    told: JobTold

    def as_json(self) -> dict[str, Any]:
        job, told = self.job, self.told
        return {
            "job": job.job_id,
            "scenario": self.scenario,
            "state": job.status.lower(),
            "progress": asdict(told.progress) if told.progress else None,
            "run_dir": self.run_dir,
            "verdict": self.verdict,
            "started": job.started_unix_s,
            "ended": job.ended_unix_s,
            "result": told.result.as_json() if told.result else None,
        }

    @property
    def scenario(self) -> str:
        result = self.told.result
        return self.job.metadata.get("scenario") or (result.scenario if result else None) or "-"

    @property
    def run_dir(self) -> str | None:
        return self.told.run_dir or self.job.metadata.get("run_dir")

    @property
    def verdict(self) -> str | None:
        return JobEnd(self.job, self.told).ending.verdict if self.job.is_over else None

    @property
    def progress(self) -> str:
        result, done = self.told.result, self.told.progress
        if result is not None and result.points:
            measured, missing = result.points["measured"], result.points["missing"]
            return f"{measured} of {measured + missing} points"
        if done is not None:
            return f"{done.trials} of {done.all_trials} trials, {done.points} of {done.all_points} points"
        trials, points = self.job.metadata.get("trials"), self.job.metadata.get("points")
        return f"0 of {trials} trials, 0 of {points} points" if trials and not self.job.is_over else "-"


def show_status(job_id: str | None, address: str | None, *, as_json: bool, console: Console) -> None:
    """List our jobs, newest first, or tell all of one."""
    client = client_of(address)
    shown = talk(_read(client, job_id))
    if as_json:
        told = [job.as_json() for job in shown]
        print_json(told if job_id is None else told[0], console)
        return
    if not shown:
        console.print(f"No job of Specsweep is known at {client.address}", soft_wrap=True)
        return
    table = Table(box=None, pad_edge=False)
    for name in ("job", "scenario", "state", "for", "progress", "verdict", "run directory"):
        table.add_column(name, overflow="fold")
    for one in shown:
        lasted = _lasted(one.job)
        cells = (one.job.job_id, one.scenario, one.job.status.lower(), lasted, one.progress, one.verdict or "-")
        table.add_row(*map(escape, cells), escape(one.run_dir or "-"))
    console.print(table)
    if job_id is not None and shown[0].job.is_over:
        console.print(with_resume(JobEnd(shown[0].job, shown[0].told), client.address), soft_wrap=True, markup=False)


def _lasted(job: JobFacts) -> str:
    if job.started_unix_s is None:
        return "-"
    minutes, seconds = divmod(int((job.ended_unix_s or time.time()) - job.started_unix_s), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{seconds:02d}"


async def _read(client: JobClient, job_id: str | None) -> list[_Shown]:
    if job_id is not None:
        return [await _told(client, await client.job(job_id))]
    ours = sorted(filter(is_ours, await client.jobs()), key=lambda job: -(job.started_unix_s or 0))
    ended = [job for job in ours if job.is_over]
    read = [job for job in ours if not job.is_over or job in ended[:SHOWN_ENDED]]
    return list(await asyncio.gather(*(_told(client, job) for job in read)))


async def _told(client: JobClient, job: JobFacts) -> _Shown:
    """A job whose host does not answer any more is still listed."""
    try:
        return _Shown(job, told_by(await client.log(job.job_id)))
    except (ConnectionLost, SpecsweepError):
        return _Shown(job, JobTold())


def is_ours(job: JobFacts) -> bool:
    """Sent by `submit`, or a run that was submitted by hand."""
    words = job.entrypoint.split()
    by_hand = "run" in words and ("orchestrator" in words or any(word.endswith("specsweep") for word in words))
    return by_hand or ("scenario" in job.metadata and "specsweep" in job.metadata)


def show_logs(job_id: str, address: str | None, *, follow: bool, console: Console) -> None:
    """Print the log of a job; `follow` it to its end, with the exit code of its run."""
    client = client_of(address)
    if follow:
        talk(client.job(job_id))
        end = followed(client, job_id, console)
        keep_result(end, console)
        raise_if_bad(end, client.address)
        return
    for line in talk(client.log(job_id)).splitlines():
        if not is_for_machines(line):
            console.file.write(line + "\n")


@dataclass(frozen=True)
class StopRequest:
    """The arguments of `stop`, parsed."""

    job: str
    address: str | None = None
    wait: bool = False
    kill: bool = False


def stop(request: StopRequest, console: Console) -> None:
    """Ask a run to end in order; with `wait`, until it has, and tell what was kept.

    BadInput for a job that Ray would kill before it can, unless that is wanted.
    """
    client = client_of(request.address)
    job = talk(client.job(request.job))
    if job.is_over:
        told = with_resume(JobEnd(job, told_by(talk(client.log(job.job_id)))), client.address)
        console.print(f"Job {job.job_id} is over ({job.status.lower()}). {told}", soft_wrap=True, markup=False)
        return
    if job.grace_s < LEAST_GRACE_S and not request.kill:
        raise BadInput(
            f"Ray would kill job {job.job_id} after {job.grace_s:g} s, before its servers have ended: it was "
            "submitted without RAY_JOB_STOP_WAIT_TIME_S. Guards on the hosts end the servers all the same, and "
            "finished points are kept: --kill does it"
        )
    talk(client.stop(job.job_id))
    if not request.wait:
        console.print(
            f"Job {job.job_id} is stopping; its servers get their grace, at most {job.grace_s:g} s.\n"
            f"How it ends: specsweep status {job.job_id} --address {client.address}",
            soft_wrap=True, markup=False,
        )  # fmt: skip
        return
    console.print(f"Job {job.job_id} is stopping; at most {job.grace_s:g} s ...", soft_wrap=True, markup=False)
    end = talk(wait_for_end(client, job.job_id))
    result = end.told.result
    if result is None:
        raise Failed(end.ending)
    if result.points:
        kept, missing = result.points["measured"], result.points["missing"]
        console.print(f"{kept} points are kept, {missing} are missing; run directory {result.run_dir}", soft_wrap=True)
    console.print(with_resume(end, client.address), soft_wrap=True, markup=False)
    keep_result(end, console)
