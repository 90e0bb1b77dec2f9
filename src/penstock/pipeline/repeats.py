"""Removing repeats: rows with a key that was seen before, within a window of arrival time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import Window
from pyspark.sql import functions as fn

from penstock.errors import OptionError
from penstock.pipeline.decode import REASON
from penstock.pipeline.known import column_or_null, is_stream, with_column, without
from penstock.pipeline.positions import POSITION, position_order

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

ARRIVAL = "approximate_arrival_timestamp"

_KEY, _ALONE, _TIME, _RANK = "_penstock_key", "_penstock_alone", "_penstock_time", "_penstock_rank"


def deduplicate(records: DataFrame, keys: Sequence[str] | str, *, within: str, time: str = ARRIVAL) -> DataFrame:
    """Rows without repeats: of rows with equal ``keys`` that lie within ``within`` of each other, the first stays.

    ``keys`` are columns or fields of structs (``"value.order_id"``); a row with a null among them is taken for
    unique. ``within`` is a time span such as ``"10 minutes"``: longer than the longest time after which a producer
    repeats itself. Rows that could not be decoded (``reason`` is not null) go past it: none is removed, and none
    comes too late.

    On a stream this is ``dropDuplicatesWithinWatermark`` on ``time``. Spark keeps one state row per key for about
    ``within``, and drops rows more than ``within`` older than the newest seen in earlier batches: ``late_rows``
    counts them. The arrival time of the source makes none. Within one batch the first of equal rows stays as long
    as they come in one Spark partition, as those of one partition key do.

    On a batch read the whole DataFrame is one window. Raises OptionError for no keys.
    """
    names = [keys] if isinstance(keys, str) else list(keys)
    if not names:
        raise OptionError("deduplicate() needs the name of at least one key column")
    undecoded = column_or_null(records, REASON).isNotNull()
    unique = undecoded
    for name in names:
        unique = unique | fn.col(name).isNull()
    # A row that stands alone has its own position for a key, and no key; all others have a key and no position.
    keyed = with_column(records, _KEY, fn.when(~unique, fn.struct(*[fn.col(name) for name in names])))
    marked = with_column(keyed, _ALONE, fn.when(unique, fn.concat_ws("/", *POSITION)))
    if is_stream(records):
        # No row without an event time is late, and none moves the watermark.
        timed = with_column(marked, _TIME, fn.when(~undecoded, fn.col(time))).withWatermark(_TIME, within)
        return without(timed.dropDuplicatesWithinWatermark([_KEY, _ALONE]), _KEY, _ALONE, _TIME)
    order = Window.partitionBy(_KEY, _ALONE).orderBy(fn.col(time), *position_order())
    ranked = with_column(marked, _RANK, fn.row_number().over(order))
    return without(ranked.where(fn.col(_RANK) == 1), _KEY, _ALONE, _RANK)


def late_rows(progress: Mapping[str, Any]) -> int:
    """How many rows a batch dropped because they came later than the watermark allows.

    ``progress`` is ``query.lastProgress``, an element of ``query.recentProgress``, or what a listener is given.
    """
    return sum(int(operator["numRowsDroppedByWatermark"]) for operator in progress["stateOperators"])
