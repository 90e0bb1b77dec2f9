"""A Kinesis on this machine, for tests, demonstrations and development. It listens on loopback unless its options name
another address.

`model` is the service itself. `embedded` serves it in this process, `spawned` and `process` in another one. `server`
puts the parts together: `regions`, `tls`, `http`, `http2` and `http_versions`. `gate` checks requests, with
`signatures`; `kinesis` makes calls of them, by the list in `operations`, and `event_pumps` pushes. `faults`
(`fault_targets`, `faulty_kinesis`), `control`, `clock` and `counters` are for tests, and `journal` is the data folder.
`http_messages`, `answers`, `cbor` and `eventstream` are what goes over a connection; `http2_protocol`, `http2_stream`
and `http2_bodies` are parts of `http2`. `dynamodb` is a model of the part of DynamoDB that lease tables need, behind
`dynamodb_face`. `neighbours` answer for CloudWatch and STS by `moto_process`, and `neighbour_face` counts and spoils
all three.
"""

from __future__ import annotations

from shardway.extras import check
from shardway.public import loaded_from

_HOMES = {
    "Fault": "shardway.local.faults",
    "LocalKinesis": "shardway.local.embedded",
    "LocalOptions": "shardway.local.options",
    "SpawnedKinesis": "shardway.local.spawned",
}
"""The module of each public name. A use of the name loads this module, and no other."""

__all__ = [*_HOMES]

_load = loaded_from(__name__, _HOMES)


def __getattr__(name: str) -> object:
    """Import on first use: the server's libraries are an extra."""
    if name in ("LocalKinesis", "SpawnedKinesis"):
        check("local", "the local service")
    return _load(name)


def __dir__() -> list[str]:
    return __all__
