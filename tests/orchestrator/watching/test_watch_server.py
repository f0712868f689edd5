"""What a browser is served of a watched run: the report as it changes, to those who may have it, and no file."""

from __future__ import annotations

import asyncio
import io
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer
from rich.console import Console

from orchestrator import SCHEMA_VERSION
from orchestrator.documents.report_document import Paragraph, ReportDocument, Section
from orchestrator.documents.report_page import section_event
from orchestrator.errors import BadInput, SpecsweepError
from orchestrator.watching import watch_feed, watch_server
from orchestrator.watching.live_view import Counts, LiveView, SlotView
from orchestrator.watching.watch_command import WatchRequest, listener, watch
from orchestrator.watching.watch_feed import WatchFeed, watched_document
from orchestrator.watching.watch_server import Access, WatchServer
from orchestrator.watching.watch_state import WatchedRun

RUN = WatchedRun("night", "night-1", "small", "running", LiveView(Counts(0, 3, 0, 6)), 0.0)
HOSTILE = '<img src=x onerror="alert(1)">'


def report(text: str = "nothing yet") -> ReportDocument:
    sections = (Section("ranking", "Ranking", (Paragraph(text),)), Section("end", "End", (Paragraph("same"),)))
    return ReportDocument("small", "a run", (), sections, "2026-01-01T00:00:00")


class FakeWatch:
    """A run that is what the test says."""

    def __init__(self) -> None:
        self.run, self.of, self.fault = RUN, 0, ""

    def look(self) -> WatchedRun:
        if self.fault:
            raise SpecsweepError(self.fault)
        return self.run

    def mark(self) -> tuple[Any, ...]:
        return (self.of,)


class Rig:
    """A server on loopback whose feed goes on when the test says so."""

    def __init__(self) -> None:
        self.watch = FakeWatch()
        self.text: Callable[[], str] = lambda: "nothing yet"
        self.feed = WatchFeed(self.watch, lambda _: report(self.text()), rebuild_s=0.0)
        self.server: WatchServer
        self.client: TestClient[Any, Any]

    async def step(self) -> None:
        await self.feed.step()
        await self.feed.built()
        await self.feed.step()

    async def listen(self, query: str = "", **headers: str) -> ClientResponse:
        return await self.client.get(f"/events{query}", headers=headers)


@asynccontextmanager
async def rig(access: Access | None = None) -> AsyncIterator[Rig]:
    made = Rig()
    made.server = WatchServer(made.feed, access or Access(), keeps_up=False)
    async with TestClient(TestServer(made.server.app())) as made.client:
        await made.step()
        yield made


async def event(response: ClientResponse) -> dict[str, str]:
    """The next one; comments are skipped."""
    found: dict[str, str] = {}
    while True:
        line = (await asyncio.wait_for(response.content.readline(), 60)).decode().rstrip("\n")
        if not line and found:
            return found
        name, _, value = line.partition(": ")
        if name:
            found[name] = value


async def names(response: ClientResponse, count: int) -> list[str]:
    told = []
    for _ in range(count):
        got = await event(response)
        data = json.loads(got["data"])
        told.append(f"section {data['id']}" if got["event"] == "section" else got["event"])
    return told


def check(test: Callable[[Rig], Awaitable[None]], access: Access | None = None) -> None:
    async def within() -> None:
        async with rig(access) as made:
            await test(made)

    asyncio.run(within())


def test_a_page_gets_only_what_changed_since_it_was_made() -> None:
    async def test(made: Rig) -> None:
        page = await (await made.client.get("/")).text()
        since = page.partition("/events?since=")[2].partition('"')[0]
        stream = await made.listen(f"?since={since}")
        made.text, made.watch.of = lambda: "best: depth 3", 1
        await made.step()
        changed = await event(stream)

        assert "nothing yet" in page
        assert json.loads(changed["data"])["id"] == "ranking"
        assert "best: depth 3" in json.loads(changed["data"])["html"]

    check(test)


def test_a_report_made_while_the_run_ended_is_made_again_of_its_end_and_nothing_else_is_looked_at() -> None:
    made_of: list[str] = []

    class Counted(FakeWatch):
        looks = 0

        def look(self) -> WatchedRun:
            self.looks += 1
            return super().look()

    def build(run: WatchedRun) -> ReportDocument:
        made_of.append(run.status)
        return report()

    async def test() -> None:
        seen = Counted()
        feed = WatchFeed(seen, build, rebuild_s=0.0)
        seen.of = 1  # the result was written between the look and the mark
        await feed.step()
        await feed.built()
        seen.run = replace(RUN, status="ended", verdict="complete")
        for _ in range(3):
            await feed.step()
            await feed.built()

        assert made_of == ["running", "ended"]
        assert feed.is_done
        assert seen.looks == 5

    asyncio.run(test())


