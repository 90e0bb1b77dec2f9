"""Spans by OpenTelemetry's SDK, of real producers and consumers on the local Kinesis."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from shardway import OutRecord, Producer, ProducerOptions, SyncProducer
from shardway.leases import MemoryLeaseTable
from shardway.local import LocalKinesis
from shardway.model import Record
from shardway.telemetry import OpenTelemetryTracing
from shardway.telemetry.trace_contexts import carried_by
from tests.runtime.consumer.face_kit import STREAM, consumer_of, wire

if TYPE_CHECKING:
    from collections.abc import Iterator

export = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
sdk = pytest.importorskip("opentelemetry.sdk.trace")
processors = pytest.importorskip("opentelemetry.sdk.trace.export")

TRACE_ID, SPAN_ID = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
TRACEPARENT = f"00-{TRACE_ID}-{SPAN_ID}-01"


class Traced:
    """A tracer whose spans are kept."""

    def __init__(self, **given: Any) -> None:
        self._kept = export.InMemorySpanExporter()
        provider = sdk.TracerProvider()
        provider.add_span_processor(processors.SimpleSpanProcessor(self._kept))
        self.tracer = provider.get_tracer("program")
        self.tracing = OpenTelemetryTracing(tracer_provider=provider, **given)

    def named(self, start: str) -> list[Any]:
        return [span for span in self._kept.get_finished_spans() if span.name.startswith(start)]


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={STREAM: 1}) as service:
        yield service


def links_of(span: Any) -> list[int]:
    return sorted(link.context.span_id for link in span.links)


async def put_under_spans(local: LocalKinesis, traced: Traced, count: int, **options: Any) -> list[int]:
    """Records that are put, each while a span of the program is current; these spans' ids."""
    found = []
    async with Producer(
        STREAM, connection=wire(local), options=ProducerOptions(**options), tracing=traced.tracing
    ) as producer:
        for number in range(count):
            with traced.tracer.start_as_current_span(f"request {number}") as span:
                producer.put_nowait(OutRecord(b'{"number": %d}' % number, "key"))
                found.append(span.get_span_context().span_id)
        producer.put_nowait(OutRecord(b'{"number": "alone"}', "key"))
        await producer.flush()
    return sorted(found)


async def consumed(local: LocalKinesis, traced: Traced, count: int, *, fails: bool = False) -> list[Record]:
    records: list[Record] = []
    async with consumer_of(local, MemoryLeaseTable(), tracing=traced.tracing) as consumer:
        async for batch in consumer:
            with batch:
                with traced.tracer.start_as_current_span("handling"):
                    records += batch.records
                if fails and batch.attempt == 1:
                    raise LookupError("secret")
            if len(records) >= count:
                break
    return records


@pytest.mark.asyncio
async def test_a_trace_goes_through_an_aggregate_and_changes_no_payload(local: LocalKinesis) -> None:
    traced = Traced()
    puts = await put_under_spans(local, traced, 3, aggregation=True)
    records = await consumed(local, traced, 4)
    assert [json.loads(record.data)["number"] for record in records] == [0, 1, 2, "alone"]
    assert [dict(record.tags).keys() for record in records] == [{"traceparent"}] * 3 + [set()]
    (send,) = traced.named("PutRecords")
    assert links_of(send) == puts
    assert send.attributes["messaging.batch.message_count"] == 4
    assert send.parent is None, "a request is no single caller's"
    receive = traced.named("GetRecords")
    assert sum(span.attributes["messaging.batch.message_count"] for span in receive) == 1, "Kinesis records"
    (process,) = traced.named("process")
    assert links_of(process) == puts
    assert process.attributes["messaging.consumer.group.name"] == "billing"
    assert process.attributes["messaging.destination.name"] == STREAM
    (handling,), (settle,) = traced.named("handling"), traced.named("settle")
    assert handling.parent.span_id == settle.parent.span_id == process.context.span_id
    kinds = [span.kind.name for span in (send, receive[0], process, settle)]
    assert kinds == ["PRODUCER", "CLIENT", "CONSUMER", "CLIENT"]


@pytest.mark.asyncio
async def test_a_trace_goes_through_json_bodies_only_where_that_is_asked_for(local: LocalKinesis) -> None:
    plain, asked = Traced(), Traced(json_members=True)
    await put_under_spans(local, plain, 1)
    puts = await put_under_spans(local, asked, 2)
    records = await consumed(local, asked, 5)
    members = [sorted(json.loads(record.data)) for record in records]
    assert members == [["number"], ["number"], ["number", "traceparent"], ["number", "traceparent"], ["number"]]
    assert sorted(span_id for span in asked.named("process") for span_id in links_of(span)) == puts


