"""Remove duplicates: rows whose key was seen before, within a window of arrival time."""

from __future__ import annotations

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as fn

from shardway.errors import OptionError
from shardway.pipeline.batches import position_order
from shardway.pipeline.dataframes import column_or_null, is_stream, with_column, without
from shardway.pipeline.decode import REASON
from shardway.spark.columns import POSITION

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame


ARRIVAL = "approximate_arrival_timestamp"
_KEY, ALONE, _TIME, RANK = "_shardway_key", "_shardway_alone", "_shardway_time", "_shardway_rank"


def deduplicate(
    records: DataFrame, keys: Sequence[str] | str, *, window: str, time: str = ARRIVAL, exact: bool = False
) -> DataFrame:
    """Return the rows without duplicates: a row that stays removes the rows with its ``keys`` that lie within
    ``window`` of it.

    ``keys`` are columns or fields of structs (``"value.order_id"``); a row with a null among them is taken for
    unique. ``window`` is a time span such as ``"10 minutes"``: longer than the longest time after which a producer
    repeats itself. Rows that could not be decoded (``reason`` is not null) pass this step as they are: none is removed,
    and none comes too late.

    On a stream this is ``dropDuplicatesWithinWatermark`` on ``time``: duplicates further away than ``window`` may be
    removed too, all those that come in one batch with the row that stays, and others until Spark has forgotten the
    key, about twice ``window`` later. It drops rows more than ``window`` older than the newest seen in earlier
    batches: ``late_rows`` counts them. By the arrival time of the source no row is late. Within one batch the first of
    equal rows stays as long as they come in one Spark partition, as those of one partition key do. On a batch read the
    whole DataFrame is one window.

    ``exact``: a row is removed where one of its key was kept at most ``window`` before it, by ``time``, and only there,
    wherever batches end; this holds for batch reads too. No row is late: one that comes more than ``window`` behind the
    newest is compared with what is still known, and else kept. How many were removed is among the ``observedMetrics``
    of a progress, as ``shardway_duplicates``. This way runs in Python, and its state is another one: a query that began
    without ``exact`` needs a new checkpoint directory for it, and the other way round.

    Raises OptionError for no keys; for ``exact`` also in a declarative pipeline, and where ``window`` is no number of
    seconds, minutes, hours, days or weeks.
    """
    names = [keys] if isinstance(keys, str) else list(keys)
    if not names:
        raise OptionError("deduplicate() needs the name of at least one key column")
    undecoded = column_or_null(records, REASON).isNotNull()
    unique = _unique(names, undecoded)
    if exact:
        from shardway.pipeline.exact_deduplication import without_exact_duplicates

        key = fn.when(~unique, fn.struct(*[fn.col(name) for name in names]))
        return without_exact_duplicates(records, key, time=fn.col(time), order=_position_text(), window=window)
    marked = _mark(records, names, unique)
    if is_stream(records):
        # No row without an event time is late, and none moves the watermark.
        timed = with_column(marked, _TIME, fn.when(~undecoded, fn.col(time))).withWatermark(_TIME, window)
        return without(timed.dropDuplicatesWithinWatermark([_KEY, ALONE]), _KEY, ALONE, _TIME)
    order = Window.partitionBy(_KEY, ALONE).orderBy(fn.col(time), *position_order())
    ranked = with_column(marked, RANK, fn.row_number().over(order))
    return without(ranked.where(fn.col(RANK) == 1), _KEY, ALONE, RANK)


def deduplicate_by_watermark(records: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return what ``deduplicate`` does, for rows that are all decoded and have a watermark, whose delay is the window:
    a query cannot have a second one.
    """
    marked = _mark(records, keys, _unique(keys, fn.lit(False)))
    if not is_stream(records):
        return without(marked.dropDuplicates([_KEY, ALONE]), _KEY, ALONE)
    return without(marked.dropDuplicatesWithinWatermark([_KEY, ALONE]), _KEY, ALONE)


def _unique(keys: Sequence[str], undecoded: Column) -> Column:
    """Return which rows stand alone: those that are not decoded, and those with a null among the keys."""
    return reduce(lambda unique, name: unique | fn.col(name).isNull(), keys, undecoded)


def _mark(records: DataFrame, keys: Sequence[str], unique: Column) -> DataFrame:
    """Return the rows with what they are compared by: a row that stands alone has its own position and no key; all
    others have a key and no position.
    """
    keyed = with_column(records, _KEY, fn.when(~unique, fn.struct(*[fn.col(name) for name in keys])))
    return with_column(keyed, ALONE, fn.when(unique, fn.concat_ws("/", *POSITION)))


def _position_text() -> Column:
    """Return a text that sorts as ``position_order`` does."""
    length, sequence, sub = position_order()
    return fn.concat_ws("/", fn.lpad(length.cast("string"), 3, "0"), sequence, fn.lpad(sub.cast("string"), 10, "0"))
