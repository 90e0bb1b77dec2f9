"""One tree of errors; each class says what the caller should do.

::

    ShardwayError
    ├── OptionError                 fix the options; all faults are listed at once
    ├── CredentialsError            give credentials, or a profile or role that has them
    ├── ServiceError                an AWS service answered with an error
    │   ├── ThrottledError          wait and repeat; it was not done
    │   ├── UnavailableError        the service failed (5xx); repeat; for a write the outcome is unknown
    │   ├── ExpiredIteratorError    ask for a new shard iterator
    │   ├── NotFoundError           the stream, shard or consumer does not exist
    │   ├── AccessDeniedError       give the role the permission named in the message
    │   ├── InvalidArgumentError    the request is wrong; do not repeat it
    │   ├── InUseError              another program has it (a subscription, a name): wait, or leave it to that one
    │   └── ConditionFailedError    a conditional write was refused
    ├── TransportError              no whole answer came; repeat; for a write the outcome is unknown
    ├── StalledError                a read got no nearer to its end for too long; repeat it from its start
    ├── DataLossError               records were, or may have been, lost before they were read
    ├── InvalidRecordError          this record can never be put; nothing was taken of it
    ├── BufferFullError             wait until the producer has written some, or wait by option; nothing was taken
    ├── ProducerClosedError         the producer takes no more records; nothing was taken
    ├── PutError                    a record that was taken is not known to be written
    │   ├── RecordExpiredError      its time to live passed first: put it again if it still matters
    │   ├── RecordRefusedError      the service will not take it as it is, or not from these credentials
    │   └── RecordWithdrawnError    it was withdrawn, or the producer closed before it was written
    ├── FlushTimeoutError           the deadline passed; ``unwritten`` tells the records, which are still being put
    ├── ConsumerClosedError         the consumer is closed and delivers no more: leave the loop that asks for records
    ├── ShardReadError              a shard can no longer be read, ``__cause__`` says why; the consumer has let it go
    ├── PayloadError                a record's data is not what the reader takes: the message says what is wrong
    ├── RegistryError               a schema registry gives no schema now: try the record again, it is not at fault
    ├── UnreadableRecordError       the deserializer cannot read a record: mend it, or choose what becomes of those
    ├── ShardStoppedError           the policies stopped a shard: mend ``__cause__``, and start the consumer anew
    ├── StaleOwnerError             a later owner of the shard writes: end the transaction, write nothing
    ├── CheckpointError             a checkpoint can't be put there: settle what lies before it, or choose another
    └── AggregateError              an aggregate cannot be built from what was given

Messages name the stream, shard and position where there is one. No payload and no partition key is ever in a message.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class ShardwayError(Exception):
    """The base of all errors that Shardway raises on purpose."""

    retryable = False
    """True when the same call may succeed if it is repeated later."""


class OptionError(ShardwayError, ValueError):
    """The options are wrong. ``faults`` lists every fault found, so that one run shows them all."""

    def __init__(self, faults: list[str] | str) -> None:
        self.faults = [faults] if isinstance(faults, str) else list(faults)
        super().__init__("; ".join(self.faults))


class CredentialsError(ShardwayError):
    """No usable AWS credentials were found, or they could not be refreshed. ``retryable`` is True where such
    credentials had worked before, and may be renewed where they come from.
    """


class ServiceError(ShardwayError):
    """An AWS service answered with an error.

    ``code`` is AWS's error code without namespace (``ResourceNotFoundException``), ``status`` the HTTP status,
    ``operation`` the API call, ``request_id`` what AWS support asks for, ``where`` the region that was asked, and a
    table's name (a stream's is in the message).
    """

    where = ""

    def __init__(
        self, code: str, message: str, *, operation: str = "", status: int = 400, request_id: str | None = None
    ) -> None:
        self.code = code
        self.service_message = message
        self.operation = operation
        self.status = status
        self.request_id = request_id
        super().__init__(message)

    def __str__(self) -> str:
        head = f"{self.operation}: " if self.operation else ""
        found = (self.where, f"request {self.request_id}" if self.request_id else "")
        tail = ", ".join(one for one in found if one)
        return f"{head}{self.code}: {self.service_message}" + (f" ({tail})" if tail else "")


class ThrottledError(ServiceError):
    """The service refused for now (rate or provisioned throughput). The call was not done: wait, then repeat."""

    retryable = True


class UnavailableError(ServiceError):
    """The service failed (HTTP 5xx). Repeat; whether a write was done is unknown."""

    retryable = True


class ExpiredIteratorError(ServiceError):
    """A shard iterator is older than five minutes. Ask for a new one at the same position."""


class NotFoundError(ServiceError):
    """The stream, shard, consumer or table does not exist (or not in this region and account)."""


class AccessDeniedError(ServiceError):
    """The credentials are not allowed to do this, or are not valid at all. ``retryable`` is True where they have worked
    before, have expired or were withdrawn, and may be renewed where they come from.
    """


class InvalidArgumentError(ServiceError):
    """The request is wrong as it is. Repeating it does not help."""


class InUseError(ServiceError):
    """Another subscription or operation has the resource at this time (ResourceInUseException)."""


class ConditionFailedError(ServiceError):
    """A conditional write was refused because its condition did not hold."""


class TransportError(ShardwayError):
    """No whole answer arrived (connection refused, reset, timed out). Whether a write was done is unknown."""

    retryable = True
    sent = True
    """False when there was no connection to send anything on: then nothing was done."""


class StalledError(ShardwayError):
    """A read got no nearer to its end for too long. Nothing is lost by it: the same read can be repeated."""

    retryable = True


class DataLossError(ShardwayError):
    """Records were, or may have been, lost before they were read: trimmed, or their stream or shard is gone."""


class InvalidRecordError(ShardwayError, ValueError):
    """A record can never be put as it is (too large, a wrong type, a key too long). Nothing was taken."""


class BufferFullError(ShardwayError):
    """The producer's buffer has no room for the record, which was not taken. Wait, or put fewer."""

    retryable = True

    def __init__(self, message: str, *, bytes_wanted: int) -> None:
        self.bytes_wanted = bytes_wanted
        super().__init__(message)


