"""Pages become rows, rows become record batches."""

from __future__ import annotations

import datetime as dt
import hashlib
import logging

import aws_kinesis_agg.aggregator as kpl
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import BinaryType, LongType, StringType, StructType, TimestampType

from shardway.aws.kinesis.shapes import WireRecord
from shardway.aws.options import ConnectionOptions
from shardway.core.aggregation.wire_format import MAGIC
from shardway.core.hashkeys import hash_key
from shardway.errors import AggregateError, OptionError
from shardway.model import HASH_KEY_MAX, OutsidePolicy
from shardway.spark.columns import COLUMNS, SCHEMA
from shardway.spark.options.read_options import ReadOptions
from shardway.spark.ranges import EndKind, ShardRange, TaskOptions
from shardway.spark.task.arrow_columns import arrow_schema, asked_columns
from shardway.spark.task.batcher import Batcher
from shardway.spark.task.rows import OutsideTally, RowMaker, timestamps

SHARD = "shardId-000000000003"
FIRST = 49590338271490256608559692538361571095921575989136588898
ARRIVAL_S = 1_700_000_000.123


def settings(**changes: object) -> TaskOptions:
    return msgspec.structs.replace(TaskOptions.of(ReadOptions(), ConnectionOptions()), **changes)


def shard_range(**changes: object) -> ShardRange:
    return ShardRange(SHARD, FIRST, int(ARRIVAL_S), EndKind.SHARD_END)._replace(**changes)  # type: ignore[arg-type]


def record(number: int, data: bytes, key: str | None = "k", at_s: float = ARRIVAL_S) -> WireRecord:
    return WireRecord(
        data=data, sequence_number=str(FIRST + number), approximate_arrival_timestamp=at_s, partition_key=key
    )


def aggregate(*users: tuple[str, str | None, bytes]) -> bytes:
    """As an independent implementation of the KPL's format writes it."""
    maker = kpl.RecordAggregator()
    for key, explicit, data in users:
        assert maker.add_user_record(key, data, explicit) is None
    made = maker.clear_and_get()
    return bytes(made.get_contents()[2])


def batches(
    records: list[WireRecord], range_: ShardRange | None = None, chosen: TaskOptions | None = None
) -> list[pa.RecordBatch]:
    chosen = chosen or settings()
    batcher = Batcher("orders", chosen)
    maker = RowMaker(range_ or shard_range(), chosen, OutsideTally())
    out = [batch for rows in maker.rows(records) for batch in batcher.add(rows, 0, rows.count)]
    return [*out, *batcher.rest()]


def rows_of(records: list[WireRecord], **changes: object) -> list[dict[str, object]]:
    return [row for batch in batches(records, chosen=settings(**changes)) for row in batch.to_pylist()]


def test_a_plain_record_is_a_row() -> None:
    assert rows_of([record(7, b"payload", "key")]) == [
        {
            "partition_key": "key",
            "data": b"payload",
            "stream": "orders",
            "shard_id": SHARD,
            "sequence_number": str(FIRST + 7),
            "sub_sequence_number": 0,
            "approximate_arrival_timestamp": dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC),
            "explicit_hash_key": None,
        }
    ]


def test_user_records_are_rows_between_plain_ones() -> None:
    packed = aggregate(("a", None, b"one"), ("b", "42", b"two"), ("a", str(HASH_KEY_MAX), b""))
    rows = rows_of([record(0, b"before"), record(1, packed, "a"), record(2, b"after", None)])
    assert [tuple(row[name] for name in COLUMNS if name not in ("stream", "shard_id")) for row in rows] == [
        ("k", b"before", str(FIRST), 0, ARRIVAL, None),
        ("a", b"one", str(FIRST + 1), 0, ARRIVAL, None),
        ("b", b"two", str(FIRST + 1), 1, ARRIVAL, "42"),
        ("a", b"", str(FIRST + 1), 2, ARRIVAL, str(HASH_KEY_MAX)),
        (None, b"after", str(FIRST + 2), 0, ARRIVAL, None),
    ]
    assert {(row["stream"], row["shard_id"]) for row in rows} == {("orders", SHARD)}


ARRIVAL = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, tzinfo=dt.UTC)


def framed(message: bytes) -> bytes:
    return MAGIC + message + hashlib.md5(message).digest()


