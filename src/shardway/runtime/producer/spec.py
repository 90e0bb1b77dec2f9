"""The specification of a producer: what a program asked for, checked once, with types."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_type_hints

from shardway.core.options.check import check
from shardway.core.producer.limits import BatchLimits, PaceLimits
from shardway.options.metrics import MetricsOptions
from shardway.options.producer import ProducerOptions
from shardway.runtime.producer.arguments import ProducerArguments

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.events import Event
    from shardway.ports import RecordSink, Tracer


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerSpec:
    """A producer as its program wants it."""

    sink: RecordSink
    options: ProducerOptions
    metrics: MetricsOptions
    on_event: Callable[[Event], None] | None
    rng: random.Random
    tracer: Tracer | None

    @property
    def stream(self) -> str:
        """The name of the stream."""
        return self.sink.stream

    def batch_limits(self) -> BatchLimits:
        """Return the bounds and intervals of the batcher."""
        options = self.options
        return BatchLimits(
            aggregate=options.aggregation,
            ordered_by_key=options.ordered_by_key,
            linger_s=options.linger_s,
            requests_in_flight_max=options.requests_in_flight_max,
            in_flight_bytes_max=options.in_flight_bytes_max,
            request_records_max=options.request_records_max,
            request_bytes_max=options.request_bytes_max,
            aggregate_bytes_max=options.aggregate_bytes_max,
            retry_base_s=options.retry_base_s,
            retry_cap_s=options.retry_cap_s,
            pace=PaceLimits(options.shard_records_per_s, options.shard_bytes_per_s) if options.pacing else None,
        )


def producer_spec(stream: str | RecordSink, arguments: ProducerArguments) -> ProducerSpec:
    """Return the specification that the arguments of a producer make. Raises OptionError."""
    from shardway.wiring import connection_of, sink_for

    hints = get_type_hints(ProducerArguments, include_extras=True)
    check({name: arguments.get(name) for name in hints}, hints)
    return ProducerSpec(
        sink=sink_for(stream, connection_of(arguments)),
        options=arguments.get("options") or ProducerOptions(),
        metrics=arguments.get("metrics") or MetricsOptions(),
        on_event=arguments.get("on_event"),
        rng=arguments.get("rng") or random.Random(),
        tracer=arguments.get("tracing"),
    )
