"""Policies: the values that a program chooses among its options, and that several parts of the package know."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from shardway.core.given import Options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from shardway.aws.options import ConnectionOptions
    from shardway.core.ledger.letter import Letter
    from shardway.core.shard.checkpoints import PendingChoice
    from shardway.model import Position
    from shardway.ports import RecordSink


class DeadLettersToStream(Options, frozen=True, kw_only=True):
    """Each dead letter is a record of this stream: a line of JSON, as `Letter.to_json` makes it."""

    stream: str | RecordSink
    """The stream's name or ARN; or a RecordSink, which is closed with the consumer."""
    connection: ConnectionOptions | None = None
    """The way to reach a stream given by name; None: the consumer reaches it like its own."""
    with_data: bool = True
    """The letter holds the record's data and keys too. Without them a record can only be replayed as long as the stream
    that it came from keeps it. Data that is too large for a record of this stream is left out, which the letter says.
    """

    @classmethod
    def _kinds(cls) -> Mapping[str, tuple[type | str, ...]]:
        from shardway.aws.options import ConnectionOptions

        return {"connection": (ConnectionOptions,)}


class DeadLettersToFile(Options, frozen=True, kw_only=True):
    """Each dead letter is a line of JSON at the end of this file, which is synced to the disk."""

    path: Path | str
    """The path of the file. The file is made if it is not there, for its owner alone to read. Several consumers may
    write to one file of a local disk.
    """
    with_data: bool = True
    """See `DeadLettersToStream.with_data`: it means the same."""

    @classmethod
    def _kinds(cls) -> Mapping[str, tuple[type | str, ...]]:
        return {"path": (Path, str)}


@dataclass(frozen=True)
class DeadLettersTo:
    """A function is called with each dead letter."""

    write: Callable[[Letter], Awaitable[object] | object] = field(repr=False)
    """When it returns (or what it returns was awaited) the letter is kept; an exception means that it is called again
    later. A plain function is called on the event loop and must not block it.
    """


DeadLetterChoice: TypeAlias = DeadLettersToStream | DeadLettersToFile | DeadLettersTo


class FoundPending(NamedTuple):
    """A pending checkpoint that the former owner of a shard left."""

    stream: str
    shard_id: str
    position: Position | None
    """The position up to which all was prepared; None: the whole shard, to its end."""
    state: bytes | None
    """The bytes that the application stored with the checkpoint."""


OnPending: TypeAlias = "Callable[[FoundPending], PendingChoice]"
