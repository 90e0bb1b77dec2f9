from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from shardway.errors import OptionError
from shardway.pipeline import decode_json, decode_text, deduplicate, late_rows, read_once, split
from shardway.pipeline.job.errors.failures import state_is_of_another_kind

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

SCHEMA = "id STRING, n INT"
FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "spark"


class Run:
    """Runs a query over what the stream holds, and keeps (batch id, row) of what it put out."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = str(folder / "checkpoint")
        self.rows: list[tuple[int, Any]] = []
        self.late = 0

    def all_there_is(self, frame: DataFrame) -> None:
        def keep(batch: DataFrame, batch_id: int) -> None:
            self.rows += [(batch_id, row) for row in batch.collect()]

        writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", self.checkpoint)
        query = writer.start()
        try:
            query.processAllAvailable()
            self.late += sum(late_rows(progress) for progress in query.recentProgress)
        finally:
            query.stop()

    @property
    def values(self) -> list[tuple[str, int]]:
        return [(row.value.id, row.value.n) for _, row in self.rows if row.value]

    @property
    def dead(self) -> list[tuple[int, bytes]]:
        return [(batch_id, bytes(row.data)) for batch_id, row in self.rows if row.reason]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def order(written: Any, name: str, n: int, *, at_s: float = 0.0) -> dict[str, Any]:
    record: dict[str, Any] = written.record(f'{{"id":"{name}","n":{n}}}', at_s=at_s)
    return record


def cached_in(spark: Any) -> set[int]:
    """The ids of the RDDs that are kept, each of them for a cached DataFrame that was computed."""
    return {int(number) for number in spark.sparkContext._jsc.getPersistentRDDs()}


def unique(stream: Any) -> DataFrame:
    return deduplicate(decode_json(stream.load(), SCHEMA), "value.id", window="10 minutes")


def test_the_first_of_equal_rows_stays_across_batches(stream: Any, written: Any, run: Run) -> None:
    stream.add([order(written, "a", 1), order(written, "b", 1)])
    stream.add([order(written, "a", 2, at_s=60), order(written, "c", 1, at_s=60), order(written, "c", 2, at_s=61)])
    run.all_there_is(unique(stream))
    assert sorted(run.values) == [("a", 1), ("b", 1), ("c", 1)]
    assert run.late == 0


def test_the_first_by_position_stays_within_a_batch(stream: Any, written: Any, run: Run) -> None:
    # Many keys with many duplicates each, so that an order that holds by chance would not.
    stream.add([order(written, f"id-{n % 500}", n) for n in range(5000)])
    run.all_there_is(unique(stream))
    assert sorted(run.values) == sorted((f"id-{n}", n) for n in range(500))


def test_what_was_seen_is_remembered_over_a_restart(stream: Any, written: Any, run: Run) -> None:
    stream.add([order(written, "a", 1)])
    run.all_there_is(unique(stream))
    stream.add([order(written, "a", 2), order(written, "b", 1)])
    run.all_there_is(unique(stream))
    assert run.values == [("a", 1), ("b", 1)]


def test_a_query_cannot_become_exact_later_and_says_what_to_do(stream: Any, written: Any, run: Run) -> None:
    stream.add([order(written, "a", 1)])
    run.all_there_is(unique(stream))
    assert run.values == [("a", 1)]
    stream.add([order(written, name, 2, at_s=120) for name in "abcd"])
    exact = deduplicate(decode_json(stream.load(), SCHEMA), "value.id", window="10 minutes", exact=True)
    with pytest.raises(StreamingQueryException) as caught:
        run.all_there_is(exact)
    assert state_is_of_another_kind(caught.value)
    assert run.values == [("a", 1)]


def test_dead_letters_pass_all_of_them_and_never_late(stream: Any, written: Any, run: Run) -> None:
    stream.add([written.record("broken", at_s=3600), written.record("broken", at_s=3600), order(written, "a", 1)])
    stream.add([order(written, "b", 1, at_s=7200)])
    stream.add([order(written, "c", 1, at_s=7201)])  # the watermark stands at 11:50 now
    stream.add([written.record("broken"), written.record("very broken", at_s=1), order(written, "late", 1)])
    run.all_there_is(unique(stream))
    assert [data for _, data in run.dead] == [b"broken", b"broken", b"broken", b"very broken"]
    assert sorted(run.values) == [("a", 1), ("b", 1), ("c", 1)]
    assert run.late == 1  # the order, not the dead letters


def test_dead_letters_do_not_move_the_watermark(stream: Any, written: Any, run: Run) -> None:
    stream.add([order(written, "a", 1)])
    stream.add([written.record("broken", at_s=86_400)])
    stream.add([written.record("broken", at_s=86_401)])
    stream.add([order(written, "a", 2, at_s=1), order(written, "b", 1, at_s=1)])
    run.all_there_is(unique(stream))
    assert run.values == [("a", 1), ("b", 1)]
    assert run.late == 0


def test_dead_letters_leave_no_state_behind(stream: Any, written: Any, run: Run) -> None:
    sizes: list[int] = []

    def watch(frame: DataFrame) -> None:
        query = frame.writeStream.format("noop").option("checkpointLocation", run.checkpoint).start()
        try:
            query.processAllAvailable()
            sizes.extend(int(progress["stateOperators"][0]["numRowsTotal"]) for progress in query.recentProgress)
        finally:
            query.stop()

    stream.add([order(written, "a", 1)])
    stream.add([order(written, "b", 1, at_s=5)])
    stream.add([written.record("broken", at_s=6) for _ in range(20)])
    stream.add([order(written, "c", 1, at_s=7)])
    watch(unique(stream))
    assert sizes[-1] == 3


def test_a_row_with_a_null_key_is_unique(stream: Any, written: Any, run: Run) -> None:
    stream.add([written.record('{"n":1}'), written.record('{"n":2}'), written.record('{"id":null,"n":3}')])
    run.all_there_is(unique(stream))
    assert sorted(row.value.n for _, row in run.rows) == [1, 2, 3]


def test_several_keys_are_one_key_together(stream: Any, written: Any, run: Run) -> None:
    stream.add([order(written, "a", 1), order(written, "a", 2), order(written, "a", 1), order(written, "b", 1)])
    run.all_there_is(deduplicate(decode_json(stream.load(), SCHEMA), ["value.id", "value.n"], window="1 hour"))
    assert sorted(run.values) == [("a", 1), ("a", 2), ("b", 1)]


def test_the_columns_stay_as_they_were(stream: Any, written: Any) -> None:
    decoded = decode_json(stream.load(), SCHEMA)
    assert deduplicate(decoded, "value.id", window="1 hour").columns == decoded.columns


def test_without_decoding_it_works_on_the_columns_there_are(stream: Any, written: Any, run: Run) -> None:
    stream.add([written.record("x", key="anna"), written.record("y", key="anna"), written.record("z", key="ben")])
    run.all_there_is(deduplicate(stream.load(), "partition_key", window="1 hour"))
    assert sorted(bytes(row.data) for _, row in run.rows) == [b"x", b"z"]


def test_a_batch_read_is_one_window(frame: Callable[..., DataFrame], written: Any) -> None:
    records = [
        order(written, "a", 1),
        order(written, "a", 2, at_s=86_400),
        written.record("broken"),
        written.record("broken"),
        order(written, "b", 1),
    ]
    rows = deduplicate(decode_json(frame(records[::-1]), SCHEMA), "value.id", window="1 second").collect()
    assert sorted((row.value.id, row.value.n) for row in rows if row.value) == [("a", 1), ("b", 1)]
    assert [bytes(row.data) for row in rows if row.reason] == [b"broken", b"broken"]


def test_keys_are_needed(frame: Callable[..., DataFrame], written: Any) -> None:
    with pytest.raises(OptionError, match="at least one key"):
        deduplicate(frame([written.record("x")]), [], window="1 hour")


@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_read_once_reads_the_stream_once_for_two_outputs(spark: Any, stream: Any, written: Any, tmp_path: Path) -> None:
    stream.add([written.record(b"good"), written.record(b"\xff"), written.record(b"better")])
    reads = spark.sparkContext.accumulator(0)

    def counted(pages: Any) -> Any:
        for page in pages:
            reads.add(page.num_rows)
            yield page

    found: list[tuple[int, int]] = []
    kept: list[set[int]] = []

    def write(batch: DataFrame, batch_id: int) -> None:
        before = cached_in(spark)
        with read_once(batch) as rows:
            good, dead = split(rows)
            found.append((good.count(), dead.count()))
            kept.append(cached_in(spark) - before)
        kept.append(cached_in(spark) - before)

    records = stream.load()
    decoded = decode_text(records.mapInArrow(counted, records.schema))
    writer = decoded.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    assert found == [(2, 1)]
    assert reads.value == 3
    inside, after = kept
    assert inside
    assert not after


def test_read_once_lets_go_of_the_batch_when_an_output_fails(spark: Any, frame: Any, written: Any) -> None:
    batch, before = frame([written.record("x")]), cached_in(spark)

    def write() -> None:
        with read_once(batch) as rows:
            assert rows.count() == 1
            assert cached_in(spark) > before
            raise ConnectionError("the output is away")

    with pytest.raises(ConnectionError):
        write()
    assert cached_in(spark) == before


def test_read_once_inside_of_another_leaves_the_batch_to_the_outer_one(spark: Any, frame: Any, written: Any) -> None:
    """A step that writes to two outputs by itself may be called by one that does, too."""
    batch, before = frame([written.record("x")]), cached_in(spark)
    with read_once(batch) as rows:
        with read_once(rows) as again:
            assert again.count() == 1
        inside = cached_in(spark)
        assert rows.count() == 1
        assert cached_in(spark) == inside > before
    assert cached_in(spark) == before
