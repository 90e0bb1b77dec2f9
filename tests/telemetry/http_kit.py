"""What the tests of exporters share."""

from __future__ import annotations

import http.client
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


def get(port: int, path: str = "/metrics", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    finally:
        connection.close()


def until(condition: Any) -> None:
    """Wait for what another thread does; the test's own deadline bounds it."""
    wait = threading.Event()
    while not condition():
        wait.wait(0.01)


class Collector:
    """An HTTP server that notes what it gets, and answers as it is told."""

    def __init__(self) -> None:
        self.status = 200
        self.body = b""
        self.hangs = threading.Event()
        self.hangs.set()
        self.got: list[tuple[dict[str, str], bytes]] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                collector.hangs.wait(30)
                collector.got.append(({name.lower(): value for name, value in self.headers.items()}, body))
                self.send_response(collector.status)
                self.send_header("content-length", str(len(collector.body)))
                self.end_headers()
                self.wfile.write(collector.body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.hangs.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
