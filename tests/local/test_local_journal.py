"""The data folder: what was answered is there after any end of the process."""

from __future__ import annotations

import base64
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import BotoCoreError
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.local.clock import VirtualClock
from shardway.local.embedded import LocalKinesis
from shardway.local.journal import FORMAT, WASTE_BYTES_MIN, Journal, JournalError
from shardway.local.model import KinesisModel
from tests.local.botoclient import client_of
from tests.local.rawhttp import Wire, call_bytes

FIRST = "shardId-000000000000"


def call(local: Any, operation: str, **fields: Any) -> Any:
    with Wire(int(local.endpoint_url.rpartition(":")[2])) as wire:
        reply = wire.call(call_bytes(operation, fields))
        assert reply.status == 200, reply.body
        return reply.json() if reply.body else {}


def put(local: Any, stream: str, *payloads: bytes) -> None:
    records = [{"Data": base64.b64encode(data).decode(), "PartitionKey": "k"} for data in payloads]
    call(local, "PutRecords", StreamName=stream, Records=records)


def read(local: Any, stream: str, shard: str = FIRST) -> list[dict[str, Any]]:
    where = {"StreamName": stream, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
    iterator = call(local, "GetShardIterator", **where)["ShardIterator"]
    records: list[dict[str, Any]] = call(local, "GetRecords", ShardIterator=iterator)["Records"]
    return records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "data"


def test_streams_records_and_the_clock_are_there_again(folder: Path) -> None:
    with LocalKinesis(data=folder, streams={"orders": 1}) as local:
        put(local, "orders", b"one", bytes(range(256)))
        local.clock.advance(7200)
        put(local, "orders", b"three")
        call(local, "SplitShard", StreamName="orders", ShardToSplit=FIRST, NewStartingHashKey=str(2**127))
        before = read(local, "orders")
        shards = call(local, "ListShards", StreamName="orders")["Shards"]
        then = local.clock.now()
    with LocalKinesis(data=folder, streams={"orders": 1}) as local:
        assert read(local, "orders") == before
        assert call(local, "ListShards", StreamName="orders")["Shards"] == shards
        assert local.clock.now() == pytest.approx(then, abs=60)


def test_an_iterator_of_the_last_run_goes_on(folder: Path) -> None:
    with LocalKinesis(data=folder, streams={"orders": 1}) as local:
        put(local, "orders", b"one")
        where = {"StreamName": "orders", "ShardId": FIRST, "ShardIteratorType": "LATEST"}
        iterator = call(local, "GetShardIterator", **where)["ShardIterator"]
    with LocalKinesis(data=folder) as local:
        put(local, "orders", b"two")
        found = call(local, "GetRecords", ShardIterator=iterator)["Records"]
        assert [record["Data"] for record in found] == [base64.b64encode(b"two").decode()]


def test_a_reset_empties_the_folder_too(folder: Path) -> None:
    with LocalKinesis(data=folder) as local:
        call(local, "CreateStream", StreamName="made", ShardCount=1)
        local.clock.advance(3600)
        local.reset()
        then = local.clock.now()
    with LocalKinesis(data=folder) as local:
        assert call(local, "ListStreams")["StreamNames"] == []
        assert local.clock.now() == pytest.approx(then, abs=60)


@pytest.mark.parametrize("fsync", [False, True])
def test_what_was_answered_survives_sigkill_in_the_middle_of_writes(folder: Path, fsync: bool) -> None:
    answered: list[str] = []
    enough = threading.Event()
    service = LocalKinesis.spawn(data=folder, fsync=fsync, streams={"orders": 1}).start()

    def write() -> None:
        client = client_of(service.endpoint_url)
        try:
            while True:
                entries = [{"Data": b"x" * 20_000, "PartitionKey": "k"}] * 10
                done = client.put_records(StreamName="orders", Records=entries)["Records"]
                answered.extend(entry["SequenceNumber"] for entry in done)
                if len(answered) >= 100:
                    enough.set()
        except BotoCoreError:
            client.close()

    writer = threading.Thread(target=write)
    writer.start()
    assert enough.wait(60)
    service.kill()
    writer.join()
    with LocalKinesis(data=folder) as local:
        found = []
        where = {"StreamName": "orders", "ShardId": FIRST, "ShardIteratorType": "TRIM_HORIZON"}
        iterator = call(local, "GetShardIterator", **where)["ShardIterator"]
        while True:
            page = call(local, "GetRecords", ShardIterator=iterator)
            found += [record["SequenceNumber"] for record in page["Records"]]
            iterator = page["NextShardIterator"]
            if page["MillisBehindLatest"] == 0:
                break
    assert found[: len(answered)] == answered


def test_one_service_at_a_time_has_a_folder(folder: Path) -> None:
    with LocalKinesis(data=folder), pytest.raises(JournalError, match="in use by another"):
        LocalKinesis(data=folder).start()
    with LocalKinesis(data=folder):
        pass


# --- the file -------------------------------------------------------------------------------------


def new_model(clock: VirtualClock | None = None) -> KinesisModel:
    return KinesisModel(clock=clock or VirtualClock(1_700_000_000.0, running=False), rng=random.Random(1))


def written(folder: Path, texts: list[str]) -> bytes:
    """A journal of a stream and these records; the bytes of its file."""
    journal, model = Journal(folder), new_model()
    assert isinstance(model.clock, VirtualClock)
    journal.load(model, model.clock.advance)
    model.keep_in(journal.record)
    model.handle("CreateStream", b'{"StreamName": "s", "ShardCount": 1}')
    for text in texts:
        data = base64.b64encode(text.encode()).decode()
        model.handle("PutRecord", b'{"StreamName": "s", "PartitionKey": "k", "Data": "%b"}' % data.encode())
    journal.close()
    return (folder / "journal").read_bytes()


def loaded(folder: Path) -> tuple[int, list[str]]:
    """(number of changes, texts of the records) that the journal makes."""
    journal, model = Journal(folder), new_model()
    assert isinstance(model.clock, VirtualClock)
    try:
        changes = journal.load(model, model.clock.advance)
    finally:
        journal.close()
    return changes, texts_of(model)


def texts_of(model: KinesisModel) -> list[str]:
    import msgspec

    if "s" not in model.state.streams:
        return []
    where = b'{"StreamName": "s", "ShardId": "0", "ShardIteratorType": "TRIM_HORIZON"}'
    iterator = msgspec.json.decode(model.handle("GetShardIterator", where))["ShardIterator"]
    texts, behind = [], True
    while behind:
        page = msgspec.json.decode(model.handle("GetRecords", msgspec.json.encode({"ShardIterator": iterator})))
        texts += [base64.b64decode(record["Data"]).decode() for record in page["Records"]]
        iterator, behind = page.get("NextShardIterator"), page["MillisBehindLatest"]
    return texts


@settings(max_examples=60, deadline=None)
@given(cut=st.floats(0, 1), texts=st.lists(st.text(max_size=30), max_size=5))
def test_a_file_cut_off_anywhere_starts_with_what_is_whole(
    tmp_path_factory: pytest.TempPathFactory, cut: float, texts: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    whole = written(folder, texts)
    (folder / "journal").write_bytes(whole[: int(len(whole) * cut)])
    changes, found = loaded(folder)
    assert found == texts[: len(found)]
    assert loaded(folder) == (changes, found)  # the rest was cut off: it is the same again
    if cut == 1:
        assert found == texts


def test_damage_in_the_middle_is_not_taken_for_a_cut(folder: Path) -> None:
    whole = bytearray(written(folder, ["one", "two", "three"]))
    for at in (len(FORMAT) + 1, len(FORMAT) + 20, len(whole) - 1):
        damaged = bytearray(whole)
        damaged[at] ^= 1
        (folder / "journal").write_bytes(damaged)
        with pytest.raises(JournalError, match="damaged at byte"):
            loaded(folder)
    (folder / "journal").write_bytes(whole)
    assert loaded(folder)[1] == ["one", "two", "three"]


def test_another_file_is_not_taken_for_a_journal(folder: Path) -> None:
    folder.mkdir()
    (folder / "journal").write_bytes(b"something else, and long enough to be a journal")
    with pytest.raises(JournalError, match="not a journal of this version"):
        loaded(folder)


def test_trimmed_records_are_thrown_out_and_iterators_count_on(folder: Path) -> None:
    clock = VirtualClock(1_700_000_000.0, running=False)
    journal, model = Journal(folder), new_model(clock)
    journal.load(model, clock.advance)
    clock.on_advance(journal.record_clock)
    model.keep_in(journal.record)
    for name in ("s", "gone"):
        model.handle("CreateStream", b'{"StreamName": "%b", "ShardCount": 1}' % name.encode())
        data = base64.b64encode(b"x" * 200_000)
        for _ in range(WASTE_BYTES_MIN // 100_000):
            model.handle(
                "PutRecord", b'{"StreamName": "%b", "PartitionKey": "k", "Data": "%b"}' % (name.encode(), data)
            )
    model.handle("DeleteStream", b'{"StreamName": "gone"}')
    model.handle("ListStreams", b"{}")
    clock.advance(25 * 3600)
    kept = base64.b64encode(b"kept")
    model.handle("PutRecord", b'{"StreamName": "s", "PartitionKey": "k", "Data": "%b"}' % kept)
    journal.close()
    before = (folder / "journal").stat().st_size

    def again() -> KinesisModel:
        fresh_clock = VirtualClock(1_700_000_000.0, running=False)
        journal, model = Journal(folder), new_model(fresh_clock)
        journal.load(model, fresh_clock.advance)
        model.keep_in(journal.record)
        model.handle("PutRecord", b'{"StreamName": "s", "PartitionKey": "k", "Data": "%b"}' % kept)
        journal.close()
        return model

    first = again()
    assert texts_of(first) == ["kept", "kept"]
    assert (folder / "journal").stat().st_size < before // 20
    second = again()
    assert texts_of(second) == ["kept", "kept", "kept"]
    ends = [model.state.streams["s"].shards[0].log.end for model in (first, second)]
    assert ends[1] == ends[0] + 1
    assert list(second.state.streams) == ["s"]
