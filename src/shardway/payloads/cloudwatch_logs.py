"""Read what a subscription filter of CloudWatch Logs puts into a stream: log events as JSON in gzip."""

from __future__ import annotations

import datetime as dt
from typing import Annotated

import msgspec
from msgspec import Meta

from shardway.payloads.json_text import value_as
from shardway.payloads.opening import OPENED_BYTES_MAX, unpacked

WHAT = "record of CloudWatch Logs"
CONTROL = "CONTROL_MESSAGE"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MILLIS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999: no date of Python's lies behind it."""


class LogEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a log."""

    id: str
    """The event's id. It is the same when the event comes again."""
    timestamp_ms: Annotated[int, Meta(ge=0, le=_MILLIS_MAX)] = msgspec.field(name="timestamp")
    """The event's time, in milliseconds since 1970, as the writer of the log gave it."""
    message: str
    extracted_fields: dict[str, str | None] | None = msgspec.field(name="extractedFields", default=None)
    """The fields that the filter's pattern takes out of the line, where it names any."""

    @property
    def timestamp(self) -> dt.datetime:
        """The event's time, in UTC."""
        return _EPOCH + dt.timedelta(milliseconds=self.timestamp_ms)


class LogRecord(msgspec.Struct, frozen=True, kw_only=True):
    """What one record of a subscription holds: events of one log stream, in their order."""

    message_type: str = msgspec.field(name="messageType")
    """``DATA_MESSAGE``, or ``CONTROL_MESSAGE`` for the test of a destination that CloudWatch makes."""
    owner: str
    """The account of the log."""
    log_group: str = msgspec.field(name="logGroup")
    log_stream: str = msgspec.field(name="logStream")
    subscription_filters: list[str] = msgspec.field(name="subscriptionFilters", default_factory=list)
    log_events: list[LogEvent] = msgspec.field(name="logEvents")

    @property
    def is_control(self) -> bool:
        """True for a control message: its events are CloudWatch's own, and no lines of a log."""
        return self.message_type == CONTROL


_DECODER = msgspec.json.Decoder(LogRecord)


def log_record(data: bytes, *, opened_bytes_max: int = OPENED_BYTES_MAX) -> LogRecord:
    """Return the events of a record. Raises PayloadError. The JSON may stand without gzip, too: a Lambda function or
    Firehose may have opened it.
    """
    return value_as(_DECODER, unpacked(data, "auto", opened_bytes_max=opened_bytes_max), WHAT)
