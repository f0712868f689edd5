"""Following the log of a job to its end, through whatever breaks the connection on the way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator.jobs.job_client import ConnectionLost, JobClient, JobFacts
from orchestrator.jobs.job_log import JobTold, LogLines, heard, is_for_machines, told_by
from orchestrator.run_files.run_result import Ending

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 15.0


@dataclass(frozen=True, slots=True)
class JobEnd:
    """A job that is over, and what its log told."""

    job: JobFacts
    told: JobTold

    @property
    def ending(self) -> Ending:
        """By the run's own result; for one that left none, by what Ray knows."""
        if self.told.result is not None:
            return self.told.result.ending
        job = self.job
        if job.status == "SUCCEEDED":
            return Ending(0, "complete", "The job ended well and told no result.")
        what = job.message.strip().splitlines()[-1:] or ["no reason is told"]
        if job.status == "STOPPED":
            return Ending(130, "interrupted", "The job was stopped before its run could tell how it ended.")
        told = f"The job ended without a result of its run: {what[0]}{remedy(job, job.message)}"
        return Ending(job.exit_code or 1, "no_result", told)


def remedy(job: JobFacts, told: str) -> str:
    """What to do where the Python of the head cannot run Specsweep, as the end of a message; empty elsewhere."""
    if job.exit_code == 127 or "No module named" in told:
        return (
            "\nThe Python of the head lacks what Specsweep needs: name another by --python PATH (PATH as on the head)"
        )
    return ""


async def follow_job(
    client: JobClient, job_id: str, show: Callable[[str], None], complain: Callable[[str], None]
) -> JobEnd:
    """Show the log as it comes, each line once, and return when the job is over; a lost connection is tried again."""
    lines, told, wait_s = LogLines(), JobTold(), _FIRST_WAIT_S

    def take(new: list[str]) -> None:
        nonlocal told
        for line in new:
            told = heard(told, line)
            if not is_for_machines(line):
                show(line)

    while True:
        try:
            lines.begin()
            async for text in client.follow(job_id):
                take(list(lines.feed(text)))
                wait_s = _FIRST_WAIT_S
            job = await client.job(job_id)
            if job.is_over:
                take(list(lines.feed("\n") if lines.unfinished else ()))
                return JobEnd(job, told)
        except ConnectionLost as error:
            if wait_s == _FIRST_WAIT_S:
                complain(f"The connection to {client.address} is lost ({error}); the job goes on. Trying again ...")
        await asyncio.sleep(wait_s)
        wait_s = min(wait_s * 2, _LONGEST_WAIT_S)


async def wait_for_end(client: JobClient, job_id: str, poll_s: float = 1.0) -> JobEnd:
    """The end of a job, without its log on the way."""
    while True:
        try:
            job = await client.job(job_id)
            if job.is_over:
                return JobEnd(job, told_by(await client.log(job_id)))
        except ConnectionLost:
            pass
        await asyncio.sleep(poll_s)
