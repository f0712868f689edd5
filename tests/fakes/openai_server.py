"""A server with nothing but an OpenAI API, as a program: `python openai_server.py --port P [--depth N] ...`.

Each request streams its tokens, usage in the last chunk only. With a depth, `accept_of_3` of every three draft tokens
count as accepted. `--die TEXT` prints the text and ends with code 1 before it listens.
"""

from __future__ import annotations

import argparse
import json
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Counted:
    """What /metrics tells."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.drafted = self.accepted = self.verified = 0

    def text(self) -> str:
        return f"fake:drafted_total {self.drafted}\nfake:accepted_total {self.accepted}\nfake:steps {self.verified}\n"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    given: argparse.Namespace
    counted: Counted
    began_s: float

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Quiet: a log without a line must not be taken for a hang."""

    def do_GET(self) -> None:
        loading = time.monotonic() - self.began_s < self.given.load_s
        if self.path == self.given.ready:
            self._answer(503 if loading else 200, "text/plain", b"")
        elif self.path == "/v1/models":
            self._answer(200, "application/json", json.dumps({"data": [{"id": self.given.name}]}).encode())
        elif self.path == "/metrics":
            self._answer(200, "text/plain", self.counted.text().encode())
        elif self.path == "/version":
            self._answer(200, "application/json", b'{"version": "7.1"}')
        else:
            self._answer(404, "text/plain", b"no such path")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != f"/v1/{self.given.api}":
            self._answer(404, "text/plain", b"no such path")
        elif body["model"] != self.given.name:
            self._answer(404, "application/json", b'{"error": {"message": "no such model"}}')
        elif self.given.only_with is not None and body.get(self.given.only_with) is None and body.get("stream"):
            self._answer(400, "application/json", b'{"error": {"message": "a key is missing"}}')
        elif body.get("stream"):
            self._stream(body["max_tokens"])
        else:
            self._answer(200, "application/json", b"{}")

    def _stream(self, tokens: int) -> None:
        depth = self.given.depth
        with self.counted.lock:
            self.counted.drafted += depth * tokens
            self.counted.accepted += depth * tokens * self.given.accept_of_3 // 3
            self.counted.verified += tokens if depth else 0
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(tokens):
            time.sleep(self.given.token_s / (1 + depth))
            self._event({"choices": [{"text": f" {i}", "delta": {"content": f" {i}"}, "finish_reason": None}]})
        usage = {"prompt_tokens": 32, "completion_tokens": tokens}
        self._event({"choices": [{"text": "", "delta": {}, "finish_reason": "length"}], "usage": usage})
        self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, frame: dict[str, Any]) -> None:
        self.wfile.write(b"data: " + json.dumps(frame).encode() + b"\n\n")

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


class Server(ThreadingHTTPServer):
    request_queue_size = 64


def main() -> None:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--name", default="fake-model")
    parser.add_argument("--api", default="completions")
    parser.add_argument("--ready", default="/health")
    parser.add_argument("--only-with", help="refuse loads without this key in the body")
    parser.add_argument("--depth", type=int, default=0)
    parser.add_argument("--accept-of-3", type=int, default=2)
    parser.add_argument("--load-s", type=float, default=0.0)
    parser.add_argument("--token-s", type=float, default=0.004)
    parser.add_argument("--die", help="last words")
    given = parser.parse_args()
    if given.die is not None:
        sys.exit(given.die)
    Handler.given, Handler.counted, Handler.began_s = given, Counted(), time.monotonic()
    Server((given.host, given.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
