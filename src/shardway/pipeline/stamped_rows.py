"""Open the envelopes of stamped rows, and remove duplicates by their stamps.

``shardway.spark.stamps`` describes an envelope and makes it; Spark's own functions open it here, in the JVM.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as fn

from shardway.errors import OptionError
from shardway.pipeline.batches import position_order
from shardway.pipeline.dataframes import columns_of, is_stream, with_column, without
from shardway.pipeline.deduplication import ALONE, ARRIVAL, RANK, deduplicate
from shardway.spark import stamps
from shardway.spark.columns import POSITION

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


STAMP = "stamp"
"""The column that says what was on the envelope."""
_DATA, _LABEL = "data", "_shardway_label"


def open_stamps(records: DataFrame) -> DataFrame:
    """Open the envelopes of records: ``data`` becomes what was inside, and a column ``stamp`` says what was on the
    envelope.

    ``stamp`` is a struct: ``stream``, ``shard_id``, ``sequence_number``, ``sub_sequence_number`` of the record that
    the row was made from, and ``row_index`` where the writer numbered such rows; or ``key``, where rows are stamped
    by a key column. It is null for a record in no envelope, which stays as it is. An envelope in an envelope, as
    written by a pipeline that stamps what was stamped, stays closed.

    This removes no row; ``deduplicate_by_stamps`` does. A query fails on an envelope of a version that is not known
    here.
    """
    _check(records)
    return without(_open(records), _LABEL)


def deduplicate_by_stamps(records: DataFrame, *, window: str, time: str = ARRIVAL) -> DataFrame:
    """Open the envelopes of records, as ``open_stamps`` does, and keep only the first of those with equal stamps.

    ``window`` is a time span such as ``"1 hour"``: longer than the longest time between a batch that was broken off
    and its next run, so as long as the longest outage of the job that writes. Records in no envelope are never
    duplicates of one another.

    On a stream this does what ``deduplicate`` does, by the stamp: Spark keeps one state row per record for about
    ``window``. On a batch read the whole DataFrame is one window, and the first is the one with the lowest position.
    Rows come out in any order: ``sort_by_key`` puts a batch into the order in which each key was written.
    """
    _check(records)
    opened = _open(records)
    if is_stream(records):
        return without(deduplicate(opened, _LABEL, window=window, time=time), _LABEL)
    alone = fn.when(fn.col(_LABEL).isNull(), fn.concat_ws("/", *POSITION))
    order = Window.partitionBy(_LABEL, ALONE).orderBy(*position_order())
    ranked = with_column(with_column(opened, ALONE, alone), RANK, fn.row_number().over(order))
    return without(ranked.where(fn.col(RANK) == 1), _LABEL, ALONE, RANK)


def _check(records: DataFrame) -> None:
    columns = columns_of(records)
    if columns is None:
        return
    missing = [name for name in (_DATA, *POSITION) if name not in columns]
    if missing:
        raise OptionError(f"the DataFrame must have the source's columns: it lacks {', '.join(missing)}")
    if STAMP in columns:
        raise OptionError(f"the DataFrame has a column {STAMP}: its envelopes are open already")


def _open(records: DataFrame) -> DataFrame:
    """Replace ``data``, and add ``stamp`` and the label, which are both null where there is no envelope."""
    data = fn.col(_DATA)
    stamp_bytes = _number(_part(data, stamps.LABEL_AT + 1, 2))
    framed = (
        data.startswith(fn.lit(stamps.MAGIC))
        & (fn.length(data) >= stamps.STAMP_AT)
        & (fn.crc32(fn.substr(data, fn.lit(stamps.LABEL_AT + 1))) == _number(_part(data, stamps.CRC_AT, 4)))
    )
    kind = _number(_part(data, stamps.LABEL_AT, 1))
    known = (
        data.startswith(fn.lit(stamps.BEGIN))
        & kind.isin(stamps.POSITION, stamps.POSITION_AND_INDEX, stamps.KEY)
        & (stamps.STAMP_AT + stamp_bytes <= fn.length(data))
    )
    label_bytes = (stamp_bytes + (stamps.STAMP_AT - stamps.LABEL_AT)).cast("int")
    label = fn.substr(data, fn.lit(stamps.LABEL_AT + 1), label_bytes)
    unknown = fn.raise_error(
        fn.lit("shardway: a record is in an envelope of a version that is not known here: read it with a newer one")
    ).cast("binary")
    # From here on the label alone says what is an envelope, so that the long conditions are there once.
    labelled = with_column(records, _LABEL, fn.when(framed & known, label).when(framed, unknown))
    inside = fn.substr(data, (fn.length(fn.col(_LABEL)) + (stamps.LABEL_AT + 1)).cast("int"))
    opened = with_column(labelled, _DATA, fn.when(fn.col(_LABEL).isNull(), data).otherwise(inside), new=False)
    return with_column(opened, STAMP, fn.when(fn.col(_LABEL).isNotNull(), _stamp(fn.col(_LABEL))))


def _stamp(label: Column) -> Column:
    """Return what a label says, as a struct."""
    kind = _number(_part(label, 0, 1))
    by_key = kind == stamps.KEY
    at = fn.lit(stamps.STAMP_AT - stamps.LABEL_AT)
    fields = []
    for _ in range(3):
        length = _number(fn.substr(label, at + 1, fn.lit(1))).cast("int")
        fields.append(fn.substr(label, at + 2, length))
        at = at + 1 + length
    stream, shard, sequence = fields
    shard_text = shard.cast("string")
    is_number = shard_text.rlike("^[0-9]{1,12}$")
    shard_id = fn.when(is_number, fn.concat(fn.lit("shardId-"), fn.lpad(shard_text, 12, "0"))).otherwise(shard_text)
    digits = fn.ltrim(fn.hex(sequence), fn.lit("0"))
    position = (
        (stream.cast("string"), "stream"),
        (shard_id, "shard_id"),
        (fn.when(digits == "", "0").otherwise(digits), "sequence_number"),
        (_number(fn.substr(label, at + 1, fn.lit(4))), "sub_sequence_number"),
    )
    index = _number(fn.substr(label, at + 5, fn.lit(8)))
    return fn.struct(
        *[fn.when(~by_key, column).alias(name) for column, name in position],
        fn.when(kind == stamps.POSITION_AND_INDEX, index).alias("row_index"),
        fn.when(by_key, fn.substr(label, fn.lit(stamps.STAMP_AT - stamps.LABEL_AT + 1)).cast("string")).alias("key"),
    )


def _part(column: Column, at: int, count: int) -> Column:
    """Return ``count`` bytes, the first at the place ``at``, which is counted from 0."""
    return fn.substr(column, fn.lit(at + 1), fn.lit(count))


def _number(column: Column) -> Column:
    """Return bytes, the high one first, as a number below 2**63."""
    return fn.conv(fn.hex(column), 16, 10).cast("bigint")
