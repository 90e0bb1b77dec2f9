"""Penstock carries records between Amazon Kinesis Data Streams and Python.

What is named here is public. Names are loaded when first used, so that ``import penstock`` stays cheap.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.errors import (
        AccessDeniedError,
        AggregateError,
        BufferFullError,
        ConditionFailedError,
        CredentialsError,
        DataLossError,
        ExpiredIteratorError,
        FlushTimeoutError,
        InvalidArgumentError,
        InvalidRecordError,
        NotFoundError,
        OptionError,
        PenstockError,
        ProducerClosedError,
        PutError,
        RecordExpiredError,
        RecordRefusedError,
        RecordWithdrawnError,
        ServiceError,
        StalledError,
        ThrottledError,
        TransportError,
        UnavailableError,
    )
    from penstock.model import OutRecord, Position, PutResult, Record, Shard, StartAt, StreamName
    from penstock.options import ProducerOptions
    from penstock.runtime.handles import PutHandle, Puts, SyncPutHandle, SyncPuts
    from penstock.runtime.producer import Producer
    from penstock.runtime.producer_metrics import ProducerSnapshot
    from penstock.runtime.sync_producer import SyncProducer
    from penstock.runtime.unwritten import Unwritten
    from penstock.wiring import Credentials, WireSettings

__all__ = [
    "AccessDeniedError",
    "AggregateError",
    "BufferFullError",
    "ConditionFailedError",
    "Credentials",
    "CredentialsError",
    "DataLossError",
    "ExpiredIteratorError",
    "FlushTimeoutError",
    "InvalidArgumentError",
    "InvalidRecordError",
    "NotFoundError",
    "OptionError",
    "OutRecord",
    "PenstockError",
    "Position",
    "Producer",
    "ProducerClosedError",
    "ProducerOptions",
    "ProducerSnapshot",
    "PutError",
    "PutHandle",
    "PutResult",
    "Puts",
    "Record",
    "RecordExpiredError",
    "RecordRefusedError",
    "RecordWithdrawnError",
    "ServiceError",
    "Shard",
    "StalledError",
    "StartAt",
    "StreamName",
    "SyncProducer",
    "SyncPutHandle",
    "SyncPuts",
    "ThrottledError",
    "TransportError",
    "UnavailableError",
    "Unwritten",
    "WireSettings",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = (
    "penstock.errors",
    "penstock.model",
    "penstock.options",
    "penstock.wiring",
    "penstock.runtime.producer_metrics",
    "penstock.runtime.unwritten",
    "penstock.runtime.handles",
    "penstock.runtime.producer",
    "penstock.runtime.sync_producer",
)
"""Modules in the order of what they cost to load: a name is looked for in each in turn."""


def __getattr__(name: str) -> object:
    """Load a public name from its module at its first use (PEP 562)."""
    if name in __all__:
        for home in _HOMES:
            module = importlib.import_module(home)
            if hasattr(module, name):
                return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module 'penstock' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
