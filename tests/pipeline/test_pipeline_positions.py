from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardway.pipeline import position_order, sort_by_key

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

POSITIONS = st.tuples(st.integers(0, 10**56), st.integers(0, 3))


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(positions=st.lists(POSITIONS, min_size=50, max_size=50, unique=True))
def test_positions_sort_as_numbers(frame: Callable[..., DataFrame], written: Any, positions: list[Any]) -> None:
    records = [
        written.record("x", sequence_number=str(sequence), sub_sequence_number=sub) for sequence, sub in positions
    ]
    rows = frame(records).orderBy(*position_order()).collect()
    assert [(int(row.sequence_number), row.sub_sequence_number) for row in rows] == sorted(positions)


def test_rows_of_a_key_lie_together_and_in_order(frame: Callable[..., DataFrame], written: Any) -> None:
    records = [written.record("x", key=f"key-{n % 7}", shard_id=f"shard-{n % 2}") for n in range(700)]
    parts = sort_by_key(frame(records[::-1]).repartition(5)).rdd.glom().collect()
    homes: dict[str, set[int]] = {}
    for number, part in enumerate(parts):
        for row in part:
            homes.setdefault(row.partition_key, set()).add(number)
        listed = [(row.partition_key, int(row.sequence_number)) for row in part]
        assert listed == sorted(listed)
    assert {key: len(parts) for key, parts in homes.items()} == {f"key-{n}": 1 for n in range(7)}
    assert sum(len(part) for part in parts) == 700


def test_another_order_before_the_key(frame: Callable[..., DataFrame], written: Any) -> None:
    records = [written.record("x", key=f"key-{n % 3}", shard_id=f"shard-{n % 2}") for n in range(60)]
    rows = sort_by_key(frame(records), first=["shard_id"]).coalesce(1).collect()
    for key in {row.partition_key for row in rows}:
        listed = [(row.shard_id, int(row.sequence_number)) for row in rows if row.partition_key == key]
        assert listed == sorted(listed)
