"""Filling containers: sizes that are exact, bounds that hold, bytes that other writers write too."""

from __future__ import annotations

from hashlib import md5

import pytest
from aws_kinesis_agg import aggregator as aws_aggregator
from hypothesis import given
from hypothesis import strategies as st

from shardway.core.aggregation.aggregate import AggregateLimits
from shardway.core.aggregation.reader import open_aggregate
from shardway.core.aggregation.wire_format import MAGIC
from shardway.core.aggregation.writer import CONTAINER_PARTITION_KEY, Aggregator, Container, encode_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX, hash_key
from shardway.errors import AggregateError
from tests.core.aggregation.aggregate_sizes import framed_bytes_with
from tests.core.aggregation.kpl_schema import AggregatedRecord

keys = st.sampled_from(["a", "b", "order-17", "ü", "k" * 127, "k" * 128, "é" * 64, "\U0001f41f" * 256]) | st.text(
    st.characters(exclude_categories=["Cs"]), min_size=1, max_size=256
)
datas = st.binary(max_size=40) | st.sampled_from([b"x" * size for size in (121, 122, 127, 128, 129, 16_384)])
user_records = st.tuples(keys, datas, st.none() | st.integers(0, HASH_KEY_MAX) | st.integers(0, 3))


def protobuf_writes(records: list[tuple[str, bytes, int | None]]) -> bytes:
    """The same aggregate by Google's library: tables in which each entry is once, in the order of their first use."""
    message = AggregatedRecord()
    key_table: list[str] = []
    hash_table: list[str] = []
    for key, data, explicit in records:
        if key not in key_table:
            key_table.append(key)
        one = message.records.add(partition_key_index=key_table.index(key), data=data)
        if explicit is not None:
            if str(explicit) not in hash_table:
                hash_table.append(str(explicit))
            one.explicit_hash_key_index = hash_table.index(str(explicit))
    message.partition_key_table.extend(key_table)
    message.explicit_hash_key_table.extend(hash_table)
    body: bytes = message.SerializeToString()
    return MAGIC + body + md5(body).digest()


def finished(aggregator: Aggregator) -> Container:
    """Of one that is not empty."""
    container = aggregator.finish()
    assert container is not None
    return container


def contents(container: Container) -> list[tuple[str, bytes, int | None]]:
    aggregate = open_aggregate(container.data)
    if aggregate is None:
        return [(container.partition_key, container.data, None)]
    return [(one.partition_key, one.data, one.explicit_hash_key) for one in aggregate]


@given(st.lists(user_records, min_size=1, max_size=30))
def test_writes_the_bytes_that_protobuf_writes(records: list[tuple[str, bytes, int | None]]) -> None:
    assert encode_aggregate(records) == protobuf_writes(records)


def test_writes_what_aws_own_writer_writes() -> None:
    theirs = aws_aggregator.RecordAggregator()
    records = [(f"key-{number % 7}", b"data-%d" % number, None) for number in range(50)]
    for key, data, _ in records:
        theirs.add_user_record(key, data)
    theirs_message = open_aggregate(theirs.clear_and_get().get_contents()[2])
    ours = open_aggregate(encode_aggregate(records))
    assert ours is not None
    assert theirs_message is not None
    assert list(ours) == list(theirs_message)


@given(st.lists(user_records, min_size=1, max_size=30))
def test_the_size_is_exact_before_and_after_each_addition(records: list[tuple[str, bytes, int | None]]) -> None:
    aggregator = Aggregator(bytes_max=10**9)
    for number, (key, data, explicit) in enumerate(records, 1):
        foretold = framed_bytes_with(aggregator, key, len(data), explicit)
        assert aggregator.add(key, data, explicit)
        assert aggregator.framed_bytes == foretold == len(encode_aggregate(records[:number]))
        assert len(aggregator) == aggregator.user_records == number


