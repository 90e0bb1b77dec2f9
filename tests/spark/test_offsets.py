from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.spark.offsets import INITIAL, OffsetFormatError, RangeStart, StreamOffset, is_initial, long_id, short_id
from shardway.spark.positions import SILENCE_MARGIN_MS, Kind, ShardPosition, pack, unpack

ARN = "arn:aws:kinesis:us-east-1:123456789012:stream/orders"
SEQUENCE_NUMBER = 49680427684293065062083562537002582286095000649863266306

numbers = st.integers(0, 2**190)
times = st.integers(0, 2**45)
positions = st.one_of(
    st.builds(ShardPosition, st.sampled_from([Kind.NEXT, Kind.AFTER]), times, numbers),
    st.builds(ShardPosition, st.just(Kind.SINCE), times, st.none() | numbers),
    st.builds(ShardPosition, st.sampled_from([Kind.BEGINNING, Kind.ENDED]), times, st.none()),
)
shard_ids = st.integers(0, 10**12 - 1).map(lambda n: f"shardId-{n:012d}") | st.sampled_from(["shardId-x", "s"])


@given(numbers)
def test_a_packed_sequence_number_comes_back(number: int) -> None:
    assert unpack(pack(number)) == number


def test_a_sequence_number_of_56_digits_takes_32_characters() -> None:
    assert len(pack(10**56 - 1)) == 32
    assert len(pack(SEQUENCE_NUMBER)) == 32


@given(positions)
def test_a_position_comes_back(position: ShardPosition) -> None:
    assert ShardPosition.decode(position.encode()) == position


@given(shard_ids)
def test_a_shard_id_comes_back(shard_id: str) -> None:
    assert long_id(short_id(shard_id)) == shard_id


@given(
    st.dictionaries(shard_ids, st.tuples(positions, st.none() | st.builds(RangeStart, numbers, times))),
    times,
    st.integers(1, 1000),
)
def test_an_offset_comes_back_through_json_in_one_canonical_form(
    shards: dict[str, tuple[ShardPosition, RangeStart | None]], cut_ms: int, tasks: int
) -> None:
    offset = StreamOffset(
        stream_arn=ARN,
        created_s=1_763_722_800,
        cut_ms=cut_ms,
        shards={shard_id: position for shard_id, (position, _) in shards.items()},
        starts={shard_id: start for shard_id, (_, start) in shards.items() if start is not None},
        tasks=tasks,
    )
    text = json.dumps(offset.to_dict())
    again = StreamOffset.from_dict(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_dict()) == text
    assert list(offset.to_dict()["shards"]) == sorted(offset.to_dict()["shards"])


def test_ten_thousand_shards_stay_under_a_megabyte() -> None:
    shards, starts = {}, {}
    for number in range(10_000):
        shard_id = f"shardId-{number:012d}"
        shards[shard_id] = ShardPosition(Kind.NEXT, 1_763_722_800_123, SEQUENCE_NUMBER + number)
        starts[shard_id] = RangeStart(SEQUENCE_NUMBER + number, 1_763_722_799_000)
    offset = StreamOffset(stream_arn=ARN, created_s=1, cut_ms=2, shards=shards, starts=starts)
    assert len(json.dumps(offset.to_dict())) < 1_000_000


@pytest.mark.parametrize(
    "value",
    [
        {"v": 1, "shards": {}},
        {"v": 1, "arn": ARN, "created": 1, "cut": 1, "shards": {"0": "?AA"}, "tasks": 1},
        {"v": 1, "arn": ARN, "created": 1, "cut": 1, "shards": {"0": "@AA"}, "tasks": 1},
        {"v": 1, "arn": ARN, "created": 1, "cut": 1, "shards": {"0": 5}, "tasks": 1},
    ],
)
def test_a_damaged_offset_is_told(value: dict[str, object]) -> None:
    with pytest.raises(OffsetFormatError, match="damaged offset in the Spark checkpoint directory"):
        StreamOffset.from_dict(value)


def test_an_offset_of_a_newer_format_is_told() -> None:
    with pytest.raises(OffsetFormatError, match="offset of format 2"):
        StreamOffset.from_dict({"v": 2})


def test_the_offset_before_the_first_batch_says_nothing() -> None:
    assert is_initial(INITIAL)
    assert is_initial(None)
    assert not is_initial(StreamOffset(stream_arn=ARN, created_s=1, cut_ms=0).to_dict())


def test_silence_moves_the_witness_and_keeps_what_was_read() -> None:
    read = ShardPosition(Kind.AFTER, 1_000, 77)
    assert read.idle_until(1_000 + SILENCE_MARGIN_MS) == read
    later = read.idle_until(2_000 + SILENCE_MARGIN_MS)
    assert later == ShardPosition(Kind.SINCE, 2_000, 77)
    assert later.idle_until(1_500 + SILENCE_MARGIN_MS) == later


def test_a_position_at_an_unread_record_is_not_moved_by_silence() -> None:
    unread = ShardPosition(Kind.NEXT, 1_000, 77)
    assert unread.idle_until(10**9) == unread
    assert unread.read_up_to == 76
