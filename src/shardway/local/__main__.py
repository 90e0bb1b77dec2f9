"""``python -m shardway.local OPTIONS``: what :meth:`LocalKinesis.spawn` starts. People use ``shardway local``.

OPTIONS is the JSON of :class:`LocalOptions`. One line of JSON on standard output says where the service listens, or
what went wrong. The process ends when its standard input is closed.
"""

from __future__ import annotations

import sys

import msgspec

from shardway.errors import ShardwayError
from shardway.local.options import LocalOptions
from shardway.local.process import serve
from shardway.local.server import LocalServer


def _announce(server: LocalServer) -> None:
    _print_json({"endpoint_url": server.endpoint_url, "ca_file": server.ca_file})


def _print_json(line: dict[str, str | None]) -> None:
    print(msgspec.json.encode(line).decode(), flush=True)


def main() -> int:
    """Serve, and return the exit status: 1 when the service could not start."""
    try:
        serve(msgspec.json.decode(sys.argv[1], type=LocalOptions), _announce, with_parent=True)
    except (OSError, ShardwayError) as fault:
        _print_json({"error": str(fault)})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