def test_who_brings_no_number_gets_all_and_who_comes_back_what_is_missing() -> None:
    async def test(made: Rig) -> None:
        first = await made.listen()
        told = await names(first, 3)
        last = await event(first)
        made.watch.run = replace(RUN, view=replace(RUN.view, counts=Counts(1, 3, 2, 6)))
        await made.step()
        again = await made.listen(**{"Last-Event-ID": last["id"]})

        assert told == ["head", "section now", "section ranking"]
        assert json.loads(last["data"])["id"] == "end"
        assert await names(again, 1) == ["section now"]

    check(test)


def test_the_end_of_the_run_is_told_when_the_last_report_is_there() -> None:
    async def test(made: Rig) -> None:
        stream = await made.listen()
        await names(stream, 4)
        made.watch.run = replace(RUN, status="ended", verdict="complete", exit_code=0)
        made.watch.of, made.text = 2, lambda: "the pick"
        await made.step()

        told = []
        while "done" not in told:
            told += await names(stream, 1)
        assert set(told) == {"head", "section now", "section ranking", "done"}
        assert told.index("done") > told.index("section ranking")
        assert await stream.content.read() == b""

    check(test)


def test_a_report_that_cannot_be_made_leaves_the_last_one_and_is_told() -> None:
    def broken() -> str:
        raise ValueError("half a file")

    async def test(made: Rig) -> None:
        made.text, made.watch.of = lambda: "the old one", 1
        await made.step()
        made.text, made.watch.of = broken, 2
        await made.step()
        page = await (await made.client.get("/report.md")).text()

        assert "the old one" in page
        assert "The report cannot be made yet: half a file" in page

    check(test)


@pytest.mark.parametrize(
    "path",
    [
        "/manifest.json",
        "/journal.jsonl",
        "/../manifest.json",
        "/logs/t/server.log.zst",
        "/%2e%2e%2fmanifest.json",
        "/.lock",
    ],
)
def test_no_file_of_the_run_is_served(path: str) -> None:
    async def test(made: Rig) -> None:
        assert (await made.client.get(path)).status == 404

    check(test)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_can_be_sent(method: str) -> None:
    async def test(made: Rig) -> None:
        assert (await made.client.request(method, "/")).status == 405

    check(test)


@pytest.mark.parametrize("path", ["/", "/events", "/live.json", "/metrics", "/report.md", "/report.html"])
def test_a_page_of_another_site_that_was_pointed_here_gets_nothing(path: str) -> None:
    async def test(made: Rig) -> None:
        refused = await made.client.get(path, headers={"Host": "evil.example:8788"})

        assert refused.status == 403
        assert "night" not in await refused.text()

    check(test)


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("127.0.0.1:8788", True), ("localhost:9000", True), ("LOCALHOST", True), ("[::1]:8788", True), ("[::1]", True),
        ("evil.example", False), ("localhost.evil.example:80", False), ("", False), ("127.0.0.1.nip.example", False),
    ],
)  # fmt: skip
def test_the_names_of_this_host_are_known(host: str, allowed: bool) -> None:
    assert (Access().refusal(host, "") == "") is allowed


@pytest.mark.parametrize(("token", "status"), [("right", 200), ("wrong", 403), ("", 403), ("\u00e9", 403)])
def test_another_address_than_loopback_wants_the_token(token: str, status: int) -> None:
    async def test(made: Rig) -> None:
        for path in ("/", "/live.json", "/metrics"):
            assert (await made.client.get(path, params={"token": token})).status == status

    check(test, Access(token="right"))


def test_the_page_of_another_address_listens_with_its_token() -> None:
    async def test(made: Rig) -> None:
        page = await (await made.client.get("/", params={"token": "right"})).text()

        assert "&amp;token=right" in page

    check(test, Access(token="right"))


def test_more_pages_than_that_are_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_server, "MOST_CLIENTS", 2)

    async def test(made: Rig) -> None:
        open_pages = [await made.listen() for _ in range(2)]
        refused = await made.listen()
        open_pages[0].close()
        tries = 0
        while (fresh := await made.listen()).status == 503:
            tries += 1
            made.watch.run = replace(RUN, view=replace(RUN.view, elapsed_s=float(tries)))
            await made.step()

        assert (refused.status, fresh.status) == (503, 200)

    check(test)


