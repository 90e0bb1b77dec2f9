"""What goes wrong on the way: throttles, lost replies, silence, a service that is gone. Nothing is lost, and what may
be there twice is marked.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any

import pytest

from shardway.errors import RecordExpiredError
from shardway.events import PutRecordsDone, RecordsExpired, UnknownOutcome
from shardway.local import LocalKinesis
from shardway.model import OutRecord, PutResult
from shardway.runtime.producer.producer import Producer
from shardway.runtime.producer.sync_producer import SyncProducer
from shardway.testing import Fault
from tests.runtime.producing import (
    STREAM,
    Heard,
    numbered,
    place_of,
    places,
    quick,
    read_all,
    read_sync,
    until,
    wire_of,
)

if TYPE_CHECKING:
    from pathlib import Path

BOTH = pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
THROTTLED = "ProvisionedThroughputExceededException"


@BOTH
@pytest.mark.parametrize("how", ["throttle", "partial"])
async def test_time_to_live_during_a_long_throttle(local: LocalKinesis, aggregation: bool, how: Any) -> None:
    """The record fails in time, certainly unwritten, and says why; one that has longer to live is written."""
    heard = Heard()
    fault = local.faults.add(Fault(how=how, operation="PutRecords"))
    options = quick(aggregation=aggregation, record_ttl_s=0.6)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        short = [producer.put_nowait(record) for record in numbered(range(30))]
        longer = [producer.put_nowait(record, record_ttl_s=60) for record in numbered(range(100, 130))]
        puts = await producer.put_many(numbered(range(200, 300)))
        outcomes = await asyncio.gather(*short, return_exceptions=True)
        await puts.settled()
        for outcome in [*outcomes, *puts.results()]:
            assert isinstance(outcome, RecordExpiredError)
            assert (outcome.may_be_written, outcome.reason) == (False, THROTTLED)
            assert outcome.attempts >= 1
            assert outcome.shard_id
        assert not any(handle.done() for handle in longer)
        fault.clear()
        assert all(result.attempts > 1 for result in await asyncio.gather(*longer))
        assert (await producer.put(OutRecord(b"later", "key"))).attempts == 1
        counts = producer.metrics()
    assert (counts.user_records_expired, counts.user_records_put, counts.buffer_bytes) == (130, 31, 0)
    assert sum(event.user_records for event in heard.of(RecordsExpired)) == 130
    assert not any(event.may_be_written for event in heard.of(RecordsExpired))
    expected = [b"later", *(b"%d" % number for number in range(100, 130))]
    assert (await read_all(local)).counts() == dict.fromkeys(expected, 1)


def test_time_to_live_during_a_long_throttle_in_threads(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="throttle", operation="PutRecords"))
    options = quick(record_ttl_s=0.2)
    with SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        with pytest.raises(RecordExpiredError, match="time to live"):
            producer.put(OutRecord(b"data", "key"))
        with pytest.raises(RecordExpiredError):
            producer.put(OutRecord(b"data", "key"), record_ttl_s=0.01)
        handle = producer.put_nowait(OutRecord(b"data", "key"))
        puts = producer.put_many(numbered(range(10)))
        with pytest.raises(RecordExpiredError):
            handle.result()
        assert len(puts.wait().failures()) == 10
        with pytest.raises(RecordExpiredError):
            puts.raise_failure()
    assert read_sync(local).records == []


async def test_time_to_live_while_the_bound_is_reached(local: LocalKinesis) -> None:
    """What expires makes room for what waits."""
    local.faults.add(Fault(how="throttle", operation="PutRecords"))
    options = quick(record_ttl_s=0.1, record_bytes_max=2_048, buffer_bytes_max=4_096)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        outcomes = await asyncio.gather(
            *(producer.put(OutRecord(bytes(1_500), "key")) for _ in range(6)), return_exceptions=True
        )
        assert {type(outcome) for outcome in outcomes} == {RecordExpiredError}
        assert producer.metrics().buffer_bytes == 0


LOST = {
    "a lost reply": Fault(how="lost_reply", operation="PutRecords", count=1),
    "half a reply": Fault(how="truncate", operation="PutRecords", count=1),
    "a reset": Fault(how="reset", operation="PutRecords", count=1, applied=True),
    "a server error": Fault(how="server_error", operation="PutRecords", count=1, applied=True),
}


@BOTH
@pytest.mark.parametrize("fault", LOST.values(), ids=LOST.keys())
async def test_lost_reply_is_marked(local: LocalKinesis, aggregation: bool, fault: Fault) -> None:
    """Nothing tells whether it was written: it is put again, and each record that may be there twice says so."""
    heard = Heard()
    options = quick(aggregation=aggregation)
    records = numbered(range(100))
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        assert not (await producer.put(OutRecord(b"before", "key"))).duplicates_possible
        local.faults.add(fault)
        puts = await producer.put_many(records)
        results = (await puts.settled()).results()
        after = await producer.put(OutRecord(b"after", "key"))
        assert (after.attempts, after.duplicates_possible) == (1, False)
        counts = producer.metrics()
    found = place_of(await read_all(local))
    twice = 0
    for record, place, result in zip(records, places(results), results, strict=True):
        assert isinstance(result, PutResult)
        assert found[record.data][-1] == place
        assert result.duplicates_possible == (result.attempts > 1) == (len(found[record.data]) > 1)
        twice += result.duplicates_possible
    assert counts.duplicates_possible == twice > 0
    (unknown,) = heard.of(UnknownOutcome)
    assert unknown.records == heard.of(PutRecordsDone)[1].records
    assert len(found[b"before"]) == len(found[b"after"]) == 1


async def test_a_lost_reply_then_a_long_throttle(local: LocalKinesis) -> None:
    """It expires, but may be written: the error says so."""
    heard = Heard()
    options = quick(record_ttl_s=0.3)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        local.faults.add(Fault(how="lost_reply", operation="PutRecords", count=1))
        local.faults.add(Fault(how="throttle", operation="PutRecords", skip=0))
        with pytest.raises(RecordExpiredError, match="may have been written all the same") as expired:
            await producer.put(OutRecord(b"data", "key"))
        assert expired.value.may_be_written
        assert [event.may_be_written for event in heard.of(RecordsExpired)] == [True]
    assert (await read_all(local)).counts() == {b"data": 1}


@BOTH
async def test_an_entry_that_failed_inside_is_marked(local: LocalKinesis, aggregation: bool) -> None:
    """An InternalFailure of an entry leaves open whether it was written; a throttled entry certainly was not."""
    options = quick(aggregation=aggregation)
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        local.faults.add(Fault(how="partial", operation="PutRecords", code="InternalFailure", count=1))
        result = await producer.put(OutRecord(b"data", "key"))
        assert (result.attempts, result.duplicates_possible) == (2, True)
        local.faults.add(Fault(how="partial", operation="PutRecords", count=1))
        result = await producer.put(OutRecord(b"data", "key"))
        assert (result.attempts, result.duplicates_possible) == (2, False)
        local.faults.add(Fault(how="throttle", operation="PutRecords", count=1))
        result = await producer.put(OutRecord(b"data", "key"))
        assert (result.attempts, result.duplicates_possible) == (2, False)
        counts = producer.metrics()
    assert counts.records_failed_attempts == {"InternalFailure": 1, THROTTLED: 1}
    assert counts.requests_failed == {THROTTLED: 1}


@BOTH
async def test_a_request_that_never_gets_an_answer(local: LocalKinesis, aggregation: bool) -> None:
    heard = Heard()
    options = quick(aggregation=aggregation, request_timeout_s=0.2)
    async with Producer[OutRecord](
        STREAM, connection=wire_of(local), options=options, on_event=heard.append
    ) as producer:
        await producer.put(OutRecord(b"before", "key"))
        local.faults.add(Fault(how="delay", delay_s=60, operation="PutRecords", count=1))
        result = await producer.put(OutRecord(b"data", "key"))
    assert (result.attempts, result.duplicates_possible) == (2, True)
    assert [(event.records, event.reason) for event in heard.of(UnknownOutcome)] == [(1, "TimeoutError")]
    assert (await read_all(local)).counts() == {b"before": 1, b"data": 1}


async def test_a_request_without_an_answer_holds_up_no_other(local: LocalKinesis) -> None:
    options = quick(request_timeout_s=60, linger_s=0)
    producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=options)
    await producer.start()
    fault = local.faults.add(Fault(how="delay", delay_s=60, operation="PutRecords", count=1))
    stuck = producer.put_nowait(OutRecord(b"stuck", "key"))
    await until(lambda: fault.hits)
    for record in numbered(range(20)):
        assert (await producer.put(record)).attempts == 1
    assert not stuck.done()
    with pytest.raises(TimeoutError):
        await producer.close(0)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def test_an_endpoint_that_is_gone_for_a_while(tmp_path: Path) -> None:
    """Connections that are refused carry nothing: all is written once it is back, and nothing marked."""
    heard = Heard()
    local = LocalKinesis(port=free_port(), data=tmp_path / "data", streams={STREAM: 4})
    with local:
        producer = Producer[OutRecord](STREAM, connection=wire_of(local), options=quick(), on_event=heard.append)
        await producer.start()
        await producer.put(OutRecord(b"before", "key"))
    puts = await producer.put_many(numbered(range(500)))
    handle = producer.put_nowait(OutRecord(b"nowait", "key"))
    await until(lambda: len([event for event in heard.of(PutRecordsDone) if event.error_code]) >= 3)
    assert not handle.done()
    with local:
        results = (await puts.settled()).results()
        result = await handle
        await producer.close()
        content = await read_all(local)
    assert [place_of(content)[record.data] for record in numbered(range(500))] == [[one] for one in places(results)]
    assert not any(one.duplicates_possible for one in [*results, result])  # type: ignore[union-attr]
    assert len(content.records) == 502
    assert heard.of(UnknownOutcome) == []


def test_an_endpoint_that_is_gone_for_a_while_in_threads(tmp_path: Path) -> None:
    local = LocalKinesis(port=free_port(), data=tmp_path / "data", streams={STREAM: 4})
    with local:
        producer = SyncProducer[OutRecord](STREAM, connection=wire_of(local), options=quick())
        producer.start()
        producer.put(OutRecord(b"before", "key"))
    puts = producer.put_many(numbered(range(500)))
    with pytest.raises(TimeoutError):
        puts.wait(0.1)
    with local:
        puts.wait().raise_failure()
        producer.close()
        assert len(read_sync(local).counts()) == 501


@BOTH
async def test_a_storm_of_all_faults(local: LocalKinesis, aggregation: bool) -> None:
    """Whatever happens: each record is there, once unless it is marked."""
    for seed, how in enumerate(("throttle", "server_error", "reset", "lost_reply", "truncate")):
        local.faults.add(Fault(how=how, operation="PutRecords", probability=0.1, seed=seed))  # type: ignore[arg-type]
    local.faults.add(Fault(how="partial", operation="PutRecords", share=0.2, seed=9))
    options = quick(aggregation=aggregation, aggregate_bytes_max=300, request_records_max=20)
    records = numbered(range(1_000))
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=options) as producer:
        puts = [await producer.put_many(records[start : start + 100]) for start in range(0, 1_000, 100)]
        results = [result for some in puts for result in (await some.settled()).results()]
        counts = producer.metrics()
    found = place_of(await read_all(local))
    for record, place, result in zip(records, places(results), results, strict=True):
        assert isinstance(result, PutResult)
        assert place in found[record.data]
        assert len(found[record.data]) == 1 or result.duplicates_possible
    assert (counts.user_records_put, counts.buffer_bytes) == (1_000, 0)
    assert counts.duplicates_possible == sum(result.duplicates_possible for result in results)  # type: ignore[union-attr]
