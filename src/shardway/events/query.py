"""The facts that a Spark query emits, on its driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from shardway.events.base import Event

if TYPE_CHECKING:
    from shardway.events.query_snapshot import QuerySnapshot


class QueryMetrics(Event, frozen=True):
    """A Spark query reports what it did with a stream that it reads since the event of this kind before, and how far it
    is.
    """

    stream: str
    application: str
    """The name of the query, or the beginning of its id where it has none."""
    snapshot: QuerySnapshot
    last: bool = False
    """True when the query was stopped, and has not failed: no further event follows."""


QueryEvent: TypeAlias = QueryMetrics
"""The facts that a Spark query emits, on its driver."""