class ProducerClosedError(ShardwayError):
    """The producer is closed, or closing, and takes no more records."""


class PutError(ShardwayError):
    """A user record that the producer had taken is not known to be written.

    ``may_be_written`` is False when it certainly is not in the stream. ``attempts`` counts the requests that
    carried it, ``shard_id`` is the shard it was meant for (None where that was not known), ``reason`` what the
    last attempt met (an AWS error code, or the class of the error: TransportError, TimeoutError).
    """

    def __init__(
        self, message: str, *, attempts: int, may_be_written: bool, shard_id: str | None = None, reason: str = ""
    ) -> None:
        self.attempts = attempts
        self.may_be_written = may_be_written
        self.shard_id = shard_id
        self.reason = reason
        where = f" (shard {shard_id})" if shard_id else ""
        tried = f"; {attempts} attempt{'s' if attempts != 1 else ''}" if attempts else "; never sent"
        last = f", the last met {reason}" if reason else ""
        doubt = "; it may have been written all the same" if may_be_written else ""
        super().__init__(f"{message}{where}{tried}{last}{doubt}")


class RecordExpiredError(PutError):
    """The record's time to live passed before it was written. Put it again if it still matters."""


class RecordRefusedError(PutError):
    """The service does not take the record: it is too large, not valid, or the credentials are not allowed to."""


class RecordWithdrawnError(PutError):
    """The record was withdrawn by the caller, or the producer was closed before it was written."""


class FlushTimeoutError(ShardwayError, TimeoutError):
    """A flush's deadline passed. ``unwritten`` has each record that has no outcome yet; the records are still being
    put.
    """

    def __init__(self, message: str, unwritten: Sequence[object]) -> None:
        self.unwritten = unwritten
        super().__init__(message)


class AggregateError(ShardwayError, ValueError):
    """An aggregate cannot be built from what was given (too many records, a key too long, a hash key out of range)."""


class ShardStoppedError(ShardwayError):
    """Nothing more of a shard is delivered, since a policy says `Stop`. ``__cause__`` is the handler's error, if that
    was the reason, and not a record that stayed unsettled.
    """


class StaleOwnerError(ShardwayError):
    """A later owner of the shard has written to the program's store (`shardway.fences`): the records are with that one.
    ``token`` is the token of the batch that was refused, ``latest`` the highest that the store has seen.
    """

    def __init__(self, stream: str, shard_id: str, *, token: int, latest: int) -> None:
        self.stream = stream
        self.shard_id = shard_id
        self.token = token
        self.latest = latest
        super().__init__(
            f"{stream}, {shard_id}: an owner with token {latest} has written, and this one has token {token}. Write "
            "nothing: the records are with that owner. If the application's lease table was made anew since, its "
            "tokens began at 1 again: delete the shard's row from the fence's table"
        )


class CheckpointError(ShardwayError, ValueError):
    """A checkpoint can not be put where it is wanted: it would lie, go back, or is not prepared.

    ``goes_back`` is True where all up to there is settled and checkpointed already, as for records that a seek brings
    again: what the program makes of them is not to be put out a second time.
    """

    def __init__(self, message: str, *, goes_back: bool = False) -> None:
        self.goes_back = goes_back
        super().__init__(message)


class ConsumerClosedError(ShardwayError):
    """The consumer is closed, and delivers no more records: leave the loop that asks for them."""


class ShardReadError(ShardwayError):
    """A shard can no longer be read, for a reason that repeating does not mend (``__cause__``): its stream is gone, or
    permission is missing. The consumer has stored what was settled, and let the shard go.
    """

    def __init__(self, message: str, *, stream: str, shard_id: str) -> None:
        self.stream = stream
        self.shard_id = shard_id
        super().__init__(message)


class PayloadError(ShardwayError, ValueError):
    """A record's data is not what the reader takes: it is cut off, not of the format, or opens to more than is allowed.
    The same data gives the same error each time, and the message shows nothing of it.
    """


class RegistryError(ShardwayError):
    """A schema registry is away, refuses to answer, or answers what no registry does. No record is at fault, so a
    consumer delivers the records again later, and never counts them as unreadable.

    ``pending`` is True where nothing failed: the schema is on its way, since a deserializer does not block an event
    loop.
    """

    retryable = True

    def __init__(self, message: str, *, pending: bool = False) -> None:
        self.pending = pending
        super().__init__(message)


class UnreadableRecordError(ShardwayError, ValueError):
    """The deserializer raised for a record, and the policy for such records is to stop.

    ``error`` is the deserializer's error. It is not chained, since its message may hold a part of the data.
    """

    def __init__(self, message: str, *, error: Exception) -> None:
        self.error = error
        super().__init__(message)
