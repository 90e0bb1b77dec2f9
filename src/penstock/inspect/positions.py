"""An application's positions as a document: what it has settled of each shard, exact or not, and why.

The document is meant to be kept before anything is changed, compared, and carried to another consumer.
"""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    from penstock.inspect.applications import ApplicationView, LeaseView

At = Literal["after", "trim_horizon", "latest", "timestamp", "ended"]


class PositionView(msgspec.Struct, frozen=True, kw_only=True):
    """Where one shard is."""

    at: At
    sequence_number: str | None = None
    sub_sequence_number: int | None = None
    exact: bool
    """False: another consumer that begins there may read other records than this one would."""
    why: str
    owner: str | None = None


class PositionsSource(msgspec.Struct, frozen=True, kw_only=True):
    """Where the positions were read."""

    kind: str
    application: str
    taken_at: dt.datetime


class PositionsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The positions of an application, by lease keys."""

    schema: str = "penstock.positions/1"
    source: PositionsSource
    streams: list[str]
    shards: dict[str, PositionView]
    left_out: dict[str, str]
    """Rows that cannot be read as leases, and why."""


def positions_of(application: ApplicationView, taken_at: dt.datetime) -> PositionsReport:
    """All positions of the application."""
    return PositionsReport(
        source=PositionsSource(kind=application.store, application=application.name, taken_at=taken_at),
        streams=application.streams,
        shards={lease.key: position_of(lease) for lease in application.leases},
        left_out=application.unreadable,
    )


def position_of(lease: LeaseView) -> PositionView:
    """The position of one lease."""
    if lease.ended:
        return PositionView(at="ended", exact=True, why="the shard is read to its end", owner=lease.owner)
    words: dict[str, tuple[At, bool, str]] = {
        "TRIM_HORIZON": ("trim_horizon", True, "nothing is settled yet: all that the retention covers is to be read"),
        "LATEST": ("latest", False, "nothing is settled yet, and what counts as newest moves with each start"),
        "AT_TIMESTAMP": ("timestamp", False, "nothing is settled yet, and the time is in the program's settings alone"),
    }
    if (word := words.get(lease.checkpoint)) is not None:
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
