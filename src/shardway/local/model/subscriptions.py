"""SubscribeToShard pushes the records of a shard to a registered consumer for five minutes.

One consumer has one subscription per shard. For five seconds after a call succeeded another call is refused; later it
takes over, and the older one fails inside its event stream. Nothing here waits: a subscription says what is due when
it is asked (``poll``), and calls ``wake`` when something may be due before its caller would ask again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from shardway.local.model.errors import (
    dry_run,
    in_use,
    limit_exceeded,
    shard_absent,
    shard_not_found,
)
from shardway.local.model.read_places import Place, Start, place_of
from shardway.local.model.sequence_numbers import compose, shard_index_of, shard_name
from shardway.local.model.stream import Consumer, consumer_of_arn
from shardway.local.model.tokens import AT_ORDINAL

if TYPE_CHECKING:
    from shardway.local.model.service import KinesisModel
    from shardway.local.model.shard import Shard
    from shardway.local.model.stream import Stream


LIFE_MS = 300_000
TAKEOVER_MS = 5_000
"""Milliseconds after a successful call in which another call is refused."""
KEEP_ALIVE_MS = 5_000
"""Milliseconds without records after which an event without records is sent."""
EVENT_RECORDS_MAX = 10_000
EVENT_PAYLOAD_BYTES_MAX = 1024 * 1024
"""The payload of an event; one record goes in any case, however large it is."""
POLL_EVENTS_MAX = 8
"""The events that one ``poll`` returns; when there are more, the subscription asks to be polled again at once."""
Event = tuple[str, bytes]
_EVENT = "SubscribeToShardEvent"


class _Key(NamedTuple):
    consumer_arn: str
    shard_index: int


class Subscriptions:
    """The subscriptions of one service: the last one for each consumer and shard."""

    def __init__(self) -> None:
        self._last_subscriptions: dict[_Key, Subscription] = {}

    def subscribe(self, model: KinesisModel, request: dict[str, Any]) -> Subscription:
        """Open a subscription. Raises ModelError."""
        stream, consumer = consumer_of_arn(model, request["ConsumerARN"])
        shard = _shard(model, stream, request["ShardId"])
        now_ms = model.now_ms()
        if consumer.status(now_ms) != "ACTIVE":
            raise in_use(
                f"Consumer {consumer.name} with creation timestamp {consumer.created_s} under stream: {stream.name} , "
                f"account {model.account_id} is not in ACTIVE status."
            )
        position = request["StartingPosition"]
        start = Start(position["Type"], position.get("SequenceNumber"), position.get("Timestamp"), "SubscribeToShard")
        place = place_of(model, stream, shard, start)
        key = _Key(consumer.arn, shard.index)
        if model.limits.api and not model.meters.take_if_allowed(
            ("subscribe", *key), model.limits.subscribe_calls_per_s
        ):
            raise limit_exceeded(
                f"Rate exceeded for consumer {consumer.name} and shard {shard.name} "
                f"in stream {stream.name} under account {model.account_id}."
            )
        before = self._last_subscriptions.get(key)
        if before is not None and now_ms - before.started_ms < TAKEOVER_MS:
            raise in_use(before.in_use_text)
        if request.get("DryRun"):
            raise dry_run()
        if before is not None:
            before.taken_over = True
            before.notify()
        self._forget(now_ms)
        subscription = self._last_subscriptions[key] = Subscription(model, stream, shard, consumer, place)
        subscription.asked_number = start.number
        return subscription

    def wake(self, consumer_arn: str) -> None:
        """Wake the consumer's subscriptions, so that they are polled."""
        for key, subscription in list(self._last_subscriptions.items()):
            if key.consumer_arn == consumer_arn:
                subscription.notify()

    def _forget(self, now_ms: int) -> None:
        """Forget closed subscriptions that do not matter to later calls any more."""
        for key, subscription in list(self._last_subscriptions.items()):
            if subscription.closed and now_ms - subscription.started_ms >= TAKEOVER_MS:
                del self._last_subscriptions[key]


def _shard(model: KinesisModel, stream: Stream, shard_id: str) -> Shard:
    index = shard_index_of(shard_id)
    if index is None:
        raise shard_not_found(shard_id, stream.name, model.account_id)
    shard = stream.shard(index, model.now_ms())
    if shard is None:
        raise shard_absent(shard_name(index), stream.name, model.account_id)
    return shard


