"""Any program may put records into a stream of dead letters: what they hold is opened and read beside the loop."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from shardway.core.aggregation.writer import encode_aggregate
from shardway.core.ledger.letter import VALUES_MAX, Letter, NotALetterError
from shardway.core.log import user_records
from shardway.core.log.user_records import OPENED_AT_ONCE_BYTES_MAX
from shardway.local import LocalKinesis
from shardway.model import Position
from shardway.runtime.dead_letters import reading
from shardway.runtime.dead_letters.reading import BadLetter, letters_of_stream, original
from tests.off_loop import Threads
from tests.runtime.feeds.feeding_kit import SHARD_ID, STREAM, source_of

if TYPE_CHECKING:
    from collections.abc import Iterator

USER_RECORDS = 8_000


@pytest.fixture
def local() -> Iterator[LocalKinesis]:
    with LocalKinesis(streams={STREAM: 1}) as service:
        yield service


def letter(position: Position, **more: Any) -> Letter:
    now = dt.datetime.now(dt.UTC)
    return Letter(
        stream=STREAM, shard_id=SHARD_ID, position=position, attempts=1, error_type="E", written_at=now, **more
    )


async def put(local: LocalKinesis, data: bytes) -> int:
    asked = msgspec.json.encode({"StreamName": STREAM, "PartitionKey": "a", "Data": data})
    return int(msgspec.json.decode(local.ask("PutRecord", asked))["SequenceNumber"])


async def test_no_record_among_the_letters_is_opened_on_the_loop(
    local: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = encode_aggregate([("a", b"%018d" % one, None) for one in range(USER_RECORDS)])
    assert len(large) > OPENED_AT_ONCE_BYTES_MAX
    await put(local, large)
    await put(local, letter(Position(7, 1)).to_json())
    opening = Threads(monkeypatch, user_records, "open_aggregate", OPENED_AT_ONCE_BYTES_MAX)
    parsing = Threads(monkeypatch, reading, "_letter")
    async with source_of(local) as source:
        found = [one async for one in letters_of_stream(source)]
    assert [one.position for one in found if isinstance(one, Letter)] == [Position(7, 1)]
    assert sum(isinstance(one, BadLetter) for one in found) == USER_RECORDS
    assert (opening.calls, opening.on_loop) == (1, 0)
    assert (parsing.calls, parsing.on_loop) == (USER_RECORDS + 1, 0)


async def test_the_record_of_a_letter_is_found_in_a_large_aggregate_beside_the_loop(
    local: LocalKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = await put(local, encode_aggregate([("a", b"%018d" % one, None) for one in range(USER_RECORDS)]))
    opening = Threads(monkeypatch, user_records, "open_aggregate", OPENED_AT_ONCE_BYTES_MAX)
    async with source_of(local) as source:
        last, behind = [
            await original(source, letter(Position(number, sub))) for sub in (USER_RECORDS - 1, USER_RECORDS)
        ]
    assert last is not None
    assert (last.data, behind) == (b"%018d" % (USER_RECORDS - 1), None)
    assert (opening.calls, opening.on_loop) == (2, 0)


@pytest.mark.parametrize("value", [b"[]", b"{}", b'{"a":1}', b"1.5"])
def test_json_of_many_values_is_no_letter_and_is_not_read(value: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten MiB of empty lists take more than two seconds, which no thread gives away."""
    monkeypatch.setattr("shardway.core.ledger.letter.json.loads", lambda line: pytest.fail("it was read"))
    with pytest.raises(NotALetterError, match="more than 100000 values"):
        Letter.from_json(b"[" + b",".join([value] * (VALUES_MAX + 1)) + b"]")


def test_a_letter_may_quote_a_whole_record() -> None:
    whole = letter(Position(7, 1), error_message="[{," * 4000, data=b"[{," * 1_000_000)
    assert Letter.from_json(whole.to_json()).data == whole.data
