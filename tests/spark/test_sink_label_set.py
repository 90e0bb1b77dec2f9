"""Labels that a task had before, however many there are and in whatever order they come."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardway.errors import ShardwayError
from shardway.spark.sink import label_set
from shardway.spark.sink.label_set import LabelSet


@given(portions=st.lists(st.lists(st.binary(max_size=3), min_size=1), max_size=5))
def test_it_is_a_set(portions: list[list[bytes]]) -> None:
    seen: set[bytes] = set()
    table = LabelSet()
    for portion in portions:
        new = len(seen) + len(portion) == len(seen := seen | set(portion))
        assert table.add(portion) == new
        if not new:
            break
    table.close()


def test_more_labels_than_the_memory_holds_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_set, "MEMORY_BYTES", 64 * 1024)
    labels = [number.to_bytes(60, "big") for number in range(20_000)]
    random.Random(7).shuffle(labels)
    table = LabelSet()
    for at in range(0, len(labels), 1_000):
        assert table.add(labels[at : at + 1_000])
    assert not table.add([bytes(61), labels[0]])
    table.close()


def test_no_room_is_told_with_the_way_out() -> None:
    table = LabelSet()
    table._table.execute("PRAGMA max_page_count = 4")
    with pytest.raises(ShardwayError, match="a larger folder for temporary files"):
        table.add(number.to_bytes(60, "big") for number in range(10_000))
    table.close()
