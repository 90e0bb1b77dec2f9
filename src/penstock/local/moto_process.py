"""The process in which moto answers for DynamoDB, CloudWatch and STS: run as a module, by :mod:`neighbours`.

It listens on loopback, writes ``{"port": ...}`` or ``{"error": ...}`` as one line to its standard output, and ends when
its standard input is closed: so it never outlives the service that started it, however that one ends.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading


def main() -> None:
    """Serve until standard input is closed."""
    try:
        from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server
    except ImportError as fault:
        print(json.dumps({"error": f'{fault}: install "penstock[local]"'}), flush=True)
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # keep-alive: a connection per call costs more than the call
    server = make_server("127.0.0.1", 0, DomainDispatcherApplication(create_backend_app), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(json.dumps({"port": server.server_port}), flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # its threads may hang in a client's connection; there is nothing to save


if __name__ == "__main__":
    main()
