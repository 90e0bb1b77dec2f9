"""The check of records: against the rules of PutRecords, and the producer's bounds."""

from __future__ import annotations

from collections import deque
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.producer.chunk import CHUNK_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from shardway.core.producer.routes import KEY_BYTES_MAX, checked_explicit, held_by_key, keys_bytes, plain_key
from shardway.errors import InvalidRecordError
from shardway.model import OutRecord

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.core.producer.lanes import Lanes
    from shardway.ports import Tracer


PORTION_RECORDS_MAX = 4_000
PORTION_BYTES = 4 * 1024 * 1024
"""``put_many`` takes records in portions of at most this many records and bytes: each waits for room of its own. They
are small enough for the processor's cache, as every record is looked at several times; but large enough to be divided
by shard into long runs.
"""

_DATA = itemgetter(1)


class Portion(NamedTuple):
    """Checked records, as columns, and the bytes that they take of the bound."""

    keys: Sequence[str]
    datas: Sequence[bytes]
    hash_keys: dict[int, int] | None
    """The explicit hash keys by place, if there are any."""
    records_bytes: int
    """The bytes that the records take of the bound."""
    held_bytes: int
    """The bytes that the records take with the chunk that they become, but never more than the bound."""


class CheckedRecord(NamedTuple):
    """A checked record, which no caller changes any more."""

    partition_key: str
    data: bytes
    explicit_hash_key: int | None

    @property
    def held_bytes(self) -> int:
        """The bytes that the record takes of the bound."""
        return keys_bytes((self.partition_key,)) + len(self.data) + RECORD_OVERHEAD_BYTES


class RecordCheck:
    """Checks records against the rules of PutRecords and the producer's bounds."""

    def __init__(
        self, lanes: Lanes, *, record_bytes_max: int, buffer_bytes_max: int, tracer: Tracer | None = None
    ) -> None:
        self._lanes = lanes
        self._tracer = tracer
        self.record_bytes_max = record_bytes_max
        self.buffer_bytes_max = buffer_bytes_max

    def one(self, record: OutRecord) -> CheckedRecord:
        """Return the record, with a plain key, plain data and a plain hash key. Raises InvalidRecordError."""
        try:
            data, key, explicit = record.data, record.partition_key, record.explicit_hash_key
        except AttributeError:
            raise InvalidRecordError(f"an OutRecord is put, not {type(record).__name__}") from None
        key = plain_key(key)
        if explicit is not None:
            explicit = checked_explicit(explicit)
        data = plain_bytes(data)
        if self._tracer is not None:
            data = self._tracer.data_with_context(data)
        self._check_size(key, data)
        return CheckedRecord(key, data, explicit)

    def many(self, records: Sequence[Any]) -> list[Portion]:
        """Return records, or (partition key, data) pairs, in portions. Raises InvalidRecordError for any of them."""
        portions: list[Portion] = []
        count = -(-len(records) // PORTION_RECORDS_MAX) or 1
        step = -(-len(records) // count) or 1  # Portions are equal: a small last one would cost more a record.
        for start in range(0, len(records), step):
            some = records[start : start + step]
            try:
                portions += self._portions(some)
            except InvalidRecordError:
                self._raise_first(some, start)
                raise
        return portions

    def _raise_first(self, records: Sequence[Any], before: int) -> None:
        """Raise the InvalidRecordError of the first bad record, with its number."""
        for place, record in enumerate(records):
            try:
                self._portions([record])
            except InvalidRecordError as error:
                raise InvalidRecordError(f"record {before + place}: {error}") from None

    def _portions(self, records: Sequence[Any]) -> list[Portion]:
        hash_keys: dict[int, int] = {}
        unchecked, datas = self._as_columns(records, hash_keys)
        keys, key_bytes = self._lanes.routes.check(unchecked)
        data_bytes = sum(map(len, datas))
        if data_bytes + KEY_BYTES_MAX > self.record_bytes_max:  # Otherwise none of them is too large.
            deque(map(self._check_size, keys, datas), maxlen=0)
        records_bytes = key_bytes + data_bytes + len(keys) * RECORD_OVERHEAD_BYTES
        # No portion may take more than the bound: it would wait for ever.
        room = min(PORTION_BYTES, self.buffer_bytes_max) - CHUNK_OVERHEAD_BYTES
        if records_bytes <= room or len(keys) == 1:
            return [self._portion(keys, datas, hash_keys or None, records_bytes)]
        each = max(map(len, datas)) + max(map(held_by_key, keys)) + RECORD_OVERHEAD_BYTES
        step = max(1, room // each)
        return [self._cut(keys, datas, hash_keys, start, start + step) for start in range(0, len(keys), step)]

    def _portion(
        self, keys: Sequence[str], datas: Sequence[bytes], hash_keys: dict[int, int] | None, records_bytes: int
    ) -> Portion:
        held_bytes = min(records_bytes + CHUNK_OVERHEAD_BYTES, self.buffer_bytes_max)
        return Portion(keys, datas, hash_keys, records_bytes, held_bytes)

    def _cut(
        self, keys: Sequence[str], datas: Sequence[bytes], hash_keys: dict[int, int], start: int, stop: int
    ) -> Portion:
        some_keys, some_datas = keys[start:stop], datas[start:stop]
        records_bytes = keys_bytes(some_keys) + sum(map(len, some_datas)) + len(some_keys) * RECORD_OVERHEAD_BYTES
        explicit = {place - start: hash_keys[place] for place in range(start, stop) if place in hash_keys}
        return self._portion(some_keys, some_datas, explicit or None, records_bytes)

    def portion_of(self, record: CheckedRecord) -> Portion:
        """Return one record as a portion."""
        key, data, explicit = record
        return self._portion([key], [data], None if explicit is None else {0: explicit}, record.held_bytes)

    def _as_columns(self, records: Sequence[Any], hash_keys: dict[int, int]) -> tuple[list[str], list[bytes]]:
        try:
            keys = [key for key, _ in records]
            datas = list(map(_DATA, records))
        except (TypeError, ValueError, LookupError):  # They are not all pairs.
            records = [self._as_record(record) for record in records]
            keys, datas = [record.partition_key for record in records], [record.data for record in records]
            hash_keys.update(
                (place, checked_explicit(record.explicit_hash_key))
                for place, record in enumerate(records)
                if record.explicit_hash_key is not None
            )
        if set(map(type, datas)) - {bytes}:
            datas = [plain_bytes(data) for data in datas]
        if self._tracer is not None:
            datas = [self._tracer.data_with_context(data) for data in datas]
        return keys, datas

    def _as_record(self, record: Any) -> OutRecord:
        if isinstance(record, tuple):
            if len(record) != 2:
                raise InvalidRecordError("put_many takes OutRecords, or pairs of partition key and data")
            return OutRecord(record[1], record[0])
        key, data, explicit = self.one(record)
        return OutRecord(data, key, explicit)

    def _check_size(self, key: str, data: bytes) -> None:
        size = len(data) + len(key.encode())
        if size > self.record_bytes_max:
            raise InvalidRecordError(
                f"a record of {size} bytes (data and partition key) is larger than record_bytes_max, "
                f"{self.record_bytes_max}"
            )


def plain_bytes(data: Any) -> bytes:
    """Return data as bytes that the caller cannot change any more. Raises InvalidRecordError."""
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise InvalidRecordError(f"a record's data is bytes, not {type(data).__name__}")
