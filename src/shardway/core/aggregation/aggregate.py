"""An opened aggregate: its user records by column, and the limits within which it is opened."""

from __future__ import annotations

from itertools import count, repeat
from typing import TYPE_CHECKING, NamedTuple

from shardway.core.hashkeys import HASH_KEY_MAX, hash_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from shardway.model import Tags


class AggregateLimits(NamedTuple):
    """The limits of an aggregate that is opened. One that holds more is handed on as a plain record."""

    records_max: int = 200_000
    """The most user records. The default is more than fit into 1 MiB, as the smallest takes six bytes."""
    table_entries_max: int = 400_000
    """The most partition keys and explicit hash keys in the tables, together: one of each for every user record."""
    bytes_max: int = 10 * 1024 * 1024
    """The most bytes of the whole aggregate. Kinesis takes records of up to 10 MiB."""
    key_bytes_max: int = 1024
    """The most bytes of one partition key: Kinesis takes 256 characters, of up to four bytes each. All user records may
    name the same key: without this limit a record of 10 MiB could become a terabyte of rows.
    """
    odd_fields_max: int = 1024
    """The most fields of the whole aggregate that no producer writes: unknown ones, and those that a user record or a
    tag repeats. Each of them costs the reader as much time as a user record does, and takes two bytes: without this
    limit an aggregate of 10 MiB could take 6 s.
    """
    record_tags_max: int = 64
    """The most tags of one user record."""
    tag_bytes_min: int = 32
    """The aggregate has one tag for this many of its bytes at most, beside `odd_fields_max`. A tag costs the reader
    several times what a user record costs, and takes four bytes at least. The context of a trace takes 70.
    """


DEFAULT_LIMITS = AggregateLimits()


class UserRecord(NamedTuple):
    """One record out of an aggregate."""

    partition_key: str
    explicit_hash_key: int | None
    """The explicit hash key; None where the producer gave none."""
    data: bytes
    sub_sequence_number: int
    """The 0-based index in the aggregate."""


class Aggregate:
    """The user records of one aggregate, by column. Iterating it makes a :class:`UserRecord` of each."""

    __slots__ = ("_explicit", "_key_indexes", "_key_table", "_tags", "datas")

    def __init__(
        self,
        key_table: list[str],
        key_indexes: list[int],
        explicit: dict[int, int],
        datas: list[bytes],
        tags: dict[int, Tags] | None = None,
    ) -> None:
        self._key_table = key_table
        self._key_indexes = key_indexes
        self._explicit = explicit  # The explicit hash keys, by sub-sequence number.
        self._tags = tags  # The tags, by sub-sequence number.
        self.datas = datas
        """The payloads, by sub-sequence number."""

    def __len__(self) -> int:
        return len(self.datas)

    def __iter__(self) -> Iterator[UserRecord]:
        return map(UserRecord, self.partition_keys(), self.explicit_hash_keys(), self.datas, count())

    def partition_keys(self) -> Iterator[str]:
        """Iterate over the partition keys, by sub-sequence number."""
        return map(self._key_table.__getitem__, self._key_indexes)

    def explicit_hash_keys(self) -> Iterator[int | None]:
        """Iterate over the explicit hash keys, by sub-sequence number; None where the producer gave none."""
        if not self._explicit:
            return repeat(None, len(self.datas))
        return map(self._explicit.get, range(len(self.datas)))

    def explicit_hash_key_texts(self) -> Iterator[str | None]:
        """See `explicit_hash_keys`: this has decimal text, as columns of Arrow and Spark hold no 128-bit integers."""
        if not self._explicit:
            return repeat(None, len(self.datas))
        return (None if key is None else str(key) for key in self.explicit_hash_keys())

    def tags(self) -> Iterator[Tags]:
        """Iterate over the tags, by sub-sequence number. The KPL writes none."""
        if not self._tags:
            return repeat((), len(self.datas))
        tags = self._tags
        return (tags.get(number, ()) for number in range(len(self.datas)))

    def outside(self, first_hash_key: int, last_hash_key: int) -> list[int]:
        """Return sub-sequence numbers of the user records whose hash key is outside a shard's range, bounds inclusive.

        A user record's hash key is its explicit one, else the MD5 of its partition key. The KCL drops the
        whole aggregate if there is a single one: a producer with an old shard map wrote it to this shard,
        and, if it is the KPL, has sent it again to the right one.
        """
        if first_hash_key <= 0 and last_hash_key >= HASH_KEY_MAX:
            return []
        table = self._key_table
        outer = {
            index for index in set(self._key_indexes) if not first_hash_key <= hash_key(table[index]) <= last_hash_key
        }
        if not outer and not self._explicit:
            return []
        explicit = self._explicit.get
        return [
            number
            for number, index in enumerate(self._key_indexes)
            if (index in outer if (own := explicit(number)) is None else not first_hash_key <= own <= last_hash_key)
        ]