HOSTILE = {
    "only the magic": MAGIC,
    "wrong digest": MAGIC + b"\x0a\x01a" + bytes(16),
    "truncated": aggregate(("a", None, b"x" * 50))[:-20],
    "garbage with a right digest": framed(b"\xff" * 40),
    "no user record": framed(b"\x0a\x01a"),
    "index outside the table": framed(b"\x0a\x01a\x1a\x05\x08\x07\x1a\x01x"),
    "length beyond the end": framed(b"\x1a\xff\xff\xff\xff\x0f"),
    "endless varint": framed(b"\x0a" + b"\xff" * 30),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_what_only_looks_like_an_aggregate_is_carried_through(data: bytes) -> None:
    good = aggregate(("a", None, b"one"), ("a", None, b"two"))
    rows = rows_of([record(0, data), record(1, good), record(2, data)])
    assert [row["data"] for row in rows] == [data, b"one", b"two", data]


def test_an_aggregate_of_an_aggregate_is_not_opened_again() -> None:
    inner = aggregate(("a", None, b"one"), ("a", None, b"two"))
    assert [row["data"] for row in rows_of([record(0, aggregate(("b", None, inner)))])] == [inner]


def test_a_large_aggregate_comes_in_bounded_parts() -> None:
    users = [(f"key-{n % 7}", None, b"%d" % n) for n in range(5_000)]
    packed = [aggregate(*users[n : n + 1_000]) for n in range(0, 5_000, 1_000)]
    records = [record(n, data) for n, data in enumerate(packed)]
    maker = RowMaker(shard_range(), settings(batch_rows_max=300), OutsideTally())
    parts = list(maker.rows(records))
    assert max(part.count for part in parts) <= 300
    got = [value for part in parts for value in part.arrays["data"].to_pylist()]
    assert got == [data for _, _, data in users]


# --- shards' hash ranges ---------------------------------------------------------------------------


LOW = (0, HASH_KEY_MAX // 2)
INSIDE = next(key for key in map(str, range(100)) if hash_key(key) <= LOW[1])
OUTSIDE = next(key for key in map(str, range(100)) if hash_key(key) > LOW[1])


def outside_case() -> list[WireRecord]:
    clean = aggregate((INSIDE, None, b"in"), (OUTSIDE, "5", b"in by its explicit key"))
    mixed = aggregate((INSIDE, None, b"in too"), (OUTSIDE, None, b"out"))
    return [record(0, clean), record(1, mixed), record(2, b"plain", OUTSIDE)]


def read_outside(policy: OutsidePolicy) -> tuple[list[bytes], OutsideTally]:
    tally = OutsideTally()
    maker = RowMaker(shard_range(hash_range=LOW), settings(aggregates_outside_range=policy), tally)
    return [data for part in maker.rows(outside_case()) for data in part.arrays["data"].to_pylist()], tally


def test_user_records_outside_the_range_are_delivered_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    data, tally = read_outside(OutsidePolicy.DELIVER)
    assert data == [b"in", b"in by its explicit key", b"in too", b"out", b"plain"]
    assert (tally.aggregates, tally.user_records, tally.dropped) == (1, 1, 0)
    with caplog.at_level(logging.WARNING):
        tally.warn("orders", settings())
    assert "stream orders: 1 user records of 1 aggregates lie outside" in caplog.text
    assert OUTSIDE + "'" not in caplog.text


def test_a_column_tells_the_rows_of_such_an_aggregate() -> None:
    asked = ("data", "aggregate_outside_range")
    outside = [
        (row["data"], row["aggregate_outside_range"])
        for batch in batches(outside_case(), shard_range(hash_range=LOW), settings(columns=asked))
        for row in batch.to_pylist()
    ]
    assert outside == [
        (b"in", False),
        (b"in by its explicit key", False),
        (b"in too", True),
        (b"out", True),
        (b"plain", False),
    ]
    (plain,) = batches([record(0, b"plain")], chosen=settings(columns=asked, columns_not_null=asked))
    assert plain.schema.field("aggregate_outside_range") == pa.field("aggregate_outside_range", pa.bool_(), False)
    assert plain.to_pylist() == [{"data": b"plain", "aggregate_outside_range": False}]
    wanted = StructType().add("aggregate_outside_range", "boolean")
    assert asked_columns(wanted) == (("aggregate_outside_range",), ())


def test_an_aggregate_with_a_user_record_outside_is_dropped_as_a_whole() -> None:
    data, tally = read_outside(OutsidePolicy.DROP)
    assert data == [b"in", b"in by its explicit key", b"plain"]
    assert (tally.aggregates, tally.user_records, tally.dropped) == (1, 1, 2)


def test_a_user_record_outside_fails_the_task_if_it_is_to() -> None:
    with pytest.raises(AggregateError, match=f"1 of 2 user records of the aggregate at sequence number {FIRST + 1}"):
        read_outside(OutsidePolicy.RAISE)


def test_a_page_that_is_dropped_as_a_whole_has_no_rows() -> None:
    maker = RowMaker(shard_range(hash_range=LOW), settings(aggregates_outside_range=OutsidePolicy.DROP), OutsideTally())
    assert list(maker.rows(outside_case()[1:2])) == []


def test_without_a_range_nothing_is_checked() -> None:
    tally = OutsideTally()
    maker = RowMaker(shard_range(), settings(aggregates_outside_range=OutsidePolicy.RAISE), tally)
    assert sum(part.count for part in maker.rows(outside_case())) == 5
    assert tally.aggregates == 0


# --- columns ---------------------------------------------------------------------------------------


TYPES = {"string": StringType(), "binary": BinaryType(), "bigint": LongType(), "timestamp": TimestampType()}


def struct(ddl: str) -> StructType:
    """Reads simple DDL; Spark's own reader needs a session."""
    schema = StructType()
    for column in ddl.lower().split(", "):
        name, spark_type, *not_null = column.split(" ")
        schema.add(name, TYPES[spark_type], nullable=not not_null)
    return schema


def spark_arrow(schema: StructType) -> pa.Schema:
    return to_arrow_schema(schema, timezone="UTC")


def test_the_schema_is_what_spark_makes_of_ours() -> None:
    ours = batches([record(0, b"x")])[0].schema
    assert ours.equals(spark_arrow(struct(SCHEMA)))
    assert ours.names == list(COLUMNS)


def test_a_users_schema_chooses_columns_and_their_order() -> None:
    wanted = struct("sequence_number string not null, data binary, partition_key string")
    names, not_null = asked_columns(wanted)
    assert (names, not_null) == (("sequence_number", "data", "partition_key"), ("sequence_number",))
    (batch,) = batches([record(0, b"x")], chosen=settings(columns=names, columns_not_null=not_null))
    assert batch.schema.equals(spark_arrow(wanted))
    assert batch.to_pylist() == [{"sequence_number": str(FIRST), "data": b"x", "partition_key": "k"}]


@given(st.lists(st.sampled_from(COLUMNS), unique=True, min_size=1))
def test_any_choice_of_columns_gives_the_same_values(columns: list[str]) -> None:
    packed = aggregate(("a", "7", b"one"), ("b", None, b"two"))
    for records in ([record(0, b"x"), record(1, b"y", None)], [record(0, b"x"), record(1, packed)]):
        full = rows_of(records)
        assert rows_of(records, columns=tuple(columns)) == [{name: row[name] for name in columns} for row in full]


def test_a_schema_with_faults_names_them_all() -> None:
    schema = struct("date binary, data string, shard_id string, shard_id string, partition_key string not null")
    with pytest.raises(OptionError) as caught:
        asked_columns(schema)
    assert caught.value.faults == [
        "the source has no column date (did you mean data?)",
        "column data is of type binary, not string",
        "column shard_id is asked for twice",
        "column partition_key can be null, so it cannot be declared NOT NULL",
    ]
    with pytest.raises(OptionError, match="asks for no column"):
        asked_columns(StructType([]))


def test_arrow_schema_of_everything() -> None:
    assert arrow_schema().field("approximate_arrival_timestamp").type == pa.timestamp("us", tz="UTC")
    assert all(field.nullable for field in arrow_schema())


@given(st.lists(st.integers(0, 4_102_444_800_000), min_size=1))
def test_arrival_times_are_exact_to_the_millisecond(millis: list[int]) -> None:
    got = timestamps([milli / 1000 for milli in millis])
    assert got.type == pa.timestamp("us", tz="UTC")
    assert got.cast(pa.int64()).to_pylist() == [milli * 1000 for milli in millis]


# --- bounds of batches -----------------------------------------------------------------------------


def sizes_of(batch: pa.RecordBatch) -> list[int]:
    keys, data = batch.column("partition_key").to_pylist(), batch.column("data").to_pylist()
    return [len(key or "") + len(value) for key, value in zip(keys, data, strict=True)]


records_strategy = st.lists(
    st.tuples(st.integers(0, 60), st.sampled_from([None, "", "k", "key"])), min_size=1, max_size=60
)


@given(records_strategy, st.integers(1, 80), st.integers(1, 12), st.integers(1, 20), st.integers(1, 20))
def test_batches_keep_their_bounds_and_do_not_depend_on_pages(
    shapes: list[tuple[int, str | None]], bytes_max: int, rows_max: int, page_a: int, page_b: int
) -> None:
    records = [record(n, bytes([n]) * size, key) for n, (size, key) in enumerate(shapes)]
    chosen = settings(batch_bytes_max=bytes_max, batch_rows_max=rows_max)

    def paged(page: int) -> list[pa.RecordBatch]:
        batcher = Batcher("orders", chosen)
        maker = RowMaker(shard_range(), chosen, OutsideTally())
        out = []
        for start in range(0, len(records), page):
            for rows in maker.rows(records[start : start + page]):
                out += list(batcher.add(rows, 0, rows.count))
        return [*out, *batcher.rest()]

    got = paged(page_a)
    assert [batch.to_pydict() for batch in got] == [batch.to_pydict() for batch in paged(page_b)]
    assert [row["data"] for batch in got for row in batch.to_pylist()] == [r.data for r in records]
    for batch in got:
        assert batch.num_rows <= rows_max
        assert sum(sizes_of(batch)) <= bytes_max or batch.num_rows == 1


def test_a_record_of_10_mib_makes_a_batch_of_its_own() -> None:
    large = bytes(10 * 2**20)
    got = batches([record(0, b"a"), record(1, large), record(2, b"b")])
    assert [batch.column("data").to_pylist() for batch in got] == [[b"a"], [large], [b"b"]]


def test_a_batch_of_several_shards_names_each() -> None:
    chosen = settings()
    batcher = Batcher("orders", chosen)
    for shard in ("shardId-000000000001", "shardId-000000000002"):
        (rows,) = RowMaker(shard_range(shard_id=shard), chosen, OutsideTally()).rows([record(0, b"x"), record(1, b"y")])
        assert list(batcher.add(rows, 1, 1)) == []
    (batch,) = batcher.rest()
    assert batch.column("shard_id").to_pylist() == ["shardId-000000000001", "shardId-000000000002"]
    assert batch.column("data").to_pylist() == [b"y", b"y"]


def test_batches_survive_arrow_ipc() -> None:
    """Slices of page arrays are what Spark's worker writes to its socket."""
    chosen = settings(batch_rows_max=3)
    got = batches([record(n, b"%d" % n, f"key-{n}") for n in range(10)], chosen=chosen)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, got[0].schema) as writer:
        for batch in got:
            writer.write_batch(batch)
    back = pa.ipc.open_stream(sink.getvalue()).read_all()
    assert back.to_pylist() == [row for batch in got for row in batch.to_pylist()]


@given(records_strategy, st.data())
def test_fitting_and_reaching_agree_with_a_count(shapes: list[tuple[int, str | None]], data: st.DataObject) -> None:
    records = [record(n, bytes(size), key) for n, (size, key) in enumerate(shapes)]
    (rows,) = RowMaker(shard_range(), settings(), OutsideTally()).rows(records)
    sizes = [size + len(key or "") for size, key in shapes]
    start = data.draw(st.integers(0, len(sizes) - 1))
    room, rows_max = data.draw(st.integers(0, 200)), data.draw(st.integers(0, 10))
    fitting = rows.fitting(start, room, rows_max)
    assert sum(sizes[start : start + fitting]) <= room
    assert fitting == min(rows_max, len(sizes) - start) or sum(sizes[start : start + fitting + 1]) > room
    wanted = data.draw(st.integers(1, 200))
    reaching = rows.reaching(start, wanted)
    assert sum(sizes[start : start + reaching - 1]) < wanted
    assert start + reaching == len(sizes) or sum(sizes[start : start + reaching]) >= wanted
    assert rows.bytes_of(start, reaching) == sum(sizes[start : start + reaching])
