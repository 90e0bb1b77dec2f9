"""GetShardIterator and GetRecords."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from shardway.local.model import tokens
from shardway.local.model.checking import check
from shardway.local.model.errors import ModelError, dry_run, invalid, shard_absent, shard_not_found
from shardway.local.model.limits import shard_throttled
from shardway.local.model.read_places import Start, place_of
from shardway.local.model.requests import ITERATOR_TYPE
from shardway.local.model.sequence_numbers import shard_index_of, shard_name
from shardway.local.model.times import utc_text
from shardway.local.model.tokens import IteratorState

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.shard import Shard
    from shardway.local.model.stream import Stream


RECORDS_MAX = 10_000
PAYLOAD_BYTES_MAX = 10 * 1024 * 1024


class _IteratorRequest(msgspec.Struct, rename="pascal", gc=False):
    shard_id: str
    shard_iterator_type: str
    starting_sequence_number: str | None = None
    timestamp: float | None = None
    stream_name: str | None = None
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)
    dry_run: bool | None = None


class _RecordsRequest(msgspec.Struct, rename="pascal", gc=False):
    shard_iterator: str
    limit: int | None = None
    stream_arn: str | None = msgspec.field(name="StreamARN", default=None)
    dry_run: bool | None = None


_decode_iterator = msgspec.json.Decoder(_IteratorRequest).decode
_decode_records = msgspec.json.Decoder(_RecordsRequest).decode


def get_shard_iterator(model: KinesisModel, body: bytes) -> bytes:
    """Answer GetShardIterator on a JSON body."""
    try:
        request = _decode_iterator(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        request = msgspec.convert(check("GetShardIterator", model.decode(body)), _IteratorRequest)
    stream = model.find_stream(request.stream_name, request.stream_arn)
    index = shard_index_of(request.shard_id)
    if stream is None or index is None or len(request.shard_id) > 128 or not _usual(request):
        check("GetShardIterator", model.decode(body))
    name = model.stream_named(request.stream_name, request.stream_arn)
    if index is None:
        raise shard_not_found(request.shard_id, name, model.account_id)
    now_ms = model.now_ms()
    shard = None if stream is None else stream.shard(index, now_ms)
    if stream is None or shard is None:
        raise shard_absent(shard_name(index), name, model.account_id)
    start = Start(request.shard_iterator_type, request.starting_sequence_number, request.timestamp, "GetShardIterator")
    place = place_of(model, stream, shard, start)
    limits = model.limits
    if limits.per_shard and not model.meters.take_if_allowed(
        ("iterators", stream.uid, index), limits.iterator_calls_per_s
    ):
        raise shard_throttled(shard.name, stream.name, model.account_id)
    if request.dry_run:
        raise dry_run()
    text = tokens.write_iterator(
        IteratorState(now_ms, stream.uid, place.value, model.serial(), index, place.kind, place.reached_ms), stream.name
    )
    return f'{{"ShardIterator":"{text}"}}'.encode()


def _usual(request: _IteratorRequest) -> bool:
    """Return True when no member breaks a constraint of the API's model; False: the full check has to look."""
    number = request.starting_sequence_number
    return (
        request.shard_iterator_type in (ITERATOR_TYPE.values or ())
        and (number is None or (number.isascii() and number.isdigit() and len(number) <= 129))
        and (number is None or number == "0" or number[0] != "0")
        and _plain_name(request.shard_id)
    )


def _plain_name(name: str) -> bool:
    return name.replace("-", "").replace("_", "").replace(".", "").isalnum() and name.isascii()


