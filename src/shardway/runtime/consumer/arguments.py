"""The arguments of consumers: their options (`option_arguments` has the types), and what does not say how the work is
done.
"""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

from shardway.errors import OptionError
from shardway.events import Event
from shardway.model import StartingPosition
from shardway.options.consumer import ConsumerOptions
from shardway.options.leases import LeaseOptions
from shardway.options.metrics import MetricsOptions
from shardway.ports import Tracer
from shardway.runtime.consumer.lifecycle import AssignedShard
from shardway.runtime.consumer.option_arguments import OptionArguments
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Mapping


class _PlaceArguments(TypedDict, total=False):
    """The arguments that say where the stream is."""

    region: str | None
    endpoint_url: str | None
    profile: str | None


class _Arguments(_PlaceArguments, OptionArguments, total=False):
    """The arguments that both consumers are given by name, beside the application, callbacks, and the two functions
    that make the values (the deserializer, ``split``): the options, and what does not say how the work is done.
    """

    worker_id: str | None
    connection: ConnectionOptions | None
    metrics: MetricsOptions | None
    tracing: Tracer | None
    on_event: Callable[[Event], None] | None
    rng: random.Random | None


class ConsumerArguments(_Arguments, total=False):
    """The arguments that a `Consumer` is given by name."""

    on_shards_assigned: Callable[[Sequence[AssignedShard]], Awaitable[object]] | None
    on_shards_ended: Callable[[Sequence[AssignedShard]], Awaitable[object]] | None
    on_shards_revoked: Callable[[Sequence[AssignedShard]], Awaitable[object]] | None
    on_shards_lost: Callable[[Sequence[AssignedShard]], Awaitable[object]] | None


class SyncConsumerArguments(_Arguments, total=False):
    """The arguments that a `SyncConsumer` is given by name."""

    on_shards_assigned: Callable[[Sequence[AssignedShard]], object] | None
    on_shards_ended: Callable[[Sequence[AssignedShard]], object] | None
    on_shards_revoked: Callable[[Sequence[AssignedShard]], object] | None
    on_shards_lost: Callable[[Sequence[AssignedShard]], object] | None


START_CHARACTERS_MAX = 40
"""The most characters that an error shows of a text that is no start."""
START_HINTS = {
    "TRIM_HORIZON": ": write 'TRIM_HORIZON'",
    "EARLIEST": ": write 'TRIM_HORIZON'",
    "LATEST": ": write 'LATEST'",
    "AT_TIMESTAMP": ": give the time itself, as a datetime with a time zone",
    "AT_SEQUENCE_NUMBER": ": a consumer goes on from its checkpoints, and Consumer.seek goes to a record's position",
    "AFTER_SEQUENCE_NUMBER": ": a consumer goes on from its checkpoints, and Consumer.seek goes to a record's position",
}
"""What an error adds for texts that other programs and Kinesis itself have for a start."""
OWN = {
    name: hint
    for name, hint in get_type_hints(ConsumerArguments, include_extras=True).items()
    if name not in ConsumerOptions.__struct_fields__
}
"""The type hints of the arguments that are no `ConsumerOptions`."""


def consumer_options(given: Mapping[str, Any]) -> ConsumerOptions:
    """Return the options among a consumer's arguments: a start may be a text or a time, and leases a table. Raises
    OptionError for all faults at once.
    """
    options = dict(given)
    if "starting_position" in options:
        options["starting_position"] = start_of(options["starting_position"])
    leases = options.get("leases", LeaseOptions())
    if isinstance(leases, str):  # As the name of a table in DynamoDB, the path of a file would make two tables.
        raise OptionError(
            "leases is LeaseOptions or a lease table, not a str: SqliteLeaseTable(path) keeps leases in a file, "
            "PostgresLeaseTable(url) in PostgreSQL, LeaseOptions(table=name) in a table of DynamoDB of that name"
        )
    if not isinstance(leases, LeaseOptions):
        options["leases"] = LeaseOptions(table=leases)
    return ConsumerOptions(**options)


def start_of(given: Any) -> Any:
    """Return a starting position, from its text or a time as well. Raises OptionError."""
    if isinstance(given, str) and given in (StartingPosition.TRIM_HORIZON.kind, StartingPosition.LATEST.kind):
        return StartingPosition(given)
    if isinstance(given, str):
        hint = START_HINTS.get(given.upper().replace("-", "_"), "")
        told = given[:START_CHARACTERS_MAX]
        raise OptionError(f"a start is TRIM_HORIZON, LATEST or StartingPosition.at_timestamp(...), not {told!r}{hint}")
    if isinstance(given, dt.datetime):
        try:
            return StartingPosition.at_timestamp(given)
        except ValueError as fault:
            raise OptionError(f"a start: {fault}") from fault
    return given
