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
        ConditionFailedError,
        CredentialsError,
        DataLossError,
        ExpiredIteratorError,
        InvalidArgumentError,
        NotFoundError,
        OptionError,
        PenstockError,
        ServiceError,
        StalledError,
        ThrottledError,
        TransportError,
        UnavailableError,
    )
    from penstock.model import Position, Record, Shard, StartAt, StreamName

__all__ = [
    "AccessDeniedError",
    "AggregateError",
    "ConditionFailedError",
    "CredentialsError",
    "DataLossError",
    "ExpiredIteratorError",
    "InvalidArgumentError",
    "NotFoundError",
    "OptionError",
    "PenstockError",
    "Position",
    "Record",
    "ServiceError",
    "Shard",
    "StalledError",
    "StartAt",
    "StreamName",
    "ThrottledError",
    "TransportError",
    "UnavailableError",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = ("penstock.errors", "penstock.model")


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
