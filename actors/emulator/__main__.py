"""`python -m actors.emulator --model-path X [any SGLang server flag]`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from actors.emulator.flags import EmulatorFlags, parse_flags
from actors.emulator.held_memory import held_memory
from actors.emulator.log import LogWriter
from actors.emulator.memory import Death, MemoryPlan
from actors.emulator.processes import ProcessTree, kill_self, scheduler_titles
from actors.emulator.profiles import PROFILES, Profile, profile_for
from actors.emulator.resolution import Settings, resolve
from actors.emulator.start import Start, StartDies
from actors.emulator.startup import cache_lines, ready_line, startup_seconds, timings_line
from actors.emulator.tracebacks import scheduler_traceback
from actors.gpus.gpu_account import account_of

if TYPE_CHECKING:
    from actors.emulator.faults import Faults
    from actors.emulator.span import Span

SHELL_USAGE = 2


def main(argv: list[str] | None = None) -> None:
    """Start, serve until a signal, and end as SGLang would."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    flags, values = parse_flags(arguments)
    if flags.profile is not None and flags.profile not in PROFILES:
        sys.stderr.write(f"unknown --emulator-profile {flags.profile!r}, known: {', '.join(PROFILES)}\n")
        raise SystemExit(SHELL_USAGE)
    profile = flags.change.of(profile_for(values["model_path"], flags.profile))
    check_model(values["model_path"])
    settings = resolve(values, profile)
    faults = _faults(flags, settings)
    log = faults.log if faults else LogWriter(sys.stderr, settings.ranks, access_stream=sys.stdout)
    for warning in settings.warnings:
        log.say(warning)
    log.say(f"server_args={_shown(settings)}")
    tree = ProcessTree(scheduler_titles(settings.ranks))
    if faults:
        faults.own(tree)
    held = held_memory(settings, profile, tree, os.environ)
    start = Start(settings, log, flags.start_speedup, held, _span(settings), account_of(os.environ))
    try:
        plan = start.play(profile)
    except StartDies as found:
        _die(found.death, log)
    profile = start.profile or profile
    if start.span and not settings.ranks.serves:
        from actors.emulator.follower import Follower

        for line in cache_lines(settings, plan):
            log.every_rank(line)
        raise SystemExit(Follower(settings.args, log, tree, start.span).run(faults))
    log.rank(ready_line(settings, plan))
    for line in cache_lines(settings, plan):
        log.every_rank(line)
    log.say(timings_line(startup_seconds(plan, profile)))
    code = _serve(settings, plan, profile, (flags, arguments, log, tree), faults, start.span)
    sys.stderr.flush()
    raise SystemExit(code)


def _span(settings: Settings) -> Span | None:
    """The other nodes, if there are any; exits with 1 as SGLang does if it is not told where they meet."""
    if settings.ranks.nodes == 1:
        return None
    from actors.emulator.span import Span

    return Span(settings.ranks)


def _faults(flags: EmulatorFlags, settings: Settings) -> Faults | None:
    """What `--emulator-faults` wants; exits with 2 if that cannot be read."""
    if flags.faults is None:
        return None
    from actors.emulator.faults import Faults

    return Faults(Path(flags.faults), settings, flags.start_speedup)


def check_model(path: str) -> None:
    """An absolute path that does not exist is a model that cannot be found; any other name is the model of a profile.

    OSError as `transformers` raises it, uncaught: exit code 1 before anything is logged.
    """
    if path.startswith("/") and not Path(path).exists():
        raise OSError(
            f"Can't load the configuration of '{path}'. If you were trying to load it from 'https://huggingface.co/models'"
            f", make sure you don't have a local directory with the same name. Otherwise, make sure '{path}' is the "
            "correct path to a directory containing a config.json file"
        )


def _shown(settings: Settings) -> dict[str, object]:
    from actors.emulator.api_info import public_args

    return public_args(settings.args)


def _die(death: Death, log: LogWriter) -> NoReturn:
    """The scheduler prints its exception and signals its parent, which kills the tree and itself."""
    log.rank(f"Scheduler hit an exception: {scheduler_traceback(death)}", death.gpu or 0)
    log.say("Received sigquit from a child process. It usually means the child failed.")
    log.say(f"kill_process_tree called: parent_pid={os.getpid()}, include_parent=True, pid={os.getpid()}")
    kill_self()


def _serve(
    settings: Settings,
    plan: MemoryPlan,
    profile: Profile,
    rest: tuple[EmulatorFlags, Sequence[str], LogWriter, ProcessTree],
    faults: Faults | None,
    span: Span | None,
) -> int:
    from actors.emulator.server import Server

    flags, arguments, log, tree = rest
    server = Server.build(settings, plan, profile, flags, arguments, log, tree)
    server.span = span
    if faults:
        faults.join(server)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(server.run())
    return int(uvloop.run(server.run()))


if __name__ == "__main__":
    main()
