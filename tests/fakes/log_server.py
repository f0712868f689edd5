"""A stand-in server: prints a scripted log to stderr, then serves HTTP, exits or hangs. Takes SGLang's --host/--port.

The script is JSON in the variable FAKE_SCRIPT: `lines` (text, seconds to wait, or {"until": FILE} to wait for), `then`
("serve", "exit" or "hang"), `exit_code`, `ignore_term`, `daemon` (a double-forked child that ignores SIGTERM writes its
pid to it).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

SCRIPT: dict[str, Any] = json.loads(os.environ["FAKE_SCRIPT"])
INFO = {
    "version": "0.5.23",
    "max_total_num_tokens": 4096,
    "api_key": "sk-do-not-store",
    "launch_command": "python -m sglang.launch_server --api-key sk-do-not-store --port 1",
}


class Handler(BaseHTTPRequestHandler):
    """Answers /generate, /server_info and /abort_request."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        log(f"POST {self.path}")
        self.answer({"text": "x"}, SCRIPT.get("generate_status", 200))

    def do_GET(self) -> None:
        self.answer(INFO if self.path == "/server_info" else {}, 200 if self.path == "/server_info" else 404)

    def answer(self, body: dict[str, Any], status: int) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        return


def log(text: str) -> None:
    """To the log, at once."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def start_daemon(pid_file: str) -> None:
    """A process that leaves our tree as daemons do and does not obey SIGTERM."""
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    Path(pid_file).write_text(str(os.getpid()), encoding="utf-8")
    while True:
        time.sleep(60)


def main() -> None:
    """Play the script."""
    if SCRIPT.get("ignore_term"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "daemon" in SCRIPT:
        start_daemon(SCRIPT["daemon"])
    for line in SCRIPT["lines"]:
        if isinstance(line, str):
            log(line)
        elif isinstance(line, dict):
            while not Path(line["until"]).exists():
                time.sleep(0.01)
        else:
            time.sleep(line)
    if SCRIPT["then"] == "exit":
        sys.exit(SCRIPT.get("exit_code", 0))
    if SCRIPT["then"] == "hang":
        while True:
            time.sleep(60)
    port = int(sys.argv[sys.argv.index("--port") + 1])
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    log("The server is fired up and ready to roll!")
    server.serve_forever()


if __name__ == "__main__":
    main()
