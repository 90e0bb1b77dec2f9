"""Answer PutRecords and PutRecord.

When a record is put, it becomes the JSON text that GetRecords will return; nothing else of the record is kept. The
usual request is decoded and checked by a few operations on whole lists; an unusual one goes through the full check,
which knows the service's words for what is wrong.
"""

from __future__ import annotations

import json
import re
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.local.model.checking import check
from shardway.local.model.errors import ModelError, dry_run, invalid, stream_not_found, validation
from shardway.local.model.limits import throttle_text
from shardway.local.model.sequence_numbers import COUNTER_STEP, compose, parse
from shardway.model import HASH_KEY_MAX

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.shard import Shard
    from shardway.local.model.stream import Stream

REQUEST_BYTES_MAX = 10 * 1024 * 1024
"""The bytes of data and partition keys of one PutRecords."""
RECORDS_MAX = 500
KEY_CHARS_MAX = 256

_HASH_KEY = re.compile(r"0|[1-9][0-9]{0,38}")
_CANONICAL_ENDS = frozenset([f"{char}==" for char in "AQgw"] + [f"{char}=" for char in "AEIMQUYcgkosw048"])
"""The ends that padded base64 may have: the bits that pad are zero."""


class _SizedEntry(msgspec.Struct, gc=False):
    data: bytes = msgspec.field(name="Data")


class _SizedRequest(msgspec.Struct, gc=False):
    records: list[_SizedEntry] = msgspec.field(name="Records")


class _Entry(msgspec.Struct, gc=False):
    """A record as it came: its data stays base64 text."""

    data: str = msgspec.field(name="Data")
    partition_key: str | None = msgspec.field(name="PartitionKey", default=None)
    explicit_hash_key: str | None = msgspec.field(name="ExplicitHashKey", default=None)


class _Request(msgspec.Struct, gc=False):
    records: list[_Entry] = msgspec.field(name="Records")
    stream_name: str | None = msgspec.field(name="StreamName", default=None)
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)
    dry_run: bool | None = msgspec.field(name="DryRun", default=None)


class _RecordRequest(_Entry, gc=False):
    stream_name: str | None = msgspec.field(name="StreamName", default=None)
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)
    ordering: str | None = msgspec.field(name="SequenceNumberForOrdering", default=None)
    dry_run: bool | None = msgspec.field(name="DryRun", default=None)


_decode = msgspec.json.Decoder(_Request).decode
_decode_sizes = msgspec.json.Decoder(_SizedRequest).decode
_decode_record = msgspec.json.Decoder(_RecordRequest).decode
_decode_size = msgspec.json.Decoder(_SizedEntry).decode


class _Columns:
    """The records of a request, column by column."""

    __slots__ = ("_joined_keys", "datas", "full", "hash_keys", "keys", "payloads")

    def __init__(self, entries: Sequence[_Entry], data_sizes: Sequence[int]) -> None:
        self.datas = [entry.data for entry in entries]
        self.keys = [entry.partition_key for entry in entries]
        hash_keys = [entry.explicit_hash_key for entry in entries]
        self.hash_keys = None if hash_keys.count(None) == len(hash_keys) else hash_keys
        self.full = None not in self.keys
        """True where all records have a partition key."""
        self._joined_keys = "".join(filter(None, self.keys))
        self.payloads = list(map(int.__add__, data_sizes, self._key_sizes()))

    def _key_sizes(self) -> list[int]:
        if self.full and self._joined_keys.isascii():
            return list(map(len, self.keys))  # type: ignore[arg-type]
        return [0 if key is None else len(key.encode()) for key in self.keys]

    def escaped_keys(self) -> list[str]:
        """Return the keys as they stand inside JSON quotes, in ASCII: a text is then as long in bytes as in
        characters.
        """
        keys: list[Any] = self.keys
        together = self._joined_keys
        if together.isascii() and together.isprintable() and '"' not in together and "\\" not in together:
            return keys
        return [json.dumps(key or "")[1:-1] for key in keys]

    def usual(self, data_bytes_max: int, data_sizes: Sequence[int]) -> bool:
        """Return True when no record breaks a constraint of the API's model; False: the full check has to look."""
        if not self.full or max(data_sizes) > data_bytes_max:
            return False
        lengths = list(map(len, self.keys))  # type: ignore[arg-type]
        if min(lengths) < 1 or max(lengths) > KEY_CHARS_MAX:
            return False
        ends = {data[-2:] if data[-2:-1] != "=" else data[-3:] for data in self.datas if data[-1:] == "="}
        if not ends <= _CANONICAL_ENDS:
            return False
        return self.hash_keys is None or all(key is None or _HASH_KEY.fullmatch(key) for key in self.hash_keys)


