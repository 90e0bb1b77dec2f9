"""For users' tests: a local Kinesis as a context manager, and pytest fixtures (``pytest_plugin``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.local import Fault, LocalKinesis, SpawnedKinesis

__all__ = ["Fault", "LocalKinesis", "SpawnedKinesis"]


def __getattr__(name: str) -> object:
    """Import on first use: pytest loads this package in every run of whoever has Penstock installed."""
    if name in __all__:
        import penstock.local

        return getattr(penstock.local, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
