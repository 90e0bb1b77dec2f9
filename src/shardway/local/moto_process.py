"""The process in which moto answers for CloudWatch and STS. :mod:`neighbours` runs it as a module.

The process listens on loopback, writes ``{"port": ...}`` or ``{"error": ...}`` as one line to its standard output, and
ends when its standard input is closed: so it never outlives the service that started it, however the service ends.

Two services of moto are used, each through its own entry for a request. moto's server would serve all hundred and
more: for that it wants some forty packages, a Docker client and a solver of equations among them.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import traceback
from importlib import metadata
from typing import TYPE_CHECKING, Any

from shardway.tasks import thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

SERVICE_HEADER = "x-shardway-neighbour"
"""The header that names the service of a request: the part that forwards the request has found the service out."""
REQUIRED = "moto>=5.2.4,<6"
VERSION_MIN, VERSION_BELOW = (5, 2, 4), (6,)
"""The versions of moto that answer: requests of older ones lack what the handlers are given."""


def moto_fault() -> str | None:
    """Return what is wrong with the moto that is installed; None: nothing. It is not imported for that."""
    try:
        version = metadata.version("moto")
    except metadata.PackageNotFoundError:
        return 'moto is not installed: pip install "shardway[local]"'
    numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdecimal())
    if VERSION_MIN <= numbers < VERSION_BELOW:
        return None
    return f'moto {version} is installed, and {REQUIRED} is needed: pip install "shardway[local]"'


class Application:
    """Answers requests (WSGI) by moto's handlers."""

    def __init__(self) -> None:
        """Raises ImportError where moto is not installed, or not the right one."""
        fault = moto_fault()
        if fault is not None:
            raise ImportError(fault)
        from moto.cloudwatch.responses import CloudWatchResponse
        from moto.core.request import Request
        from moto.sts.responses import TokenResponse
        from werkzeug.exceptions import HTTPException
        from werkzeug.wrappers import Response

        class ServedRequest(Request):  # type: ignore[misc]
            from_wsgi_server = True

        self._request, self._response, self._refusal = ServedRequest, Response, HTTPException
        self._handlers = {"cloudwatch": CloudWatchResponse, "sts": TokenResponse}

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Answer one request."""
        request = self._request(environ)
        try:
            status, headers, content = self._answer(request)
        except self._refusal as refusal:  # some versions of moto raise their errors so
            return refusal(environ, start_response)
        except Exception as fault:
            text = f"moto failed ({type(fault).__name__}: {fault})"
            if isinstance(fault, ModuleNotFoundError):
                text += f": this call needs the package {fault.name}, which is not installed with shardway[local]"
            body = json.dumps({"__type": "InternalServerError", "message": text})
            status, headers, content = 500, {"Content-Type": "application/json"}, body
        answer = self._response(response=content, status=status, headers=headers)
        return answer(environ, start_response)

    def _answer(self, request: Any) -> tuple[int, Any, Any]:
        handler = self._handlers[request.headers[SERVICE_HEADER]]
        try:
            found = handler.dispatch(request, request.raw_url, dict(request.headers))
        except Exception as fault:
            answer = getattr(fault, "response", None)  # moto raises botocore's ClientError in places
            if not isinstance(answer, dict) or "Error" not in answer:
                raise
            return 400, {}, answer["Error"]["Message"]
        return found if len(found) == 3 else (200, {}, found)


def _end_process(error: BaseException) -> None:
    """End the process: the next call to one of its services finds that, and starts another process."""
    traceback.print_exception(error)
    os._exit(1)


def main() -> None:
    """Serve until standard input is closed."""
    try:
        from werkzeug.serving import WSGIRequestHandler, make_server

        application = Application()
    except ImportError as fault:
        text = str(fault) if "pip install" in str(fault) else f'{fault}: pip install "shardway[local]"'
        print(json.dumps({"error": text}), flush=True)
        return
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    WSGIRequestHandler.protocol_version = "HTTP/1.1"  # keep-alive: a connection per call costs more than the call
    server = make_server("127.0.0.1", 0, application, threaded=True)
    thread(server.serve_forever, "moto", _end_process)
    print(json.dumps({"port": server.server_port}), flush=True)
    sys.stdin.buffer.read()
    os._exit(0)  # its threads may hang in a client's connection; there is nothing to save


if __name__ == "__main__":
    main()
