"""Records of a stream in AWS Lambda: an event is read, its aggregates are opened, and the part of it that failed is
reported.

::

    from shardway.aws_lambda import handle_records


    def handler(event, context):
        return handle_records(event, bill)  # bill(record) raises where it fails

Lambda repeats a batch whose function raised. Where the event source mapping has ``ReportBatchItemFailures``,
``report_failures=True`` has it repeat only from the first record that failed on.
"""

from __future__ import annotations

import datetime as dt
import inspect
import logging
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from shardway.core.aggregation.reader import open_aggregate
from shardway.core.ledger.ledger_events import raised_at
from shardway.core.options.hints import shown
from shardway.model import Record
from shardway.shown import one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

__all__ = ["handle_records", "records_of", "retry_from"]

log = logging.getLogger("shardway.aws_lambda")

SOURCE = "aws:kinesis"
TIME_MAX_S = 253_402_300_799.0
"""The last second of the year 9999: later ones are no times of Python."""
SHOWN_CHARACTERS_MAX = 60
"""The most characters that an error shows of what an event says of itself."""


class _Payload(msgspec.Struct, rename="camel"):
    """The part of a record that Kinesis has."""

    partition_key: str
    sequence_number: Annotated[str, Meta(pattern="^[0-9]{1,128}$")]
    data: bytes
    approximate_arrival_timestamp: Annotated[float, Meta(ge=0, le=TIME_MAX_S)]


class _LambdaRecord(msgspec.Struct):
    """One record of an event."""

    kinesis: _Payload
    event_id: str = msgspec.field(name="eventID")
    event_source_arn: str = msgspec.field(name="eventSourceARN")
    event_source: str = msgspec.field(name="eventSource")


class _Event(msgspec.Struct):
    """An event, as Lambda calls a function with it. A window's last event has no records."""

    records: list[_LambdaRecord] = msgspec.field(name="Records")


def records_of(event: Mapping[str, Any]) -> Iterator[Record]:
    """Return the records of an event in their order, with the user records of its aggregates in their places.

    A record that is no whole aggregate is handed on as it is, as consumers do (`shardway.aggregates.why_plain` has the
    reason). The order is that of the shard, from which all records of an event come. Raises ValueError, before the
    first record, for what is no event of Kinesis.
    """
    return _open(_read(event))


def handle_records(
    event: Mapping[str, Any],
    handler: Callable[[Record], object],
    *,
    report_failures: bool = False,
    dead_letter: Callable[[Record, Exception], object] | None = None,
) -> dict[str, Any]:
    """Call ``handler`` with each record of an event, in order, and return what the function returns to Lambda.

    What ``handler`` raises ends the event, and Lambda sends its records again: all of them, or, with
    ``report_failures``, from the failed one on. That is only for an event source mapping whose
    ``FunctionResponseTypes`` has ``ReportBatchItemFailures``: any other takes each answer for success, and what had
    failed would be lost. A failure of the event's first record is raised in any case, so that Lambda counts it as an
    error, and may halve the batch.

    Lambda knows Kinesis records: of an aggregate in which a user record failed, all user records come again.

    ``dead_letter`` is called with a record that failed and its exception, and keeps both somewhere; the event then goes
    on behind the record. If it raises, the record has failed.

    Raises what ``handler`` or ``dead_letter`` raise; TypeError for a handler that is async; ValueError as `records_of`.
    """
    read = _read(event)
    first = int(read[0].kinesis.sequence_number) if read else None
    for record in _open(read):
        if (error := _failure(record, handler, dead_letter)) is None:
            continue
        if not report_failures or record.sequence_number == first:
            raise error
        log.warning(
            "record %s of %s failed (%s, at %s): Lambda sends it and those behind it again",
            record.sequence_number,
            record.shard_id,
            type(error).__name__,
            raised_at(error),
        )
        return retry_from(record)
    return {"batchItemFailures": []}


def retry_from(record: Record) -> dict[str, Any]:
    """Return the answer that has Lambda send an event's records again, from this one on: for functions that handle an
    event's records together. The event source mapping needs ``ReportBatchItemFailures``.
    """
    return {"batchItemFailures": [{"itemIdentifier": str(record.sequence_number)}]}


def _failure(
    record: Record,
    handler: Callable[[Record], object],
    dead_letter: Callable[[Record, Exception], object] | None,
) -> Exception | None:
    """Return why a record failed; None where it was handled, or is kept as a dead letter. Raises TypeError for what is
    async: no repetition helps.
    """
    try:
        returned = handler(record)
    except Exception as error:
        if dead_letter is None:
            return error
        try:
            kept = dead_letter(record, error)
        except Exception as second:
            return second
        _refuse_awaitable("dead_letter", kept)
        return None
    _refuse_awaitable("handler", returned)
    return None


def _refuse_awaitable(name: str, returned: object) -> None:
    if inspect.isawaitable(returned):
        if inspect.iscoroutine(returned):
            returned.close()
        raise TypeError(f"{name} is async, and nothing awaits it: give a plain function, which may call asyncio.run")


def _read(event: Mapping[str, Any]) -> list[_LambdaRecord]:
    """Read an event. Raises ValueError for what is none of Kinesis. No payload is in its text."""
    given = event.get("Records") if isinstance(event, dict) else None
    if not isinstance(given, list):
        hint = ", and is one of Firehose" if isinstance(event, dict) and "deliveryStreamArn" in event else ""
        raise ValueError(f"the event has no list Records, as events of Kinesis have{hint}")
    for one in given:
        source = one.get("eventSource") if isinstance(one, dict) else None
        if source != SOURCE:
            told = one_line(str(source))[:SHOWN_CHARACTERS_MAX] if isinstance(source, str) else shown(source)
            raise ValueError(f"the event's records come from {told}, not from Kinesis ({SOURCE})")
    try:
        return msgspec.convert(event, _Event).records
    except msgspec.ValidationError as fault:
        raise ValueError(f"the event is none of Kinesis: {fault}") from None


def _open(read: list[_LambdaRecord]) -> Iterator[Record]:
    for one in read:
        payload = one.kinesis
        plain = Record(
            stream=one.event_source_arn.rpartition(":stream/")[2].partition("/")[0],
            shard_id=one.event_id.partition(":")[0],
            partition_key=payload.partition_key,
            data=payload.data,
            sequence_number=int(payload.sequence_number),
            approximate_arrival_timestamp=dt.datetime.fromtimestamp(payload.approximate_arrival_timestamp, dt.UTC),
        )
        aggregate = open_aggregate(payload.data)
        if aggregate is None:
            yield plain
            continue
        for user, tags in zip(aggregate, aggregate.tags(), strict=True):
            yield msgspec.structs.replace(
                plain,
                partition_key=user.partition_key,
                data=user.data,
                sub_sequence_number=user.sub_sequence_number,
                explicit_hash_key=user.explicit_hash_key,
                aggregated=True,
                tags=tags,
            )
