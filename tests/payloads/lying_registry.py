"""A schema registry on loopback, which can be away and can lie."""

from __future__ import annotations

import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

SCHEMA = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
VERSION = uuid.UUID("b7b4a7f0-9c96-4e4a-a687-fb5de9ef0c63")


class Registry:
    """Answers as both kinds of registry do, and notes what it is asked for."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str | None]] = []
        self.schemas: dict[int, dict[str, Any]] = {1: {"schema": SCHEMA}}
        self.versions: dict[str, dict[str, Any]] = {
            str(VERSION): {
                "SchemaDefinition": SCHEMA,
                "DataFormat": "AVRO",
                "SchemaArn": "arn:aws:glue:eu-west-1:123456789012:schema/shop/orders",
                "VersionNumber": 3,
            }
        }
        self.status = 200
        self.lie: bytes | None = None
        """The body of each answer, in place of what the registry has."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                registry.asked.append((self.path, self.headers.get("authorization")))
                found = registry.schemas.get(int(self.path.rpartition("/")[2]))
                self._answer(found, {"error_code": 40403}, missing=404)

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                registry.asked.append((self.headers["x-amz-target"], body["SchemaVersionId"]))
                found = registry.versions.get(body["SchemaVersionId"])
                self._answer(found, {"__type": "EntityNotFoundException", "message": "none"})

            def _answer(self, found: dict[str, Any] | None, other: dict[str, Any], *, missing: int = 400) -> None:
                status = registry.status if registry.status != 200 else 200 if found else missing
                body = registry.lie or json.dumps(found or other).encode()
                self.send_response(status)
                if status == 302:
                    self.send_header("location", registry.url + "/schemas/ids/1")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                """Quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