@given(st.lists(user_records, min_size=1, max_size=40), st.integers(1, 2000), st.integers(1, 10))
def test_containers_hold_everything_in_order_within_their_bounds(
    records: list[tuple[str, bytes, int | None]], bytes_max: int, records_max: int
) -> None:
    aggregator = Aggregator(bytes_max=bytes_max, records_max=records_max)
    containers: list[tuple[int, Container]] = []
    for number, (key, data, explicit) in enumerate(records):
        before = aggregator.framed_bytes
        if not aggregator.add(key, data, explicit):
            assert aggregator.framed_bytes == before
            foretold = framed_bytes_with(aggregator, key, len(data), explicit)
            assert foretold > bytes_max or aggregator.user_records == records_max
            containers.append((number, finished(aggregator)))
            assert aggregator.add(key, data, explicit)
    containers.append((len(records), finished(aggregator)))
    assert aggregator.finish() is None
    start = 0
    for stop, container in containers:
        held = records[start:stop]
        key, _, explicit = held[0]
        assert container.user_records == len(held) <= records_max
        assert container.explicit_hash_key == (hash_key(key) if explicit is None else explicit)
        if len(held) == 1:
            assert container.data == held[0][1]
            assert container.partition_key == key
        else:
            assert contents(container) == held
            assert container.partition_key == CONTAINER_PARTITION_KEY
            assert len(container.data) <= bytes_max
        start = stop
    assert start == len(records)


@given(st.lists(st.tuples(keys, datas), max_size=60), st.integers(1, 2000), st.integers(1, 30), st.data())
def test_adding_by_columns_is_adding_one_by_one(
    records: list[tuple[str, bytes]], bytes_max: int, records_max: int, data: st.DataObject
) -> None:
    key_column, data_column = [key for key, _ in records], [content for _, content in records]
    start = data.draw(st.integers(0, len(records)))
    stop = data.draw(st.integers(start, len(records)))
    by_column, one_by_one = (Aggregator(bytes_max=bytes_max, records_max=records_max) for _ in range(2))
    number = start
    while number < stop:
        reached = by_column.add_many(key_column, data_column, number, stop)
        while number < stop and one_by_one.add(key_column[number], data_column[number]):
            number += 1
        assert reached == number
        assert by_column.framed_bytes == one_by_one.framed_bytes
        assert by_column.finish() == one_by_one.finish()


def test_adding_by_columns_knows_more_keys_than_are_usual() -> None:
    key_column = [f"key-{number % 3000}" for number in range(7000)]
    data_column = [b"%d" % number for number in range(7000)]
    aggregator = Aggregator(bytes_max=10**6)
    assert aggregator.add_many(key_column, data_column) == 7000
    assert finished(aggregator).data == encode_aggregate(
        (key, data, None) for key, data in zip(key_column, data_column, strict=True)
    )


columns_bounds = st.tuples(st.integers(200, 6000), st.integers(1, 400))
column_keys = st.sampled_from([*(f"key-{number}" for number in range(300)), "ü", "k" * 127, "k" * 128, "é" * 64])
column_sizes = st.sampled_from([(0, 0), (1, 1), (100, 100), (127, 128), (0, 40), (50, 2000)])


@given(columns_bounds, st.lists(column_keys, min_size=50, max_size=50, unique=True), column_sizes, st.data())
def test_columns_of_any_sizes_fill_the_containers_that_adding_one_by_one_fills(
    bounds: tuple[int, int], some_keys: list[str], sizes: tuple[int, int], data: st.DataObject
) -> None:
    """More user records than fit into a container, of one size and of many, with few keys and with ever new ones."""
    random = data.draw(st.randoms(use_true_random=False))
    count, ever_new = data.draw(st.integers(1, 500)), data.draw(st.sampled_from([0, 0.5, 1]))
    key_column = [
        f"new-{number}" if random.random() < ever_new else random.choice(some_keys) for number in range(count)
    ]
    data_column = [b"x" * random.randint(*sizes) for _ in range(count)]
    by_column, one_by_one = (Aggregator(bytes_max=bounds[0], records_max=bounds[1]) for _ in range(2))
    number = 0
    while number < count:
        stop = min(count, number + data.draw(st.sampled_from([5, 60, 500])))
        reached = by_column.add_many(key_column, data_column, number, stop)
        while number < stop and one_by_one.add(key_column[number], data_column[number]):
            number += 1
        assert reached == number
        assert by_column.framed_bytes == one_by_one.framed_bytes
        if number < stop:
            full = finished(by_column)
            assert full == one_by_one.finish()
            assert len(full.data) <= bounds[0] or full.user_records == 1
    assert by_column.finish() == one_by_one.finish()