@pytest.mark.asyncio
async def test_a_failing_block_has_the_error_s_type_and_no_message(local: LocalKinesis) -> None:
    traced = Traced()
    await put_under_spans(local, traced, 1, aggregation=True)
    await consumed(local, traced, 4, fails=True)
    failed, *_ = traced.named("process")
    assert failed.attributes["error.type"] == "LookupError"
    assert failed.status.status_code.name == "ERROR"
    assert "secret" not in failed.to_json()
    assert len(traced.named("settle")) == len(traced.named("process")) == 2


def test_threads_put_under_spans_of_their_own(local: LocalKinesis) -> None:
    traced = Traced()
    options = ProducerOptions(aggregation=True)
    with SyncProducer(STREAM, connection=wire(local), options=options, tracing=traced.tracing) as producer:
        with traced.tracer.start_as_current_span("many") as span:
            producer.put_many([("key", b"%d" % number) for number in range(50)])
        producer.flush()
    (send,) = traced.named("PutRecords")
    assert links_of(send) == [span.get_span_context().span_id], "of fifty records, one context"
    assert send.parent.span_id == span.get_span_context().span_id
    records = asyncio.run(consumed(local, traced, 50))
    assert {len(record.tags) for record in records} == {1}


class Broken:
    """A tracer provider of which all fails."""

    def get_tracer(self, _name: str) -> Any:
        return self

    def start_span(self, *_: Any, **__: Any) -> Any:
        raise ZeroDivisionError


@pytest.mark.asyncio
async def test_a_tracer_that_raises_ends_no_work(local: LocalKinesis, caplog: pytest.LogCaptureFixture) -> None:
    broken, traced = Traced(), Traced()
    broken.tracing = OpenTelemetryTracing(tracer_provider=Broken())
    await put_under_spans(local, broken, 2, aggregation=True)
    assert len(await consumed(local, broken, 3)) == 3
    assert "ZeroDivisionError" in caplog.text
    assert traced.named("") == []


# --- the contexts that records carry --------------------------------------------------------------


def record(data: bytes, *tags: tuple[str, str]) -> Record:
    import datetime as dt

    return Record(
        stream=STREAM,
        shard_id="shardId-000000000000",
        partition_key="key",
        data=data,
        sequence_number=1,
        approximate_arrival_timestamp=dt.datetime.now(dt.UTC),
        tags=tags,
    )


DATADOG = {"x-datadog-trace-id": str(0x8448EB211C80319C), "x-datadog-parent-id": str(int(SPAN_ID, 16))}


@pytest.mark.parametrize(
    "found",
    [
        record(b"", ("other", "x"), ("traceparent", TRACEPARENT)),
        record(b'{"traceparent": "%s"}' % TRACEPARENT.encode()),
        record(json.dumps({"_datadog": {"traceparent": TRACEPARENT}}).encode()),
        record(
            json.dumps({"_datadog": {**DATADOG, "x-datadog-tags": "_dd.p.dm=-1,_dd.p.tid=0af7651916cd43dd"}}).encode()
        ),
    ],
)
def test_what_others_write_is_read(found: Record) -> None:
    assert carried_by(found) == (("traceparent", TRACEPARENT),)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b'"traceparent"',
        b'{"traceparent": 7}',
        b'{"traceparent": "x"',
        b'["_datadog"]',
        b'{"_datadog": {"x-datadog-trace-id": "-1", "x-datadog-parent-id": "1"}}',
        b'{"_datadog": {"x-datadog-trace-id": "1"}}',
        b'{"_datadog": {"x-datadog-trace-id": [], "x-datadog-parent-id": {}}}',
        b'{"_datadog": {"x-datadog-trace-id": "1", "x-datadog-parent-id": "1", "x-datadog-tags": "_dd.p.tid=zz"}}',
    ],
)
def test_what_is_no_context_is_none(data: bytes) -> None:
    assert carried_by(record(data)) == ()


@pytest.mark.parametrize(
    "data",
    [b"text", b"{broken", b'{"traceparent": "kept"}', b"[1]", b"", b'{"a": {"traceparent": 1}, "traceparent": 2}'],
)
def test_what_is_no_object_or_has_a_context_is_put_as_it_is(data: bytes) -> None:
    traced = Traced(json_members=True)
    with traced.tracer.start_as_current_span("request"):
        assert traced.tracing.data_with_context(data) == data


@pytest.mark.parametrize("data", [b"{}", b' { "a": 1 }', b'{"a": "{"}', b'{"inner": {"traceparent": "x"}}'])
def test_an_object_gets_the_context_and_keeps_its_members(data: bytes) -> None:
    traced = Traced(json_members=True)
    assert traced.tracing.data_with_context(data) == data, "no span is current"
    with traced.tracer.start_as_current_span("request") as span:
        made = json.loads(traced.tracing.data_with_context(data))
    assert format(span.get_span_context().span_id, "016x") in made.pop("traceparent")
    assert made == json.loads(data)
