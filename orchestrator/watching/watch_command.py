"""`specsweep watch`: a run from its directory, in the terminal or in browsers. It has no part in the run."""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import secrets
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import wrap

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from actors.host.own_folder import own_folder
from orchestrator.documents.report_document import ReportDocument
from orchestrator.errors import BadInput
from orchestrator.terminal import redraws, wait_while_read
from orchestrator.watching.live_table import live_table
from orchestrator.watching.live_view import counts_text
from orchestrator.watching.run_mirror import RunMirror
from orchestrator.watching.run_watch import LOOK_S, RunWatch
from orchestrator.watching.watch_state import WatchedRun

WEB_PORT = 8788
# A viewer gives way to whatever else its host does, such as loading servers.
_NICENESS = 10


@dataclass(frozen=True)
class WatchRequest:
    """The arguments of `watch`, parsed. `web`: None for the terminal, 0 for WEB_PORT or, if that is taken, any port."""

    run_dir: Path
    web: int | None = None
    listen: str | None = None
    once: bool = False
    as_json: bool = False


def watch(request: WatchRequest, console: Console) -> None:
    """Show the run until it has ended (in browsers: until it is stopped). BadInput if there is none."""
    if request.web is None and request.listen is not None:
        raise BadInput("--listen is for --web: give that too, or leave it out")
    if request.web is not None and (request.once or request.as_json):
        raise BadInput("--once and --json are for the terminal; with --web there is /live.json")
    run_watch = RunWatch(request.run_dir)
    try:
        _show(request, run_watch, console)
    except KeyboardInterrupt:  # the viewer is ended, which is no fault of anything
        if not request.as_json:
            _print(console, f"Not watched any more; the run does not mind. Again: specsweep watch {request.run_dir}")


def _show(request: WatchRequest, run_watch: RunWatch, console: Console) -> None:
    if request.web is not None:
        _serve(request, run_watch, console)
    elif request.once:
        _show_once(run_watch.look_twice(), request, console)
    elif request.as_json:
        _print_json(run_watch)
    elif redraws(console):
        _show_live(run_watch, console)
    else:
        _print_lines(run_watch, console)


def _show_once(run: WatchedRun, request: WatchRequest, console: Console) -> None:
    if request.as_json:
        console.file.write(json.dumps(run.as_json()) + "\n")
    else:
        console.print(_shown(run, console))


def _shown(run: WatchedRun, console: Console) -> Group:
    head = wrap(f"{run.name}: {run.text}", console.width)
    return Group(*map(Text, head), live_table(run.view, console.width, console.height - len(head)))


def _print_json(run_watch: RunWatch) -> None:
    """One line whenever anything but the time has changed; the last one when the run has ended."""
    last = None
    while True:
        run = run_watch.look()
        if (facts := _facts(run)) != last:
            last = facts
            sys.stdout.write(json.dumps(run.as_json()) + "\n")
            sys.stdout.flush()
        if run.is_over:
            return
        wait_while_read(LOOK_S)


def _facts(run: WatchedRun) -> WatchedRun:
    """The run without its clocks."""
    slots = tuple(replace(slot, for_s=0.0, tok_s=None) for slot in run.view.slots)
    view = replace(run.view, elapsed_s=0.0, left=None, beat=0, told_unix_s=0.0, slots=slots)
    return replace(run, view=view, silent_s=None)


def _show_live(run_watch: RunWatch, console: Console) -> None:
    run = run_watch.look()
    with Live(_shown(run, console), console=console, auto_refresh=False, transient=True) as live:
        while not run.is_over:
            wait_while_read(LOOK_S)
            run = run_watch.look()
            live.update(_shown(run, console), refresh=True)
    _tell_end(run, console)


def _print_lines(run_watch: RunWatch, console: Console) -> None:
    """The lines of the run as they come, and how far it is whenever that changed."""
    seen: tuple[str, ...] = ()
    told = ""
    while True:
        run = run_watch.look()
        for line in new_lines(seen, run.view.recent):
            _print(console, line)
        seen = run.view.recent or seen
        if (state := f"{run.status} {run.view.counts}") != told and not run.is_over:
            told = state
            _print(console, f"{run.name}: {run.text}; {counts_text(run.view)}")
        if run.is_over:
            _tell_end(run, console)
            return
        wait_while_read(LOOK_S)


def new_lines(seen: tuple[str, ...], now: tuple[str, ...]) -> tuple[str, ...]:
    """The lines behind the last one that both have; all where they have none in common."""
    if not seen or seen[-1] not in now:
        return now
    last = len(now) - 1 - now[::-1].index(seen[-1])
    return now[last + 1 :]


def _tell_end(run: WatchedRun, console: Console) -> None:
    _print(console, f"{run.name}: {run.text}; {counts_text(run.view)}")
    for best in run.view.best:
        _print(console, f"{best.objective}: {best.config}, {best.text}")
    if run.message:
        _print(console, run.message)


def _print(console: Console, text: str) -> None:
    console.print(Text(text), soft_wrap=True)


def _serve(request: WatchRequest, run_watch: RunWatch, console: Console) -> None:
    from aiohttp import web

    from orchestrator.watching.watch_feed import WatchFeed
    from orchestrator.watching.watch_server import Access, WatchServer

    host = request.listen or "127.0.0.1"
    is_local = _is_loopback(host)
    access = Access(hosts=Access().hosts | {_in_url(host)}, token="" if is_local else secrets.token_urlsafe(24))
    on = listener(host, request.web or 0)
    address = f"http://{_in_url(host)}:{on.getsockname()[1]}/{f'?{access.query}' if access.token else ''}"
    if not is_local:
        _print(console, f"Anybody who reaches {host} and has this address reads the report; it is not encrypted.")
    _print(console, f"Report of {request.run_dir}: {address}  (Ctrl-C ends this viewer, never the run)")
    os.nice(_NICENESS)
    # Requests of scanners that are no HTTP would fill the terminal with tracebacks; they are answered 400.
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)
    with own_folder("watch") as folder:

        async def made() -> web.Application:
            return WatchServer(WatchFeed(run_watch, report_maker(run_watch.root, folder)), access).app()

        web.run_app(made(), sock=on, print=None, shutdown_timeout=1.0, access_log=None)


def report_maker(run_dir: Path, folder: Path) -> Callable[[WatchedRun], ReportDocument]:
    """Makes the report of a run from a mirror of it in the folder: nothing is written beside the run."""
    from orchestrator.rankings.run_ranking import rank_run
    from orchestrator.reports.run_report import run_report

    mirror = RunMirror(run_dir, folder)

    def make(run: WatchedRun) -> ReportDocument:
        root = mirror.bring_up()
        return run_report(root, rank_run(root), is_live=run.goes_on, place=run_dir)

    return make


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        raise BadInput(f"--listen {host}: is no IP address; e.g. 0.0.0.0 for all of this host's") from None


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def listener(host: str, port: int) -> socket.socket:
    """Listens on a port, or where that is 0 on WEB_PORT or any other. BadInput if it cannot."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (port,) if port else (WEB_PORT, 0):
        try:
            return socket.create_server((host, wanted), family=family)
        except OSError as error:
            fault = error
    raise BadInput(f"--web: {host} port {wanted} cannot be used: {fault.strerror or fault}")
