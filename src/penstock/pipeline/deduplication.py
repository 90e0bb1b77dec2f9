"""Removing duplicates: rows with a key that was seen before, within a window of arrival time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock.errors import OptionError
from penstock.pipeline.batches import POSITION, position_order
from penstock.pipeline.decode import REASON
from penstock.pipeline.spark_calls import column_or_null, is_stream, with_column, without

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame

ARRIVAL = "approximate_arrival_timestamp"

EXACT_DUPLICATES = "penstock_duplicates"
"""The observed metric that says how many rows were removed, and how the name of its observation begins."""

_KEY, _ALONE, _TIME, _RANK = "_penstock_key", "_penstock_alone", "_penstock_time", "_penstock_rank"


def deduplicate(
    records: DataFrame, keys: Sequence[str] | str, *, window: str, time: str = ARRIVAL, exact: bool = False
) -> DataFrame:
    """Rows without duplicates: of rows with equal ``keys`` that lie within ``window`` of the one that stays, none does.

    ``keys`` are columns or fields of structs (``"value.order_id"``); a row with a null among them is taken for
    unique. ``window`` is a time span such as ``"10 minutes"``: longer than the longest time after which a producer
    repeats itself. Rows that could not be decoded (``reason`` is not null) go past it: none is removed, and none
    comes too late.

    On a stream this is ``dropDuplicatesWithinWatermark`` on ``time``: duplicates further away than ``window`` may be
    removed too, all those that come in one batch with the row that stays, and others until Spark has forgotten the
    key, about twice ``window`` later. It drops rows more than ``window`` older than the newest seen in earlier
    batches: ``late_rows`` counts them. The arrival time of the source makes none. Within one batch the first of equal
    rows stays as long as they come in one Spark partition, as those of one partition key do. On a batch read the
    whole DataFrame is one window.

    ``exact``: a row goes where one of its key was kept at most ``window`` before it, by ``time``, and only there,
    wherever batches end; batch reads too. No row is late: one that comes more than ``window`` behind the newest is
    compared with what is still known, and else kept. How many were removed is among the ``observedMetrics`` of a
    progress, as ``penstock_duplicates``. It runs in Python, and its state is another one: a query that began without
    ``exact`` needs a new checkpoint directory for it, and the other way round.

    Raises OptionError for no keys; for ``exact`` also in a declarative pipeline, and where ``window`` is no number of
    seconds, minutes, hours, days or weeks.
    """
    names = [keys] if isinstance(keys, str) else list(keys)
    if not names:
        raise OptionError("deduplicate() needs the name of at least one key column")
    undecoded = column_or_null(records, REASON).isNotNull()
    unique = undecoded
    for name in names:
        unique = unique | fn.col(name).isNull()
    if exact:
        from penstock.pipeline.exact_deduplication import without_exact_duplicates

        key = fn.when(~unique, fn.struct(*[fn.col(name) for name in names]))
        return without_exact_duplicates(records, key, time=fn.col(time), order=_position_text(), window=window)
    # A row that stands alone has its own position for a key, and no key; all others have a key and no position.
    keyed = with_column(records, _KEY, fn.when(~unique, fn.struct(*[fn.col(name) for name in names])))
    marked = with_column(keyed, _ALONE, fn.when(unique, fn.concat_ws("/", *POSITION)))
    if is_stream(records):
        # No row without an event time is late, and none moves the watermark.
        timed = with_column(marked, _TIME, fn.when(~undecoded, fn.col(time))).withWatermark(_TIME, window)
        return without(timed.dropDuplicatesWithinWatermark([_KEY, _ALONE]), _KEY, _ALONE, _TIME)
    order = Window.partitionBy(_KEY, _ALONE).orderBy(fn.col(time), *position_order())
    ranked = with_column(marked, _RANK, fn.row_number().over(order))
    return without(ranked.where(fn.col(_RANK) == 1), _KEY, _ALONE, _RANK)


def _position_text() -> Column:
    """What sorts as ``position_order`` does, as text."""
    length, sequence, sub = position_order()
    return fn.concat_ws("/", fn.lpad(length.cast("string"), 3, "0"), sequence, fn.lpad(sub.cast("string"), 10, "0"))


def late_rows(progress: Mapping[str, Any]) -> int:
    """How many rows a batch dropped because they came later than the watermark allows.

    ``progress`` is ``query.lastProgress``, an element of ``query.recentProgress``, or what a listener is given.
    """
    return sum(int(operator["numRowsDroppedByWatermark"]) for operator in progress["stateOperators"])