@given(
    st.lists(
        st.tuples(keys, st.integers(0, 3))
        | st.lists(st.tuples(keys, datas), min_size=1, max_size=40)
        | st.tuples(keys, st.integers(8, 60), st.integers(0, 200)),
        max_size=12,
    )
)
def test_columns_and_single_user_records_mix(
    steps: list[tuple[str, int] | list[tuple[str, bytes]] | tuple[str, int, int]],
) -> None:
    mixed, one_by_one = Aggregator(bytes_max=10**7), Aggregator(bytes_max=10**7)
    for step in steps:
        rows: list[tuple[str, bytes, int | None]]
        if isinstance(step, list):
            rows = [(key, data, None) for key, data in step]
        elif len(step) == 3:
            key, count, size = step
            rows = [(f"{key[:200]}-{number}", b"x" * size, None) for number in range(count)]
        else:
            rows = [(step[0], b"explicit", step[1])]
        if len(rows) == 1:
            assert mixed.add(*rows[0])
        else:
            assert mixed.add_many([key for key, _, _ in rows], tuple(data for _, data, _ in rows)) == len(rows)
        for row in rows:
            foretold = framed_bytes_with(one_by_one, row[0], len(row[1]), row[2])
            assert one_by_one.add(*row)
            assert one_by_one.framed_bytes == foretold
        assert mixed.framed_bytes == foretold
        assert framed_bytes_with(mixed, "a new key", 10, 2) == framed_bytes_with(one_by_one, "a new key", 10, 2)
    assert mixed.finish() == one_by_one.finish()


@pytest.mark.parametrize("bad", ["", "secret" * 50, "secret\ud800"])
@pytest.mark.parametrize("place", [0, 3, 50, 99])
def test_a_column_is_added_up_to_a_key_that_is_refused(bad: str, place: int) -> None:
    key_column = [f"key-{number}" for number in range(100)]
    key_column[place] = bad
    aggregator = Aggregator()
    for _ in range(2):  # again from there on: the same
        with pytest.raises(AggregateError, match="partition key"):
            aggregator.add_many(key_column, [b"data"] * 100, aggregator.user_records)
        assert len(aggregator) == place
    assert aggregator.add_many(key_column, [b"data"] * 100, place + 1) == 100
    del key_column[place]
    assert contents(finished(aggregator)) == [(key, b"data", None) for key in key_column]


def test_a_column_that_fails_leaves_no_trace() -> None:
    aggregator = Aggregator()
    aggregator.add("good", b"data")
    key_column = [f"key-{number}" for number in range(20)]
    with pytest.raises(TypeError):
        aggregator.add_many([*key_column, 17], [b"data"] * 21)  # type: ignore[list-item]  # no key
    with pytest.raises(TypeError):
        aggregator.add_many(key_column, [b"data"] * 19 + ["text"])  # type: ignore[list-item]  # no bytes
    with pytest.raises(IndexError, match="stop is 21"):
        aggregator.add_many(["k"] * 20, [b"data"] * 20, 0, 21)
    with pytest.raises(IndexError, match="20 partition keys and 21 datas"):
        aggregator.add_many(["k"] * 20, [b"data"] * 21)
    assert aggregator.framed_bytes == 20 + 6 + 10
    aggregator.add("other", b"data")
    assert contents(finished(aggregator)) == [("good", b"data", None), ("other", b"data", None)]


