"""A Kinesis on this machine, for tests, demonstrations and development. On loopback unless told otherwise."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.local.embedded import LocalKinesis
    from penstock.local.faults import Fault
    from penstock.local.settings import LocalSettings
    from penstock.local.spawned import SpawnedKinesis

__all__ = ["Fault", "LocalKinesis", "LocalSettings", "SpawnedKinesis"]

_HOMES = {"Fault": "faults", "LocalKinesis": "embedded", "LocalSettings": "settings", "SpawnedKinesis": "spawned"}


def __getattr__(name: str) -> object:
    """Import on first use: the server's libraries are an extra."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as fault:
        if fault.name != "httptools":
            raise
        text = 'the local service needs its extra: pip install "penstock[local]"'
        raise ModuleNotFoundError(text, name=fault.name) from fault
