"""The error of a call into Spark's JVM, also where there is none: a Spark Connect client has no py4j."""

from __future__ import annotations

try:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
except ModuleNotFoundError:

    class Py4JError(Exception):  # type: ignore[no-redef]
        """Never raised: nothing calls into a JVM here."""


__all__ = ["Py4JError"]
