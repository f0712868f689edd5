"""`specsweep submit`: a run as a job of a cluster, checked here, sent there, followed to its end."""

from __future__ import annotations

import math
import secrets
import shlex
import time
from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console

from orchestrator import __version__
from orchestrator.errors import BadInput, RunInterrupted, SpecsweepError
from orchestrator.job_place import HOME_RUNS
from orchestrator.jobs.fetch_command import fetch_run
from orchestrator.jobs.job_client import JobClient
from orchestrator.jobs.job_follow import JobEnd, follow_job
from orchestrator.jobs.job_package import JobPackage, own_package, pack
from orchestrator.jobs.job_talk import client_of, talk
from orchestrator.jobs.sealed_scenario import PREFIX, Sealed
from orchestrator.paths import RunPaths
from orchestrator.planning.planner import make_plan
from orchestrator.previews.scenario_files import check_named_files
from orchestrator.run_files.result_file import write_result
from orchestrator.run_files.run_result import Ending
from orchestrator.scenarios.scenario import Scenario
from orchestrator.scenarios.scenario_file import load_scenario

# Besides the grace of a server: until GPU memory is back; for the ranking, the result, and Ray's own end.
MEMORY_BACK_S, END_S = 60, 60
UNKNOWN_STOP_S = 90.0


@dataclass(frozen=True)
class SubmitRequest:
    """The arguments of `submit`, parsed."""

    scenario: Path | None
    address: str | None = None
    overrides: tuple[str, ...] = ()
    run_dir: str | None = None
    resume: str | None = None
    wait: bool = True
    evict: bool = False
    yes: bool = False
    on_hosts: bool = False
    fetch: Path | None = None
    python: str = "python"


class Failed(SpecsweepError):
    """A run that was followed has ended badly: its own exit code and message."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message)
        self.exit_code, self.verdict = ending.exit_code, ending.verdict


@dataclass(frozen=True)
class _Wanted:
    """What is going to be sent."""

    name: str
    package: JobPackage
    grace_s: int
    facts: dict[str, str]


def submit(request: SubmitRequest, console: Console) -> None:
    """Send a run to a cluster and follow it. Raises with the exit code of the run; Ctrl-C lets it go on."""
    wanted = _checked(request)
    client = client_of(request.address)
    job_id = talk(_send(client, request, wanted))
    console.print(f"Job {job_id} on {client.address}", soft_wrap=True, markup=False)
    if not request.wait:
        console.print(_how_to_follow(job_id, client.address), soft_wrap=True, markup=False)
        return
    end = followed(client, job_id, console)
    keep_result(end, console)
    if request.fetch is not None and end.told.run_dir is not None:
        fetch_run(client, end.told.run_dir, request.fetch, console, request.python)
    raise_if_bad(end, client.address)


def followed(client: JobClient, job_id: str, console: Console) -> JobEnd:
    """The job's end, its log shown on the way. Ctrl-C raises RunInterrupted and leaves the job alone."""

    def show(line: str) -> None:
        console.file.write(line + "\n")
        console.file.flush()

    def complain(text: str) -> None:
        Console(stderr=True).print(text, soft_wrap=True, markup=False)

    try:
        return talk(follow_job(client, job_id, show, complain))
    except KeyboardInterrupt:
        raise RunInterrupted(f"Detached; the job goes on. {_how_to_follow(job_id, client.address)}") from None


def keep_result(end: JobEnd, console: Console) -> None:
    """`runs/<job>/result.json` here, if the run told one."""
    if end.told.result is None:
        return
    file = RunPaths(Path("runs") / end.job.job_id).result
    if write_result(file, end.told.result):
        console.print(f"Result: {file}", soft_wrap=True, markup=False)


def with_resume(end: JobEnd, address: str) -> str:
    """The message of an end, with the command that goes on from here instead of the one for the head."""
    result, message = end.told.result, end.ending.message
    if result is None or result.resume is None:
        return message
    return message.replace(result.resume, f"specsweep submit --resume {result.run_dir} --address {address}")


def raise_if_bad(end: JobEnd, address: str) -> None:
    """Failed, with the run's exit code, for an end that is none of a whole run."""
    if end.ending.exit_code:
        raise Failed(replace(end.ending, message=with_resume(end, address)))


def _how_to_follow(job_id: str, address: str) -> str:
    return (
        f"Follow it: specsweep logs {job_id} -f --address {address}\n"
        f"Stop it: specsweep stop {job_id} --wait --address {address}"
    )


def _checked(request: SubmitRequest) -> _Wanted:
    """All that can be refused here is; nothing has been sent then."""
    if request.evict and not request.yes:
        raise BadInput("--evict asks before it ends anything, and a job has no terminal for that; add --yes")
    for option, place in (("--run-dir", request.run_dir), ("--resume", request.resume)):
        if place is not None and not place.startswith(("/", "~")):
            raise BadInput(f"{option} {place}: is a directory on the head; give its whole path, or one below ~")
    stamp = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
    if request.scenario is None:
        if request.resume is None:
            raise BadInput("give a scenario file, or --resume RUN (its directory on the head)")
        if request.overrides:
            raise BadInput("--set changes a scenario file; a resumed run is continued as it was")
        name = Path(request.resume).name
        facts = {"scenario": name, "run_dir": request.resume}
        return _Wanted(f"{name}-again-{stamp}", own_package(), round(UNKNOWN_STOP_S + END_S * 2), facts)
    scenario = load_scenario(request.scenario, request.overrides)
    if not request.on_hosts:
        check_named_files(scenario, request.scenario)
    plan = make_plan(scenario, 1)
    package = pack(scenario, request.scenario, on_hosts=request.on_hosts)
    name = f"{scenario.name}-{stamp}"
    facts = {
        "scenario": scenario.name,
        "run_dir": request.resume or request.run_dir or f"~/{HOME_RUNS}/{name}",
        "trials": str(len(plan.trials)),
        "points": str(plan.points),
    }
    return _Wanted(name, package, stop_grace_s(scenario), facts)


def stop_grace_s(scenario: Scenario) -> int:
    """Seconds that an orderly end of a run may take after a stop: all servers end at the same time."""
    after = sum(step.timeout_s for step in scenario.engine.after_stop)
    return math.ceil(scenario.timeouts.stop_s + after + MEMORY_BACK_S + END_S)


async def _send(client: JobClient, request: SubmitRequest, wanted: _Wanted) -> str:
    package = wanted.package
    working_dir = await client.upload(package.name, package.data)
    words = [request.python, "-m", "orchestrator", "run"]
    if package.is_secret:
        sealed = PREFIX + secrets.token_hex(16) + ".zip"
        await client.upload(sealed, Sealed.with_environment(package.scenario_text).as_bytes())
        words += ["--sealed", sealed]
    elif request.scenario is not None:
        words.append("scenario.yaml")
    words += ["--resume", request.resume] if request.resume else ["--run-dir", wanted.facts["run_dir"]]
    words += ["--evict", "--yes"] if request.evict else []
    return await client.submit(
        {
            # Without a shell that stays above it, whose end Ray would take for the end of the run.
            "entrypoint": f"exec {shlex.join(words)}",
            "submission_id": wanted.name,
            "runtime_env": {
                "working_dir": working_dir,
                "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(wanted.grace_s)},
            },
            "metadata": {"specsweep": __version__, **wanted.facts},
        }
    )
