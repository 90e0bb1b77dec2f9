"""An application's positions as a document, which says how far each shard is settled, whether exactly, and why.

The document is there to be kept before anything is changed, to be compared, and to be carried to another consumer.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from shardway.inspect.applications.views import ApplicationView, LeaseView


SCHEMA = "shardway.positions/1"
At = Literal["after", "at", "trim_horizon", "latest", "timestamp", "ended", "none"]


class PositionView(msgspec.Struct, frozen=True, kw_only=True):
    """Where one shard is: behind a record, at a record that is still to be read, or at one of the other places."""

    at: At
    sequence_number: str | None = None
    sub_sequence_number: int | None = None
    timestamp: dt.datetime | None = None
    exact: bool
    """False: another consumer that begins there may read other records than this one would."""
    why: str
    owner: str | None = None


class PositionsSource(msgspec.Struct, frozen=True, kw_only=True):
    """The store that the positions were read from, and the time."""

    kind: str
    application: str
    taken_at: dt.datetime


class PositionsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of an application, by lease keys."""

    schema: str = SCHEMA
    source: PositionsSource
    streams: list[str]
    shards: dict[str, PositionView]
    left_out: dict[str, str]
    """Rows that cannot be read as leases, and why."""


def positions_of(application: ApplicationView, taken_at: dt.datetime) -> PositionsReport:
    """Return all positions of the application."""
    return PositionsReport(
        source=PositionsSource(kind=application.store, application=application.name, taken_at=taken_at),
        streams=application.streams,
        shards={lease.key: position_of(lease) for lease in application.leases},
        left_out=application.unreadable,
    )


def position_of(lease: LeaseView) -> PositionView:
    """Return the position of one lease."""
    if lease.ended:
        return PositionView(at="ended", exact=True, why="the shard is read to its end", owner=lease.owner)
    words: dict[str, tuple[At, bool, str]] = {
        "TRIM_HORIZON": ("trim_horizon", True, "nothing is settled yet: all that the retention covers is to be read"),
        "LATEST": ("latest", False, "nothing is settled yet, and the next owner begins at what is newest then"),
        "AT_TIMESTAMP": ("timestamp", False, "nothing is settled yet, and the time is in the program's options alone"),
    }
    if (word := words.get(lease.checkpoint)) is not None:
        if lease.checkpoint != "TRIM_HORIZON" and lease.read_until is not None:
            why = "nothing is settled yet: all that arrived since then is to be read"
            return PositionView(at="timestamp", timestamp=lease.read_until, exact=True, why=why, owner=lease.owner)
        at, exact, why = word
        return PositionView(at=at, exact=exact, why=why, owner=lease.owner)
    return PositionView(
        at="after",
        sequence_number=lease.checkpoint,
        sub_sequence_number=lease.sub_sequence_number,
        exact=True,
        why="all up to this record is settled",
        owner=lease.owner,
    )