def test_columns_fill_containers_to_the_last_user_record_when_sizes_change_abruptly() -> None:
    data_column = [b"x" * (10 if number // 500 % 2 else 1500) for number in range(3000)]
    key_column = [f"key-{number % 100}" for number in range(3000)]
    aggregator, number = Aggregator(), 0
    while (reached := aggregator.add_many(key_column, data_column, number)) < 3000:
        assert framed_bytes_with(aggregator, key_column[reached], len(data_column[reached])) > aggregator.bytes_max
        assert contents(finished(aggregator)) == [
            (key_column[at], data_column[at], None) for at in range(number, reached)
        ]
        number = reached


def test_columns_of_more_sizes_and_keys_than_headers_are_ready_for() -> None:
    for size in range(0, 2000, 40):
        rows = [(f"key-{number % 1500}", b"x" * size, None) for number in range(1600)]
        aggregator = Aggregator(bytes_max=10**7)
        assert aggregator.add_many([key for key, _, _ in rows[:20]], [data for _, data, _ in rows[:20]]) == 20
        assert aggregator.add_many([key for key, _, _ in rows], [data for _, data, _ in rows], 20) == 1600
        assert finished(aggregator).data == encode_aggregate(rows)


def test_a_column_of_more_keys_than_indexes_of_two_bytes() -> None:
    key_column = [f"{number}" for number in range(20_000)]
    aggregator = Aggregator(bytes_max=10**7)
    assert aggregator.add_many(key_column, [b""] * 20_000) == 20_000
    assert finished(aggregator).data == encode_aggregate((key, b"", None) for key in key_column)


def test_adding_by_columns_stops_where_the_container_is_full() -> None:
    aggregator = Aggregator(bytes_max=1000)
    reached = aggregator.add_many(["k"] * 100, [b"x" * 94] * 100)
    assert aggregator.framed_bytes == 20 + 3 + reached * 100
    assert reached == aggregator.user_records == 9
    assert aggregator.add_many(["k"] * 100, [b"x" * 94] * 100, reached) == reached
    assert aggregator.add_many(["k"] * 100, [b""] * 100, reached, reached + 3) == reached + 3


def test_a_user_record_of_any_size_fits_into_an_empty_container_and_nothing_beside_a_large_one() -> None:
    aggregator = Aggregator(bytes_max=100)
    large = b"x" * 5000
    assert aggregator.add("k", large)
    assert not aggregator.add("k", b"")
    assert aggregator.add_many(["k"], [b""]) == 0
    assert aggregator.finish() == Container(large, "k", hash_key("k"), 1)


def test_a_lone_user_record_that_is_an_aggregate_is_framed_so_that_readers_give_it_back() -> None:
    inner = encode_aggregate([("inner", b"x", None)])
    aggregator = Aggregator()
    aggregator.add("outer", inner, 7)
    container = finished(aggregator)
    assert container.explicit_hash_key == 7
    assert container.partition_key == CONTAINER_PARTITION_KEY
    assert contents(container) == [("outer", inner, 7)]


def test_a_lone_user_record_that_only_looks_like_an_aggregate_is_sent_as_it_is() -> None:
    lookalike = MAGIC + b"x" * 40
    aggregator = Aggregator()
    aggregator.add("k", lookalike)
    assert finished(aggregator).data == lookalike


def test_shapes_beyond_those_remembered_are_worked_out_anew() -> None:
    records = [("k", b"x" * size, None) for size in range(5000)]
    opened = open_aggregate(encode_aggregate(records), AggregateLimits(bytes_max=20_000_000))
    assert opened is not None
    assert opened.datas == [data for _, data, _ in records]


@pytest.mark.parametrize(
    ("key", "explicit", "text"),
    [
        ("", None, "1 to 256 characters, not 0"),
        ("secret" * 50, None, "1 to 256 characters, not 300"),
        ("secret\ud800", None, "no UTF-8 form"),
        ("secret", -1, "between 0 and"),
        ("secret", HASH_KEY_MAX + 1, "between 0 and"),
    ],
)
def test_keys_that_kinesis_does_not_take_are_refused_and_nothing_is_added(
    key: str, explicit: int | None, text: str
) -> None:
    aggregator = Aggregator()
    for added in range(2):
        with pytest.raises(AggregateError, match=text) as raised:
            aggregator.add(key, b"data", explicit)
        assert "secret" not in str(raised.value)
        assert len(aggregator) == added
        aggregator.add("good", b"data")
    if explicit is None:
        with pytest.raises(AggregateError, match=text):
            aggregator.add_many(["good", key], [b"one more", b"data"])
        assert len(aggregator) == 3
    held = contents(finished(aggregator))
    assert [key for key, _, _ in held] == ["good"] * len(held)


def test_an_aggregate_of_nothing_is_refused() -> None:
    assert Aggregator().finish() is None
    with pytest.raises(AggregateError, match="at least one"):
        encode_aggregate([])


@pytest.mark.parametrize("bounds", [{"bytes_max": 0}, {"records_max": 0}])
def test_bounds_below_one_are_refused(bounds: dict[str, int]) -> None:
    with pytest.raises(ValueError, match="at least 1"):
        Aggregator(**bounds)