def put_records(model: KinesisModel, body: bytes) -> bytes:
    """Answer PutRecords on a JSON body."""
    try:
        request = _decode(body)
        sizes = [len(entry.data) for entry in _decode_sizes(body).records]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        request, sizes = _check_fully(model, "PutRecords", body, _Request), None
    stream = model.find_stream(request.stream_name, request.stream_arn)
    if sizes is None:
        sizes = [_size(entry.data) for entry in request.records]
        columns = _Columns(request.records, sizes)
    else:
        columns = _Columns(request.records, sizes)
        if stream is None or not 0 < len(sizes) <= RECORDS_MAX or not columns.usual(stream.record_bytes_max, sizes):
            _check_fully(model, "PutRecords", body, _Request)
    stream = _admit(model, stream, request, columns)
    total = sum(columns.payloads)
    if total > REQUEST_BYTES_MAX:
        raise invalid("Records size exceeds 10 MB limit")
    if request.dry_run:
        raise dry_run()
    answers, failed = _store(model, stream, columns)
    model.moved = len(answers) - failed
    encryption = f',"EncryptionType":"{stream.encryption}"' if stream.key_id is not None else ""
    return f'{{"FailedRecordCount":{failed},"Records":[{",".join(answers)}]{encryption}}}'.encode()


def put_record(model: KinesisModel, body: bytes) -> bytes:
    """Answer PutRecord on a JSON body."""
    try:
        request = _decode_record(body)
        sizes = [len(_decode_size(body).data)]
    except (msgspec.MsgspecError, UnicodeDecodeError):
        request = _check_fully(model, "PutRecord", body, _RecordRequest)
        sizes = [_size(request.data)]
    stream = model.find_stream(request.stream_name, request.stream_arn)
    columns = _Columns([request], sizes)
    if stream is None or request.ordering is not None or not columns.usual(stream.record_bytes_max, sizes):
        _check_fully(model, "PutRecord", body, _RecordRequest)
    stream = _admit(model, stream, request, columns)
    if request.ordering is not None:
        _check_ordering(model, stream, request.ordering)
    if request.dry_run:
        raise dry_run()
    answers, failed = _store(model, stream, columns)
    if failed:
        refusal = json.loads(answers[0])
        raise ModelError(refusal["ErrorCode"], refusal["ErrorMessage"])
    model.moved = 1
    if stream.key_id is None:
        return answers[0].encode()
    return f'{answers[0][:-1]},"EncryptionType":"{stream.encryption}"}}'.encode()


def _size(data: str) -> int:
    return len(data) // 4 * 3 - data[-2:].count("=")


def _check_fully(model: KinesisModel, operation: str, body: bytes, shape: Any) -> Any:
    """Return the request after the full check, which raises ModelError if anything breaks the API's model."""
    request = model.decode(body)
    names = request if isinstance(request, dict) else {}
    name, arn = names.get("StreamName"), names.get("StreamARN")
    known = model.find_stream(name if isinstance(name, str) else None, arn if isinstance(arn, str) else None)
    if known is None:
        typed = check(operation, request)
    else:
        typed = check(
            operation,
            request,
            data_bytes_max=known.record_bytes_max,
            keys_optional=known.strategy == "AUTO",
        )
    return msgspec.convert(typed, shape)


def _admit(model: KinesisModel, stream: Stream | None, request: _Request | _RecordRequest, columns: _Columns) -> Stream:
    """Return the stream, if it is there and may take these records. Raises ModelError."""
    if stream is None or not stream.writable:
        raise stream_not_found(model.stream_named(request.stream_name, request.stream_arn), model.account_id)
    if columns.hash_keys is not None:
        for key in columns.hash_keys:
            if key is not None and int(key) > HASH_KEY_MAX:
                raise invalid(
                    "Invalid ExplicitHashKey. ExplicitHashKey must be in the range: [0, 2^128-1]. "
                    f"Specified value was {key}"
                )
    if max(columns.payloads) > stream.record_bytes_max:
        place = next(i for i, size in enumerate(columns.payloads, 1) if size > stream.record_bytes_max)
        path = "data" if isinstance(request, _RecordRequest) else f"records.{place}.member.data"
        raise validation(
            f"1 validation error detected: Value at '{path}' failed to satisfy constraint: "
            f"Member must have length less than or equal to {stream.record_bytes_max}"
        )
    return stream


