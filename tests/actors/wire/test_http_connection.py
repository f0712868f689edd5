"""HTTP as servers and gateways really speak it: every way to frame, keep, end and break an answer."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import uvloop

from actors.wire.client import StreamClient
from actors.wire.flight import Request
from actors.workloads.workload import Prompt
from orchestrator.errors import BadInput
from orchestrator.records import RequestRecord, RequestStatus
from tests.actors.load_specs import ask, spec
from tests.fakes.raw_server import LAST_CHUNK, STREAM, RawServer, Step, chunk, chunked, whole
from tests.fakes.scripted_endpoint import DONE, native

GOOD = native("a", 1) + native("ab", 2, {"type": "stop"}) + DONE
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"


def asked(
    script: Callable[[int], list[Step]], requests: int = 1, *, run: Callable[[Any], Any] = asyncio.run, **more: Any
) -> tuple[list[RequestRecord], RawServer]:
    """Records of requests sent one after the other."""

    async def go() -> tuple[list[RequestRecord], RawServer]:
        server = RawServer(script, host=more.pop("host", "127.0.0.1"), tls=more.pop("tls", None), side_calls=True)
        async with server:
            url = more.pop("url", "{url}").format(url=server.url, port=server.port)
            given = {name: more.pop(name) for name in ("api_key", "headers") if name in more}
            async with StreamClient(url, spec(**more), **given) as client:
                return [await ask(client, i) for i in range(requests)], server

    result: tuple[list[RequestRecord], RawServer] = run(go())
    return result


FRAMINGS: dict[str, list[Step]] = {
    "chunked": chunked([GOOD]),
    "chunks of a byte": chunked([GOOD[i : i + 1] for i in range(len(GOOD))]),
    "chunked with extensions and trailers": [STREAM, b"5;x=1\r\n", GOOD[:5], b"\r\n", chunk(GOOD[5:]), b"0\r\nA: b\r\n\r\n"],
    "with a length": [whole(GOOD)],
    "with a length, a byte a read": [whole(GOOD)[i : i + 1] for i in range(len(whole(GOOD)))],
    "ended by the connection": [PLAIN + b"\r\n", GOOD, "close"],
    "HTTP/1.0": [PLAIN.replace(b"1.1", b"1.0") + b"\r\n" + GOOD, "close"],
    "after interim answers": [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", whole(GOOD)],
    "with lower-case headers": [whole(GOOD).replace(b"Content-", b"content-")],
    "without a content type": [b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(GOOD), GOOD)],
    "called JSON": [whole(GOOD, kind=b"application/json")],
    "with an empty reason": [whole(GOOD, status=b"200 ")],
    "joined in one read": [STREAM + chunk(GOOD) + LAST_CHUNK],
    "without an end mark": [whole(GOOD.replace(DONE, b""))],
}  # fmt: skip


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize("steps", FRAMINGS.values(), ids=FRAMINGS.keys())
def test_an_answer_may_be_framed_in_any_way(steps: list[Step], run: Callable[[Any], Any]) -> None:
    records, server = asked(lambda n: steps, 2, run=run)
    told = [(r.status, r.error, r.output_tokens, r.chunk_tokens, r.finish_reason) for r in records]
    assert told == [(RequestStatus.OK, None, 2, (1, 1), "stop")] * 2
    assert server.connections == (2 if "close" in steps else 1)


def http_error(status: bytes, body: bytes = b"", more: bytes = b"") -> list[Step]:
    return [whole(body, status, b"application/json", more)]


LOST = "EOFError: the server closed the connection, while waiting for "
FAULTS: list[tuple[str, list[Step], RequestStatus, int | None, str]] = [
    ("closed at once", ["close"], RequestStatus.CONNECTION, None, f"{LOST}the headers of the answer"),
    ("reset at once", ["reset"], RequestStatus.CONNECTION, None, "ConnectionResetError: [Errno 104]"),
    ("cut in the headers", [b"HTTP/1.1 200 O", "close"], RequestStatus.CONNECTION, None, f"{LOST}the headers of the an"),
    ("cut in a body with a length", [whole(GOOD)[:-9], "close"], RequestStatus.TRUNCATED, 200, f"{LOST}the next token"),
    ("cut before a chunk", [STREAM, chunk(native("a", 1)), "close"], RequestStatus.TRUNCATED, 200, f"{LOST}the next tok"),
    ("cut before a token", [STREAM, "close"], RequestStatus.TRUNCATED, 200, f"{LOST}the first token"),
    ("reset in a body", [STREAM, chunk(native("a", 1)), 0.05, "reset"], RequestStatus.TRUNCATED, 200, "ConnectionReset"),
    ("no HTTP", [b"SSH-2.0-OpenSSH_9.6\r\n"], RequestStatus.CONNECTION, None, "HttpParserError: "),
    ("no chunk", [STREAM, b"oops\r\n"], RequestStatus.TRUNCATED, 200, "HttpParserError: Invalid character in chunk"),
    ("cut error", [b"HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\nbad", "close"], RequestStatus.HTTP_ERROR, 500, "bad"),
    ("redirect", http_error(b"307 Temporary Redirect", more=b"Location: http://127.0.0.1:9/x\r\n"),
     RequestStatus.HTTP_ERROR, 307, "redirected to http://127.0.0.1:9/x: redirects are not followed, give that address"),
    ("redirect to nowhere", http_error(b"302 Found"), RequestStatus.HTTP_ERROR, 302, "status 302 without a body"),
    ("not found", http_error(b"404 Not Found", b'{"detail":"Not Found"}'), RequestStatus.HTTP_ERROR, 404, "Not Found"),
    ("no content", [b"HTTP/1.1 204 No Content\r\n\r\n", "close"], RequestStatus.HTTP_ERROR, 204, "status 204 without"),
    ("JSON", [whole(b'{"text":"x"}', kind=b"application/json; charset=utf-8")], RequestStatus.SERVER_ERROR, 200,
     'the answer is not a stream: {"text":"x"}'),
    ("an error with 200", [whole(b'{"error":{"message":"no"}}', kind=b"application/json")], RequestStatus.SERVER_ERROR,
     200, "the answer is not a stream: no"),
    ("JSON called a stream", [whole(b'{"text":"x"}')], RequestStatus.SERVER_ERROR, 200,
     'the answer is not a stream: {"text":"x"}'),
    ("a page", [whole(b"<html>Sign in</html>", kind=b"text/html")], RequestStatus.SERVER_ERROR, 200,
     "the answer is not a stream: <html>Sign in"),
    ("compressed", [whole(b"\x1f\x8b\x08", more=b"Content-Encoding: gzip\r\n")], RequestStatus.SERVER_ERROR, 200,
     "the answer is compressed (gzip), which was not asked for"),
    ("empty", [whole(b"")], RequestStatus.TRUNCATED, 200, "the stream ended without its end mark"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("steps", "status", "http_status", "error"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS]
)
def test_a_fault_has_its_status_and_its_words(
    steps: list[Step], status: RequestStatus, http_status: int | None, error: str
) -> None:
    for run in (asyncio.run, uvloop.run):
        ((record,), _) = asked(lambda n: steps, run=run)
        assert (record.status, record.http_status) == (status, http_status)
        assert record.error is not None
        assert record.error.startswith(error)


def test_what_follows_a_whole_answer_costs_the_connection_not_the_request() -> None:
    unmarked = whole(GOOD.replace(DONE, b""))
    records, server = asked(lambda n: [(whole(GOOD), unmarked)[n] + b"HTTP/1.1 408 Request Timeout\r\n\r\n", 0.02], 2)
    assert [r.status for r in records] == [RequestStatus.OK] * 2
    records, server = asked(lambda n: [whole(GOOD, more=b"Connection: close\r\n"), "close"], 2)
    assert ([r.status for r in records], server.connections) == ([RequestStatus.OK] * 2, 2)


def test_half_an_answer_is_never_asked_for_again() -> None:
    """Only a connection that was closed before the first byte may be replaced."""
    records, server = asked(lambda n: [whole(GOOD)] if n == 0 else [b"HTTP/1.1 2", "close"], 2)
    assert [r.status for r in records] == [RequestStatus.OK, RequestStatus.CONNECTION]
    assert len(server.asked) == 2


def test_a_request_is_never_sent_a_third_time() -> None:
    records, server = asked(lambda n: [whole(GOOD)] if n == 0 else ["close"], 2)
    assert [r.status for r in records] == [RequestStatus.OK, RequestStatus.CONNECTION]
    assert len(server.asked) == 3


def test_idle_connections_are_given_up_before_the_server_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.wire.connection_pool._KEEP_ALIVE_S", 0.0)
    records, server = asked(lambda n: [whole(GOOD)], 3)
    assert ([r.status for r in records], server.connections) == ([RequestStatus.OK] * 3, 3)


def test_an_event_without_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("actors.wire.stream_exchange._MOST_EVENT_BYTES", 2**20)
    ((record,), _) = asked(lambda n: [STREAM, *[chunk(b"data: " + b"x" * 2**18)] * 8, "hang"])
    assert record.status is RequestStatus.TRUNCATED
    assert record.error == "ValueError: an event of more than 1 MiB, while waiting for the first token"


def test_a_long_burst_lets_others_go_on() -> None:
    """Megabytes that come at once are read in turns; nothing of them is lost."""
    frames = [native("x" * i, i) for i in range(1, 1500)]
    body = b"".join([*frames, native("x", 1500, {"type": "length"}), DONE])
    for run in (asyncio.run, uvloop.run):
        ((record,), _) = asked(lambda n: [whole(body)], run=run)
        assert (record.status, record.output_tokens, len(record.chunk_ns)) == (RequestStatus.OK, 1500, 1500)


def test_requests_carry_what_the_user_gave_and_what_http_wants() -> None:
    _, server = asked(
        lambda n: [whole(GOOD)], 2, url="http://127.0.0.1:{port}/gate/way/", api_key="key",
        headers=(("X-Tenant", "blue"), ("accept", "text/event-stream")),
    )  # fmt: skip
    assert [a.line for a in server.asked] == ["POST /gate/way/generate HTTP/1.1"] * 2
    assert server.asked[0].headers == {
        "host": f"127.0.0.1:{server.port}", "accept": "text/event-stream", "authorization": "bearer key",
        "x-tenant": "blue", "accept-encoding": "identity", "content-type": "application/json",
        "content-length": str(len(server.asked[0].body)),
    }  # fmt: skip
    _, server = asked(lambda n: [whole(GOOD)], url="http://me:p%40ss@127.0.0.1:{port}?v=1")
    assert server.asked[0].line == "POST /generate?v=1 HTTP/1.1"
    assert server.asked[0].headers["authorization"] == "basic bwu6cebzcw=="  # the fake lowers what it keeps


def test_secrets_are_in_no_record_even_if_the_server_repeats_them() -> None:
    echo = b'{"error":{"message":"bad token Bearer sk-verysecret for tenant blue-secret-7"}}'
    answers: list[Step] = [
        whole(echo, b"401 Unauthorized", b"application/json"),
        whole(b"data: " + echo + b"\n\n" + DONE),
    ]
    given: dict[str, Any] = {"api_key": "sk-verysecret", "headers": (("X-Tenant", "blue-secret-7"),)}
    records, _ = asked(lambda n: [answers[n]], 2, **given)
    assert [r.error for r in records] == ["bad token *** for tenant ***"] * 2


@pytest.mark.parametrize("header", [("X-A", "two\r\nX-B: lines"), ("Content-Length", "3"), ("X A", "b"), ("X-A", "漢")])
def test_headers_that_cannot_be_sent_are_refused_without_their_value(header: tuple[str, str]) -> None:
    with pytest.raises(BadInput) as caught:
        StreamClient("http://127.0.0.1:1", spec(), headers=(header,))
    assert header[1] not in str(caught.value) or header[1] == "b" or header[1] == "3"


@pytest.mark.parametrize("url", ["127.0.0.1:8000", "ftp://h:1", "http://", "http://h:99999", "http://u:secret@:80"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(BadInput) as caught:
        StreamClient(url, spec())
    assert "secret" not in str(caught.value)


def test_ipv6_and_names_are_reached() -> None:
    with contextlib.suppress(OSError):  # a host without IPv6 has nothing to show
        ((record,), server) = asked(lambda n: [whole(GOOD)], host="::1")
        assert (record.status, server.asked[0].headers["host"]) == (RequestStatus.OK, f"[::1]:{server.port}")
    # The name has two addresses where there is IPv6; nobody listens at one of them.
    records, _ = asked(lambda n: [whole(GOOD)], 2, url="http://localhost:{port}")
    assert [r.status for r in records] == [RequestStatus.OK] * 2


def test_an_unknown_name_is_a_connection_error() -> None:
    ((record,), _) = asked(lambda n: [], url="http://no-such-host.invalid:80")
    assert record.status is RequestStatus.CONNECTION
    assert record.error is not None
    assert record.error.startswith("gaierror: ")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost and its key, signed by itself."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    folder = tmp_path_factory.mktemp("tls")
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(key.private_bytes(*plain))
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_https_is_checked_against_the_trust_store(
    certificate: tuple[Path, Path], run: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    secured: dict[str, Any] = {"tls": tls, "url": "https://localhost:{port}", "run": run}
    ((record,), _) = asked(lambda n: [whole(GOOD)], **secured)
    assert record.status is RequestStatus.CONNECTION
    assert record.error is not None
    assert record.error.startswith("SSLCertVerificationError: ")
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
    records, server = asked(lambda n: [whole(GOOD)], 2, **secured)
    assert ([r.status for r in records], server.connections) == ([RequestStatus.OK] * 2, 1)


def test_side_endpoints_are_asked_on_connections_of_their_own() -> None:
    async def go() -> tuple[list[Any], int, list[str]]:
        answers: list[list[Step]] = [
            [whole(b"metrics", kind=b"text/plain")], [whole(b"{}", b"404 Not Found")], [b"HTTP/1.1 200 OK\r\n\r\nto the end", "close"],
            [whole(b"done")], [whole(b"x" * 9)[:-1], "close"], ["hang"],
        ]  # fmt: skip
        async with RawServer(lambda n: answers[n], side_calls=True) as server:
            async with StreamClient(server.url, spec()) as client:
                got = [
                    await client.get_text("/metrics"),
                    await client.get_text("/nothing"),
                    await client.get_text("/close"),
                    await client.post("/flush_cache", {"a": 1}),
                    await client.post("/cut"),
                    await client.post("/hang", timeout_s=0.1),
                ]
            return got, server.connections, [a.headers["connection"] for a in server.asked]

    got, connections, told = asyncio.run(go())
    assert got == ["metrics", None, "to the end", (200, "done"), (None, ""), (None, "")]
    assert (connections, told) == (6, ["close"] * 6)


def test_what_waits_in_our_sockets_is_seen() -> None:
    async def go() -> tuple[float, float]:
        async with RawServer(lambda n: [STREAM, "hang"]) as server, StreamClient(server.url, spec()) as client:
            flight = client.flight(Request(0, False, 0, Prompt("x", None, "h"), 3))
            sending = asyncio.create_task(client.send(flight))
            while flight.http_status is None:  # noqa: ASYNC110 - the client says so nowhere else
                await asyncio.sleep(0.001)
            before = client.sample_backlog_kib()
            (connection,) = client._pool._open
            connection._transport.pause_reading()
            server.writers[0].write(chunk(b": " + b"x" * 8190 + b"\n\n"))
            await server.writers[0].drain()
            after = client.sample_backlog_kib()
            flight.cancel(RequestStatus.CANCELLED, "enough")
            await sending
            return before, after

    before, after = asyncio.run(go())
    assert before == 0.0
    assert 8.0 < after < 8.1


def test_a_cancelled_task_leaves_no_connection_behind() -> None:
    async def go() -> int:
        async with RawServer(lambda n: ["hang"]) as server, StreamClient(server.url, spec()) as client:
            flight = client.flight(Request(0, False, 0, Prompt("x", None, "h"), 3))
            sending = asyncio.create_task(client.send(flight))
            while not server.asked:  # noqa: ASYNC110 - until the request has come
                await asyncio.sleep(0.001)
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            return len(client._pool._open)

    assert asyncio.run(go()) == 0
