# Written by scripts/stubs.py from the list in __init__.py.

from shardway.local.embedded import LocalKinesis as LocalKinesis
from shardway.local.faults import Fault as Fault
from shardway.local.options import LocalOptions as LocalOptions
from shardway.local.spawned import SpawnedKinesis as SpawnedKinesis

__all__ = [
    "Fault",
    "LocalKinesis",
    "LocalOptions",
    "SpawnedKinesis",
]