def test_a_page_that_waits_is_told_that_we_are_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_server, "KEEP_ALIVE_S", 0.01)

    async def test(made: Rig) -> None:
        stream = await made.listen(f"?since={made.feed.number}")

        assert await asyncio.wait_for(stream.content.readline(), 60) == b": alive\n"

    check(test)


def test_a_page_that_takes_nothing_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_server, "WRITE_S", 0.05)

    async def test(made: Rig) -> None:
        stream = await made.listen()
        for i in itertools.count(1):  # until all buffers on the way are full, and for as long as it is waited for
            made.watch.of, made.text = i, (f"{i}" * 1_000_000).__str__
            await made.step()
            if not made.server.clients:
                break

        stream.close()

    check(test)


def test_what_a_name_holds_stays_text() -> None:
    slot = SlotView(f"h/{HOSTILE}", "measuring", HOSTILE, HOSTILE)

    async def test(made: Rig) -> None:
        made.watch.run = replace(RUN, view=replace(RUN.view, slots=(slot,), recent=(HOSTILE, "</script>")))
        await made.step()
        page = await (await made.client.get("/")).text()
        stream = await made.listen()
        told = [json.loads((await event(stream))["data"]).get("html", "") for _ in range(2)]

        assert "<img" not in page
        assert "<img" not in "".join(told)
        assert "&lt;img src=x" in told[1]

    check(test)


def test_pages_are_not_kept_framed_or_guessed_at() -> None:
    async def test(made: Rig) -> None:
        for path in ("/", "/events", "/live.json", "/nothing"):
            answer = await made.client.get(path)
            assert answer.headers["Cache-Control"] == "no-store"
            assert answer.headers["X-Frame-Options"] == "DENY"
            assert "Access-Control-Allow-Origin" not in answer.headers

    check(test)


def test_without_a_report_the_state_of_the_run_is_all_there_is() -> None:
    document = watched_document(RUN, None)

    assert (document.title, document.is_live) == ("Run night", True)
    assert [section.section_id for section in document.sections] == ["now", "report"]


def test_a_name_that_is_no_address_is_refused(tmp_path: Path) -> None:
    told = {"schema": SCHEMA_VERSION, "run_id": "r", "scenario": {}, "starts": []}
    (tmp_path / "manifest.json").write_text(json.dumps(told))

    with pytest.raises(BadInput, match="--listen my-host: is no IP address"):
        watch(WatchRequest(tmp_path, web=0, listen="my-host"), Console(file=io.StringIO()))


def test_a_port_that_is_taken_is_refused_only_where_it_was_asked_for() -> None:
    with listener("127.0.0.1", 0) as taken, listener("127.0.0.1", 0) as other:
        port = taken.getsockname()[1]

        assert other.getsockname()[1] != port
        with pytest.raises(BadInput, match=f"127.0.0.1 port {port} cannot be used"):
            listener("127.0.0.1", port)


def test_what_has_not_changed_is_not_rendered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[str] = []

    def event_of(section: Section) -> str:
        rendered.append(section.section_id)
        return section_event(section)

    monkeypatch.setattr(watch_feed, "section_event", event_of)

    async def test(made: Rig) -> None:
        rendered.clear()
        made.watch.run = replace(RUN, view=replace(RUN.view, elapsed_s=1.0))
        await made.step()

        assert rendered == ["now"]

    check(test)


def test_a_run_whose_directory_is_gone_is_shown_as_it_was_and_said_to_be_old_until_it_is_back() -> None:
    async def test(made: Rig) -> None:
        made.watch.fault = "/runs/night: is gone"
        await made.step()
        assert "What is shown is old: /runs/night: is gone" in await (await made.client.get("/report.md")).text()
        assert (await (await made.client.get("/live.json")).json())["status"] == "running"

        made.watch.fault = ""
        await made.step()
        assert "is gone" not in await (await made.client.get("/report.md")).text()

    check(test)


def test_what_cannot_be_shown_is_an_answer_in_one_line() -> None:
    async def test(made: Rig) -> None:
        made.feed.run = replace(RUN, run_id=5)  # type: ignore[arg-type]
        answer = await made.client.get("/metrics")
        assert (answer.status, (await answer.text()).startswith("specsweep: this cannot be shown now: ")) == (500, True)

    check(test)