class Subscription:
    """One answer of SubscribeToShard: ``poll`` it for events until it is ``closed``."""

    def __init__(self, model: KinesisModel, stream: Stream, shard: Shard, consumer: Consumer, place: Place) -> None:
        self._model = model
        self._stream = stream
        self._shard = shard
        self._consumer = consumer
        self._place = place
        self.started_ms = self._last_event_ms = model.now_ms()
        self.asked_number: str | None = None
        """The sequence number at which the subscription began, if any."""
        self.taken_over = False
        self._said_all = False
        self.closed = False
        """True once no events will come any more."""
        self._wake: Callable[[], None] | None = None
        shard.watchers.append(self.notify)

    @property
    def in_use_text(self) -> str:
        """Return the message for a second subscriber while this subscription is active."""
        where = f"{self._model.account_id}:{self._stream.name}:{self._shard.name}:{self._consumer.name}"
        return f"Another active subscription exists for this consumer: {where}"

    def wakes(self, wake: Callable[[], None]) -> None:
        """Have ``wake`` called when ``poll`` may have something before its caller would look again."""
        self._wake = wake

    def notify(self) -> None:
        """Call ``wake``: something may be due."""
        if self._wake is not None:
            self._wake()

    def close(self) -> None:
        """End the subscription: the client is gone, or all was sent."""
        self.closed = True
        if self.notify in self._shard.watchers:
            self._shard.watchers.remove(self.notify)

    def poll(self) -> list[Event]:
        """Return all that is due now, in order, as (event type or name of an exception, JSON). It never waits."""
        if self.closed:
            return []
        now_ms = self._model.now_ms()
        failure = self._failure(now_ms)
        if failure is not None:
            self.close()
            return [failure]
        if now_ms - self.started_ms >= LIFE_MS:
            self.close()
            return []
        events: list[Event] = []
        while len(events) < POLL_EVENTS_MAX:
            event = self._next_event(now_ms)
            if event is None:
                return events
            events.append(event)
            if self._said_all:
                self.close()
                return events
        self.notify()
        return events

    def _failure(self, now_ms: int) -> Event | None:
        if self.taken_over:
            return _exception("ResourceInUseException", self.in_use_text)
        if self._model.stream_of_uid(self._stream.uid) is None:
            return _exception(
                "ResourceNotFoundException",
                f"Stream {self._stream.name} under account {self._model.account_id} not found.",
            )
        if self._consumer.status(now_ms) != "ACTIVE":
            return _exception(
                "ResourceNotFoundException",
                f"Consumer {self._consumer.arn}, account {self._model.account_id} not found.",
            )
        return None

    def _next_event(self, now_ms: int) -> Event | None:
        shard = self._shard
        if self._place.kind == AT_ORDINAL:
            shard.log.trim(self._stream.horizon_ms(now_ms))
            begin = max(self._place.value, shard.log.first)
            if begin < shard.log.end:
                return self._records(begin, now_ms)
            if shard.closed_ms is not None:
                return self._end()
        if now_ms - self._last_event_ms >= KEEP_ALIVE_MS:
            return self._keep_alive(now_ms)
        return None

    def _records(self, begin: int, now_ms: int) -> Event | None:
        model, log = self._model, self._shard.log
        if model.limits.per_shard:
            meter = model.meters.meter(
                ("fan-out", self._consumer.arn, self._shard.index), model.limits.fanout_bytes_per_s
            )
            if not meter.allows(1, model.clock()):
                return None
        page = log.read(begin, EVENT_RECORDS_MAX, EVENT_PAYLOAD_BYTES_MAX)
        if model.limits.per_shard:
            meter.take(page.payload_bytes, model.clock())
        self._place = Place(AT_ORDINAL, page.next_ordinal)
        self._last_event_ms = now_ms
        behind_ms = 0 if page.next_ordinal == log.end else max(1, now_ms - page.last_arrival_ms)
        counter, arrival_ms = log.stamp_of(page.next_ordinal - 1)
        texts = page.texts
        texts[-1] = texts[-1][:-1]
        return _event(texts, self._number(counter, arrival_ms), behind_ms)

    def _keep_alive(self, now_ms: int) -> Event:
        """Return an event without records: its number still says how far the reader is."""
        self._last_event_ms = now_ms
        if self._place.kind != AT_ORDINAL:
            return _event([], self.asked_number, now_ms - self._place.value)
        return _event([], self._number(self._stream.counter, now_ms), 0)

    def _end(self) -> Event:
        self._said_all = True
        children = [self._stream.shards[index].describe_child() for index in self._shard.children]
        return _event([], None, 0, children)

    def _number(self, counter: int, moment_ms: int) -> str:
        return str(compose(self._shard.base, counter, self._shard.second_of(moment_ms)))


def _event(texts: list[bytes], number: str | None, behind_ms: int, children: list[Any] | None = None) -> Event:
    tail = f'],"MillisBehindLatest":{behind_ms}'
    if number is not None:
        tail += f',"ContinuationSequenceNumber":"{number}"'
    end = b"}" if children is None else b',"ChildShards":%b}' % msgspec.json.encode(children)
    return _EVENT, b"".join([b'{"Records":[', *texts, tail.encode(), end])


def _exception(code: str, message: str) -> Event:
    return code, msgspec.json.encode({"message": message})
