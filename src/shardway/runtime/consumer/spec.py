"""The specification of a consumer: what a program asked for, checked once, with types."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta

from shardway.core.options.check import check
from shardway.errors import OptionError
from shardway.options.metrics import MetricsOptions
from shardway.policies import DeadLettersToStream
from shardway.ports import RecordSource, UsableOnAnyLoop
from shardway.runtime.consumer.arguments import OWN, consumer_options
from shardway.runtime.consumer.lifecycle import ShardChange
from shardway.wiring import connection_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from shardway.model import Record
    from shardway.options.consumer import ConsumerOptions
    from shardway.ports import Tracer
    from shardway.runtime.consumer.arguments import ConsumerArguments, SyncConsumerArguments
    from shardway.runtime.consumer.lifecycle import Callback
    from shardway.wiring import ConnectionOptions


Stream = Annotated[str | RecordSource, Meta(title="a name, an ARN or a RecordSource")]
Streams = Annotated[
    str | RecordSource | list[Stream] | tuple[Stream, ...],
    Meta(title="a name, an ARN, a RecordSource or a list of them"),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hooks:
    """The functions of the program that a consumer calls by itself."""

    on_event: Callable[[Any], None] | None
    callbacks: Mapping[ShardChange, Callback]
    """The functions that are called as shards come and go, of those changes that the program wants to know of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSpec:
    """A consumer as its program wants it."""

    application: str
    streams: tuple[str | RecordSource, ...]
    of_several: bool
    """True: the streams were given as a list, so lease keys name the stream, also where there is one."""
    options: ConsumerOptions
    deserializer: Callable[[bytes], Any] | None
    hooks: Hooks
    connection: ConnectionOptions | None
    metrics: MetricsOptions
    tracer: Tracer | None
    worker_id: str
    """The worker's id. It is empty where the start makes it up: before a fork, several processes would share it."""
    rng: random.Random | None
    """The random numbers. None: the start makes them up, too."""

    @property
    def stream_names(self) -> str:
        """The names of all streams, as they were given, for people."""
        return ", ".join(one if isinstance(one, str) else one.stream for one in self.streams)

    @property
    def fan_out_name(self) -> str:
        """The name under which the streams know the application."""
        fan_out = self.options.fan_out
        return (fan_out and fan_out.consumer_name) or self.application

    @property
    def allows_own_thread(self) -> bool:
        """True where the work may run in a thread of its own: streams and leases of the user's own making may belong to
        the user's loop.
        """
        letters, table = self.options.dead_letters, self.options.leases.table
        return (
            self.options.own_thread
            and all(isinstance(stream, str) for stream in self.streams)
            and (table is None or isinstance(table, str) or (isinstance(table, UsableOnAnyLoop) and table.any_loop))
            and not (isinstance(letters, DeadLettersToStream) and not isinstance(letters.stream, str))
        )


def consumer_spec(
    stream: str | RecordSource | Sequence[str | RecordSource],
    application: str,
    deserializer: Callable[[bytes], Any] | None,
    split: Callable[[Record], Iterable[Any]] | None,
    arguments: ConsumerArguments | SyncConsumerArguments,
) -> ConsumerSpec:
    """Return the specification that the arguments of a consumer make. Raises OptionError."""
    _check_types(stream, application, deserializer, arguments)
    of_several = isinstance(stream, list | tuple)
    streams: tuple[Any, ...] = tuple(stream) if of_several else (stream,)  # type: ignore[arg-type]
    options = consumer_options({**{name: one for name, one in arguments.items() if name not in OWN}, "split": split})
    _check_names(application, streams)
    tracing = arguments.get("tracing")
    callbacks: dict[ShardChange, Any] = {change: arguments.get(change.value) for change in ShardChange}
    return ConsumerSpec(
        application=application,
        streams=streams,
        of_several=of_several,
        options=options,
        deserializer=deserializer,
        hooks=Hooks(
            on_event=arguments.get("on_event"),
            callbacks={change: callback for change, callback in callbacks.items() if callback is not None},
        ),
        connection=connection_of(arguments),
        metrics=arguments.get("metrics") or MetricsOptions(),
        tracer=None if tracing is None else tracing.for_application(application),
        worker_id=arguments.get("worker_id") or "",
        rng=arguments.get("rng"),
    )


def _check_types(
    stream: object, application: object, deserializer: object, arguments: ConsumerArguments | SyncConsumerArguments
) -> None:
    """Raise OptionError for arguments of wrong types, before anything is made of them."""
    given = {"stream": stream, "application": application, "deserializer": deserializer}
    hints = {"stream": Streams, "application": str, "deserializer": Callable | None}
    check(given | {name: arguments.get(name) for name in OWN}, hints | OWN)


def _check_names(application: str, streams: Sequence[Any]) -> None:
    """Raise OptionError for an application or streams that can't be."""
    faults = [] if application else ["application: there is no name"]
    names = [one for one in streams if isinstance(one, str)]
    faults += [] if streams else ["stream: the list is empty"]
    faults += [f"stream: {name!r} comes twice" for name, count in Counter(names).items() if count > 1]
    if faults:
        raise OptionError(faults)
