"""Find where a read begins: at which record of a shard, by the type of an iterator."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from shardway.local.model.errors import ModelError, invalid
from shardway.local.model.sequence_numbers import Parts, parse, shard_name
from shardway.local.model.times import epoch_ms
from shardway.local.model.tokens import AT_ORDINAL, EXPIRED_NUMBER

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.shard import Shard
    from shardway.local.model.stream import Stream


_BY_NUMBER = ("AT_SEQUENCE_NUMBER", "AFTER_SEQUENCE_NUMBER")


class Start(NamedTuple):
    """The starting position that a caller asks for."""

    kind: str
    """One of the API's values of ShardIteratorType."""
    number: str | None
    timestamp: float | None
    operation: str
    """The operation's name, for messages."""


class Place(NamedTuple):
    """The place of a starting position: see ``IteratorState.kind``, ``value`` and ``reached_ms``."""

    kind: int
    value: int
    reached_ms: int = 0


def place_of(model: KinesisModel, stream: Stream, shard: Shard, start: Start) -> Place:
    """Find the start in the shard. Raises InvalidArgumentException for one that contradicts itself or the shard."""
    if start.kind != "AT_TIMESTAMP" and (start.number is not None) != (start.kind in _BY_NUMBER):
        raise _contradiction(start)
    now_ms = model.now_ms()
    log = shard.log
    horizon_ms = stream.horizon_ms(now_ms)
    log.trim(horizon_ms)
    if start.kind == "TRIM_HORIZON":
        return Place(AT_ORDINAL, log.first)
    if start.kind == "LATEST":
        return Place(AT_ORDINAL, log.end, now_ms)
    if start.kind == "AT_TIMESTAMP":
        moment_ms = _timestamp_ms(model, start, now_ms)
        return Place(AT_ORDINAL, log.ordinal_at_time(moment_ms), max(0, moment_ms))
    assert start.number is not None, "checked above"
    parts = _parts_of(model, stream, shard, start, start.number)
    return _at_number(shard, parts, horizon_ms, after=start.kind == "AFTER_SEQUENCE_NUMBER")


def _contradiction(start: Start) -> ModelError:
    with_number = "no" if start.number is None else "also a"
    return invalid(
        "Must either specify (1) AT_SEQUENCE_NUMBER or AFTER_SEQUENCE_NUMBER and StartingSequenceNumber or "
        "(2) TRIM_HORIZON or LATEST and no StartingSequenceNumber. "
        f"Request specified {start.kind} and {with_number} StartingSequenceNumber."
    )


def _timestamp_ms(model: KinesisModel, start: Start, now_ms: int) -> int:
    if start.timestamp is None:
        raise invalid(
            "Must specify timestampInMillis parameter for iterator of type AT_TIMESTAMP. "
            "Current request has no timestamp parameter."
        )
    if start.timestamp > model.clock():
        asked = f"{start.timestamp * 1000:.4f}".rstrip("0").rstrip(".")
        raise invalid(
            "The timestampInMillis parameter cannot be greater than the currentTimestampInMillis. "
            f"timestampInMillis: {asked}, currentTimestampInMillis: {now_ms}"
        )
    return epoch_ms(start.timestamp)


def _parts_of(model: KinesisModel, stream: Stream, shard: Shard, start: Start, number: str) -> Parts:
    """Return the parts of a sequence number. Raises ModelError where the number is not one of this shard's."""
    parts = parse(int(number))
    said = (
        f"StartingSequenceNumber {number} used in {start.operation} on shard {shard.name} "
        f"in stream {stream.name} under account {model.account_id} is invalid"
    )
    if parts is None:
        raise invalid(f"{said}.")
    if parts.shard_index != shard.index:
        raise invalid(
            f"Invalid StartingSequenceNumber. It encodes {shard_name(parts.shard_index)}, "
            f"while it was used in a call to a shard with {shard.name}"
        )
    if parts.version == 0:
        raise ModelError("InternalFailure", status=500)
    if parts.version != 2 or parts.shard_created_s != shard.created_s:
        raise invalid(f"{said} because it did not come from this stream.")
    return parts


def _at_number(shard: Shard, parts: Parts, horizon_ms: int, *, after: bool) -> Place:
    """Return the place at or after a sequence number.

    A number whose record is trimmed, or that no record carries and that speaks of a time before the horizon, gives a
    place where nothing is ever found: the service answers with empty pages, far behind, and no error.
    """
    log = shard.log
    ordinal = log.ordinal_at_counter(parts.counter)
    if ordinal < log.end:
        counter, arrival_ms = log.stamp_of(ordinal)
        if counter == parts.counter:
            second = shard.second_of(arrival_ms)
            passed = second < parts.arrived_s or (after and second == parts.arrived_s)
            return Place(AT_ORDINAL, ordinal + passed, arrival_ms)
    if parts.arrived_s * 1000 < horizon_ms:
        return Place(EXPIRED_NUMBER, parts.arrived_s * 1000)
    return Place(AT_ORDINAL, ordinal, parts.arrived_s * 1000)
