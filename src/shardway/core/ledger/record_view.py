"""A view of a record has all that the record has: a part of it, and a record that is settled alone, derive from it."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import datetime as dt

    from shardway.model import Record, Tags


class RecordView:
    """The properties of one record."""

    __slots__ = ()

    @property
    @abstractmethod
    def record(self) -> Record:
        """The record, with its position, key, time and data."""

    @property
    def stream(self) -> str:
        """The record's stream: its name or ARN, as it was given."""
        return self.record.stream

    @property
    def shard_id(self) -> str:
        """The id of the shard from which the record was read."""
        return self.record.shard_id

    @property
    def partition_key(self) -> str | None:
        """The record's partition key. Parts of a record are delivered one after the other where order is by key."""
        return self.record.partition_key

    @property
    def data(self) -> bytes:
        """The bytes of the record; for a part, those of the whole record."""
        return self.record.data

    @property
    def sequence_number(self) -> int:
        """The record's sequence number; that of its aggregate, where it came out of one."""
        return self.record.sequence_number

    @property
    def sub_sequence_number(self) -> int:
        """The 0-based index inside an aggregate; 0 for a plain record."""
        return self.record.sub_sequence_number

    @property
    def approximate_arrival_timestamp(self) -> dt.datetime:
        """The time at which the service took the record."""
        return self.record.approximate_arrival_timestamp

    @property
    def explicit_hash_key(self) -> int | None:
        """See `Record.explicit_hash_key`."""
        return self.record.explicit_hash_key

    @property
    def aggregated(self) -> bool:
        """True for a record out of an aggregate."""
        return self.record.aggregated

    @property
    def tags(self) -> Tags:
        """See `Record.tags`."""
        return self.record.tags