def get_records(model: KinesisModel, body: bytes) -> bytes:
    """Answer GetRecords on a JSON body."""
    try:
        request = _decode_records(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        request = msgspec.convert(check("GetRecords", model.decode(body)), _RecordsRequest)
    limit = RECORDS_MAX if request.limit is None else request.limit
    if not (0 < limit <= RECORDS_MAX and 0 < len(request.shard_iterator) <= 512):
        check("GetRecords", model.decode(body))
    read = tokens.read_iterator(request.shard_iterator)
    if read is None:
        raise invalid("Invalid ShardIterator.")
    state, name = read
    now_ms = model.now_ms()
    if now_ms - state.created_ms > tokens.ITERATOR_LIFE_MS:
        raise _expired_error(state.created_ms, now_ms)
    stream = model.stream_of_uid(state.stream_uid)
    shard = None if stream is None else stream.shard(state.shard_index, now_ms)
    if stream is None or shard is None:
        raise shard_absent(shard_name(state.shard_index), name, model.account_id)
    if request.stream_arn is not None and request.stream_arn != stream.arn:
        raise invalid(f"The ShardIterator was not made for stream {request.stream_arn}.")
    if model.limits.per_shard:
        _throttle(model, stream, shard)
    if request.dry_run:
        raise dry_run()
    return _page(model, stream, shard, state, limit, now_ms)


def _throttle(model: KinesisModel, stream: Stream, shard: Shard) -> None:
    now = model.clock()
    if not (
        model.meters.take_if_allowed(("gets", stream.uid, shard.index), model.limits.get_calls_per_s)
        and _volume(model, stream, shard).allows(0, now)
    ):
        raise shard_throttled(shard.name, stream.name, model.account_id)


def _volume(model: KinesisModel, stream: Stream, shard: Shard) -> Any:
    return model.meters.meter(("get bytes", stream.uid, shard.index), model.limits.get_bytes_per_s)


def _expired_error(created_ms: int, now_ms: int) -> ModelError:
    return ModelError(
        "ExpiredIteratorException",
        f"Iterator expired. The iterator was created at time {utc_text(created_ms)} "
        f"while right now it is {utc_text(now_ms)} which is further in the future than the tolerated delay "
        f"of {tokens.ITERATOR_LIFE_MS} milliseconds.",
    )


def _page(model: KinesisModel, stream: Stream, shard: Shard, state: IteratorState, limit: int, now_ms: int) -> bytes:
    log = shard.log
    log.trim(stream.horizon_ms(now_ms))
    if state.kind == tokens.EXPIRED_NUMBER:
        following = state._replace(created_ms=now_ms, serial=model.serial())
        behind_ms = now_ms - state.value
        return _answer([], behind_ms, tokens.write_iterator(following, stream.name))
    begin = max(state.value, log.first)
    until_ms = _crossed_until_ms(model, stream, shard, state, now_ms)
    if begin == log.end and shard.closed_ms is not None and until_ms == _tip_ms(shard, now_ms):
        # The end of a closed shard is a page of its own, after the one with its last record.
        children = [stream.shards[index].describe_child() for index in shard.children]
        return b'{"Records":[],"MillisBehindLatest":0,"ChildShards":%b}' % msgspec.json.encode(children)
    stop = log.end if until_ms >= log.last_arrival_ms else log.ordinal_at_time(until_ms + 1)
    page = log.read(begin, min(limit, stop - begin), PAYLOAD_BYTES_MAX) if begin < stop else log.nothing(begin)
    model.moved = page.records
    reached_ms = until_ms if page.next_ordinal >= stop else page.last_arrival_ms
    at_tip = page.next_ordinal == log.end and reached_ms >= _tip_ms(shard, now_ms)
    behind_ms = 0 if at_tip else max(1, now_ms - reached_ms)
    following = IteratorState(
        now_ms, stream.uid, page.next_ordinal, model.serial(), shard.index, tokens.AT_ORDINAL, reached_ms
    )
    if model.limits.per_shard:
        _volume(model, stream, shard).take(page.payload_bytes, model.clock(), debt_waits=True)
    return _answer(page.texts, behind_ms, tokens.write_iterator(following, stream.name))


def _tip_ms(shard: Shard, now_ms: int) -> int:
    """Return the time at which the log ends; the clock may have gone back since the last record came."""
    return max(now_ms if shard.closed_ms is None else shard.closed_ms, shard.log.last_arrival_ms)


def _crossed_until_ms(model: KinesisModel, stream: Stream, shard: Shard, state: IteratorState, now_ms: int) -> int:
    """Return the time up to which a page crosses the log from where the iterator stands: to the tip, or over a limited
    span.
    """
    begin_ms = max(state.reached_ms, stream.horizon_ms(now_ms), shard.created_ms)
    return min(begin_ms + round(model.limits.page_span_s * 1000), _tip_ms(shard, now_ms))


def _answer(texts: list[bytes], behind_ms: int, iterator: str) -> bytes:
    tail = f'],"NextShardIterator":"{iterator}","MillisBehindLatest":{behind_ms}}}'.encode()
    if not texts:
        return b'{"Records":[' + tail
    texts[-1] = texts[-1][:-1]
    return b"".join([b'{"Records":[', *texts, tail])
