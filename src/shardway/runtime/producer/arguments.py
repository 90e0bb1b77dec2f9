"""The arguments of producers, beside the stream and the serializer."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TypedDict

from shardway.events import Event
from shardway.options.metrics import MetricsOptions
from shardway.options.producer import ProducerOptions
from shardway.ports import Tracer
from shardway.wiring import ConnectionOptions


class ProducerArguments(TypedDict, total=False):
    """The arguments that `Producer` and `SyncProducer` are given by name, beside the serializer."""

    region: str | None
    endpoint_url: str | None
    profile: str | None
    connection: ConnectionOptions | None
    options: ProducerOptions | None
    metrics: MetricsOptions | None
    tracing: Tracer | None
    on_event: Callable[[Event], None] | None
    rng: random.Random | None
