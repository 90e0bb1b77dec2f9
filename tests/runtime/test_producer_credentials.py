"""Credentials that expire while records are put."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from shardway.errors import AccessDeniedError, CredentialsError, RecordExpiredError, RecordRefusedError
from shardway.events import PutRecordsDone, UnknownOutcome
from shardway.local import LocalKinesis
from shardway.model import OutRecord
from shardway.runtime.producer.producer import Producer
from shardway.testing import Fault
from tests.runtime.producing import STREAM, Heard, numbered, quick, read_all, until, wire_of

if TYPE_CHECKING:
    from collections.abc import Iterator

SECRETS = {"OLDKEY": "old-secret", "NEWKEY": "new-secret", "local": "local"}
EXPIRED = "ExpiredTokenException"


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalKinesis]:
    """A service that verifies signatures; the environment holds the old credentials."""
    use(monkeypatch, "OLDKEY")
    with LocalKinesis(streams={STREAM: 4}, credentials=SECRETS) as local:
        yield local


def use(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRETS.get(key, "wrong"))


async def put_on(
    producer: Producer[OutRecord], heard: Heard, numbers: Iterator[int], requests: int
) -> list[asyncio.Task]:  # type: ignore[type-arg]
    """Put until so many more requests have ended."""
    end = len(heard.of(PutRecordsDone)) + requests
    tasks = []
    while len(heard.of(PutRecordsDone)) < end:
        tasks += [asyncio.create_task(producer.put(record)) for record in numbered([next(numbers) for _ in range(20)])]
        await asyncio.sleep(0.001)
    return tasks


@pytest.mark.parametrize("aggregation", [False, True], ids=["plain", "aggregated"])
async def test_credentials_that_expire_under_load(
    strict: LocalKinesis, monkeypatch: pytest.MonkeyPatch, aggregation: bool
) -> None:
    """For a while there are no others: what is put waits, and is written with the new ones, once."""
    heard = Heard()
    numbers = iter(range(1_000_000))
    wire = wire_of(strict, credentials=None)
    options = quick(aggregation=aggregation)
    async with Producer[OutRecord](STREAM, connection=wire, options=options, on_event=heard.append) as producer:
        tasks = await put_on(producer, heard, numbers, 10)
        expired = strict.faults.add(Fault(how="expired_token", operation="PutRecords"))
        tasks += await put_on(producer, heard, numbers, 5)
        assert expired.hits > 0
        assert not all(task.done() for task in tasks)
        use(monkeypatch, "NEWKEY")
        expired.clear()
        tasks += await put_on(producer, heard, numbers, 10)
        results = await asyncio.gather(*tasks)
        counts = producer.metrics()
    assert max(result.attempts for result in results) > 1
    assert not any(result.duplicates_possible for result in results)
    assert counts.requests_failed.keys() == {EXPIRED}
    assert heard.of(UnknownOutcome) == []
    assert (await read_all(strict)).counts() == {b"%d" % number: 1 for number in range(next(numbers))}


async def test_credentials_that_are_renewed_in_time(strict: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    """The request is signed again at once: the caller notices nothing."""
    heard = Heard()
    numbers = iter(range(1_000_000))
    wire = wire_of(strict, credentials=None)
    async with Producer[OutRecord](STREAM, connection=wire, options=quick(), on_event=heard.append) as producer:
        await asyncio.gather(*await put_on(producer, heard, numbers, 3))
        use(monkeypatch, "NEWKEY")
        expired = strict.faults.add(Fault(how="expired_token", operation="PutRecords", count=1))
        results = await asyncio.gather(*await put_on(producer, heard, numbers, 10))
        assert expired.spent
    assert {result.attempts for result in results} == {1}
    assert not [event for event in heard.of(PutRecordsDone) if event.error_code]


async def test_credentials_that_are_never_renewed(strict: LocalKinesis) -> None:
    """Records wait for their time to live, as others may be given; then they say what the last attempt met."""
    wire = wire_of(strict, credentials=None)
    async with Producer[OutRecord](STREAM, connection=wire, options=quick(record_ttl_s=0.3)) as producer:
        await producer.put(OutRecord(b"before", "key"))
        strict.faults.add(Fault(how="expired_token", operation="PutRecords"))
        with pytest.raises(RecordExpiredError) as expired:
            await producer.put(OutRecord(b"data", "key"))
        assert (expired.value.reason, expired.value.may_be_written) == (EXPIRED, False)
    assert (await read_all(strict)).counts() == {b"before": 1}


async def test_credentials_that_were_never_good(strict: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is set up wrong: the start says so, and so does a put without one, at once."""
    use(monkeypatch, "OTHERKEY")
    producer = Producer[OutRecord](STREAM, connection=wire_of(strict, credentials=None), options=quick())
    with pytest.raises(AccessDeniedError, match="UnrecognizedClientException"):
        await producer.start()
    with pytest.raises(RecordRefusedError) as refused:
        await producer.put(OutRecord(b"data", "key"))
    assert refused.value.reason == "UnrecognizedClientException"
    use(monkeypatch, "NEWKEY")  # and it goes on once that is mended
    await producer.start()
    assert (await producer.put(OutRecord(b"data", "key"))).attempts == 1
    await producer.close()


async def test_no_credentials_at_all(strict: LocalKinesis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    producer = Producer[OutRecord](STREAM, connection=wire_of(strict, credentials=None), options=quick())
    with pytest.raises(CredentialsError, match="no AWS credentials"):
        async with producer:
            pass
    other = Producer[OutRecord](STREAM, connection=wire_of(strict, credentials=None), options=quick())
    with pytest.raises(RecordRefusedError, match="no AWS credentials"):
        await other.put(OutRecord(b"data", "key"))
    await other.close()


async def test_permission_that_is_taken_away_and_given_back(local: LocalKinesis) -> None:
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        await producer.put(OutRecord(b"before", "key"))
        fault = local.faults.add(Fault(how="access_denied", operation="PutRecords"))
        waiting = asyncio.create_task(producer.put(OutRecord(b"data", "key")))
        await until(lambda: fault.hits > 1)
        assert not waiting.done()
        fault.clear()
        assert not (await waiting).duplicates_possible
    assert (await read_all(local)).counts() == {b"before": 1, b"data": 1}


async def test_permission_that_was_never_there(local: LocalKinesis) -> None:
    local.faults.add(Fault(how="access_denied", operation="PutRecords"))
    async with Producer[OutRecord](STREAM, connection=wire_of(local), options=quick()) as producer:
        with pytest.raises(RecordRefusedError) as refused:
            await producer.put(OutRecord(b"data", "key"))
        assert (refused.value.reason, refused.value.attempts) == ("AccessDeniedException", 1)
        assert not refused.value.may_be_written
