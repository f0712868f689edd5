"""An object store that speaks S3 over HTTP on loopback, as far as pyarrow asks it. Path style, one bucket.

It answers pyarrow as moto does (run tests/orchestrator/history/test_history_on_s3.py with SPECSWEEP_TEST_S3 against
that or any other store). Rights are by access key; signatures are not looked at.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote
from xml.sax.saxutils import escape

from aiohttp import web

BUCKET = "bucket"
# Who may do what; a store that knows no more of rights is told by its users' policies.
RIGHTS = {"AKIAWRITER": "list get put", "AKIAREADER": "list get", "AKIANOBODY": ""}
_NEED = {"HEAD": "get", "GET": "get", "PUT": "put", "POST": "put", "DELETE": "delete"}


class ObjectStore:
    """`objects` by key, whole ones only; `uploads` that were begun and not ended. `page`: keys in a listing."""

    def __init__(self, rights: dict[str, str] | None = None, page: int = 1000) -> None:
        self.objects: dict[str, bytes] = {}
        self.uploads: dict[str, dict[int, bytes]] = {}
        self.asked: list[str] = []
        self.url = ""
        self._rights, self._page = rights or RIGHTS, page

    async def answer(self, request: web.Request) -> web.Response:
        bucket, _, key = request.path.lstrip("/").partition("/")
        body = unchunked(await request.read(), request.headers)
        self.asked.append(f"{request.method} {key or '/'}")
        need = "list" if not key else _NEED[request.method]
        who = request.headers.get("Authorization", "").partition("Credential=")[2].partition("/")[0]
        if need not in self._rights.get(who, "").split():
            return _fault(request, 403, "AccessDenied", "Access Denied")
        if bucket != BUCKET:
            return _fault(request, 404, "NoSuchBucket", "The specified bucket does not exist")
        if not key:
            return self._list(request) if request.method == "GET" else web.Response()
        if "uploads" in request.query:
            upload = secrets.token_hex(8)
            self.uploads[upload] = {}
            return _xml("InitiateMultipartUploadResult", f"<Key>{escape(key)}</Key><UploadId>{upload}</UploadId>")
        return self._object(request, key, body)

    def _object(self, request: web.Request, key: str, body: bytes) -> web.Response:
        upload = request.query.get("uploadId", "")
        if request.method == "PUT" and upload:
            self.uploads[upload][int(request.query["partNumber"])] = body
            return web.Response(headers={"ETag": '"part"'})
        if request.method == "POST" and upload:
            parts = self.uploads.pop(upload)
            self.objects[key] = b"".join(parts[number] for number in sorted(parts))
            return _xml("CompleteMultipartUploadResult", f"<Key>{escape(key)}</Key><ETag>whole</ETag>")
        if request.method == "PUT":
            self.objects[key] = body
            return web.Response(headers={"ETag": '"whole"'})
        data = self.objects.get(key)
        if data is None:
            return _fault(request, 404, "NoSuchKey", "The specified key does not exist.")
        headers = {"Last-Modified": "Mon, 30 Nov 2026 02:15:00 GMT", "ETag": '"whole"'}
        if request.method == "HEAD":
            return web.Response(headers={**headers, "Content-Length": str(len(data))})
        wanted = request.http_range
        return web.Response(status=206 if wanted.start is not None else 200, body=data[wanted], headers=headers)

    def _list(self, request: web.Request) -> web.Response:
        """Version 2, with a delimiter: what has one after the prefix is told as a folder, once."""
        prefix, delimiter = request.query.get("prefix", ""), request.query.get("delimiter", "")
        found: dict[str, str] = {}
        for key in sorted(self.objects):
            if key.startswith(prefix):
                first, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
                name = prefix + first + cut if cut else key
                size = f"<Size>{len(self.objects[key])}</Size><LastModified>2026-11-30T02:15:00Z</LastModified>"
                found[name] = (
                    f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
                    if cut
                    else f"<Contents><Key>{escape(name)}</Key>{size}</Contents>"
                )
        after = request.query.get("continuation-token", "")
        names = [name for name in found if quote(name) > after]
        page = names[: min(self._page, int(request.query.get("max-keys", "1000")))]
        more = len(page) < len(names)
        token = f"<NextContinuationToken>{quote(page[-1])}</NextContinuationToken>" if more and page else ""
        told = f"<IsTruncated>{str(more).lower()}</IsTruncated>{token}<KeyCount>{len(page)}</KeyCount>"
        return _xml("ListBucketResult", f"<Name>{BUCKET}</Name>{told}{''.join(found[name] for name in page)}")


def unchunked(body: bytes, headers: Any) -> bytes:
    """What is in the chunks that the SDK makes for its checksum: size in hex, data, then a trailer."""
    if "aws-chunked" not in headers.get("Content-Encoding", ""):
        return body
    data = b""
    while body:
        head, _, body = body.partition(b"\r\n")
        size = int(head.partition(b";")[0], 16)
        if not size:
            break
        data, body = data + body[:size], body[size + 2 :]
    return data


def _xml(root: str, inner: str) -> web.Response:
    text = f'<?xml version="1.0" encoding="UTF-8"?><{root} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{inner}</{root}>'
    return web.Response(text=text, content_type="application/xml")


def _fault(request: web.Request, status: int, code: str, told: str) -> web.Response:
    text = "" if request.method == "HEAD" else f"<Error><Code>{code}</Code><Message>{told}</Message></Error>"
    return web.Response(status=status, text=text, content_type="application/xml")


@contextmanager
def serving(store: ObjectStore) -> Iterator[ObjectStore]:
    """The store on a free port of loopback, in a thread of its own."""
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def serve() -> web.AppRunner:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("*", "/{path:.*}", store.answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        store.url = f"127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def run() -> None:
        runner = loop.run_until_complete(serve())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(60)
    try:
        yield store
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(60)
        loop.close()