def _check_ordering(model: KinesisModel, stream: Stream, ordering: str) -> None:
    parts = parse(int(ordering))
    # A shard that was just made has a second of creation a little ahead of the clock.
    newest_s = max(model.now_ms() // 1000, *(shard.created_s for shard in stream.open_shards))
    if parts is None or parts.arrived_s > newest_s or parts.version == 0:
        raise invalid(
            f"ExclusiveMinimumSequenceNumber {ordering} used in PutRecord on stream {stream.name} "
            f"under account {model.account_id} is invalid."
        )


def _routes(model: KinesisModel, stream: Stream, columns: _Columns) -> list[Shard]:
    """Return the shard of each record."""
    if stream.strategy == "AUTO":
        return model.rng.choices(stream.open_shards, k=len(columns.keys))
    keys: list[Any] = columns.keys
    if columns.hash_keys is None:
        return stream.route_keys(keys)
    return [
        stream.route_keys([key])[0] if hash_key is None else stream.route_hash(int(hash_key))
        for key, hash_key in zip(keys, columns.hash_keys, strict=True)
    ]


def _store(model: KinesisModel, stream: Stream, columns: _Columns) -> tuple[list[str], int]:
    """Append the records. Return the entries of the answer, as JSON, and how many of them failed."""
    answers = [""] * len(columns.datas)
    groups: dict[Shard, list[int]] = {}
    for place, shard in enumerate(_routes(model, stream, columns)):
        if shard in groups:
            groups[shard].append(place)
        else:
            groups[shard] = [place]
    failed = 0
    if model.limits.per_shard:
        for shard, places in groups.items():
            kept = _throttle(model, stream, shard, places, columns.payloads, answers)
            failed += len(places) - len(kept)
            groups[shard] = kept
    arrival_ms = model.now_ms()
    texts = _Texts(stream, columns, arrival_ms)
    counter = stream.counter
    parts = []
    for shard, places in groups.items():
        if places:
            lines = texts.lines(shard, places, counter + 1, answers)
            lengths = array("I", map(len, lines)).tobytes()
            payloads = array("I", map(columns.payloads.__getitem__, places)).tobytes()
            parts.append((shard.index, counter + 1, "".join(lines).encode(), lengths, payloads))
            counter += len(places)
    if parts:
        model.commit("put", stream.uid, arrival_ms, counter, parts)
    return answers, failed


def _throttle(
    model: KinesisModel,
    stream: Stream,
    shard: Shard,
    places: list[int],
    payloads: list[int],
    answers: list[str],
) -> list[int]:
    """Return the records that the shard's write limits let in; the errors of the others go into ``answers``."""
    limits, now = model.limits, model.clock()
    records = model.meters.meter(("put records", stream.uid, shard.index), limits.put_records_per_s)
    volume = model.meters.meter(("put bytes", stream.uid, shard.index), limits.put_bytes_per_s)
    refusal = json.dumps(
        {
            "ErrorCode": "ProvisionedThroughputExceededException",
            "ErrorMessage": throttle_text(shard.name, stream.name, model.account_id),
        }
    )
    kept = []
    for place in places:
        if records.allows(1, now) and volume.allows(payloads[place], now):
            records.take(1, now)
            volume.take(payloads[place], now)
            kept.append(place)
        else:
            answers[place] = refusal
    return kept


class _Texts:
    """Writes records and answers as JSON."""

    def __init__(self, stream: Stream, columns: _Columns, arrival_ms: int) -> None:
        self._arrival_ms = arrival_ms
        self._datas = columns.datas
        self._stamp = f'","ApproximateArrivalTimestamp":{arrival_ms // 1000}.{arrival_ms % 1000:03d},"Data":"'
        self._end = f'","EncryptionType":"{stream.encryption}"}},' if stream.key_id is not None else '"},'
        self._middle = '","PartitionKey":"' if columns.full else ""
        self._keys = columns.escaped_keys()
        if not columns.full:
            self._keys = [f'","PartitionKey":"{key}' if key else "" for key in self._keys]

    def lines(self, shard: Shard, places: list[int], first_counter: int, answers: list[str]) -> list[str]:
        """Return the texts of the records at ``places``, with a comma each; their answers go to ``answers``."""
        first = compose(shard.base, first_counter, shard.second_of(self._arrival_ms))
        numbers = list(map(str, range(first, first + len(places) * COUNTER_STEP, COUNTER_STEP)))
        answer_end = f'","ShardId":"{shard.name}"}}'
        for place, number in zip(places, numbers, strict=True):
            answers[place] = f'{{"SequenceNumber":"{number}{answer_end}'
        stamp, middle, end, datas, keys = self._stamp, self._middle, self._end, self._datas, self._keys
        return [
            f'{{"SequenceNumber":"{number}{stamp}{datas[place]}{middle}{keys[place]}{end}'
            for place, number in zip(places, numbers, strict=True)
        ]
