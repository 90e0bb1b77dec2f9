"""A request is made of loads; a load is for one shard, and parts of it can be picked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from penstock.core.batching.lanes import Request
from tests.core.batching.batching_kit import make_lane, make_run, some

if TYPE_CHECKING:
    from collections.abc import Sequence

    from penstock.core.batching.lanes import Load


def make_load() -> Load:
    lane = make_lane()
    for records in ([("a", b"1"), ("b", b"22")], [("c", b"333")], [("d", b"4"), ("e", b"5"), ("f", b"6")]):
        lane.add(make_run(*records))
    return some(lane.take_plain(500, 1_000, first_any=False))


@pytest.mark.parametrize(
    ("places", "found"),
    [([], []), ([0], [[b"1"]]), ([1, 2], [[b"22"], [b"333"]]), ([0, 3, 5], [[b"1"], [b"4", b"6"]]), (range(6), None)],
)
def test_records_are_picked_by_the_places_of_their_entries(
    places: Sequence[int], found: list[list[bytes]] | None
) -> None:
    load = make_load()
    picked = [list(run.datas) for run in load.chosen(places)]
    assert picked == ([list(run.datas) for run in load.runs] if found is None else found)


def test_a_request_adds_up_its_loads_and_counts_their_attempts() -> None:
    request = Request(1.5)
    loads = [make_load(), make_load()]
    for load in loads:
        request.add(load)
    assert request.entries == loads[0].entries + loads[1].entries
    assert (request.user_records, request.payload_bytes, request.sent_at_s) == (12, 2 * (9 + 6), 1.5)
    assert [load.attempts for load in loads] == [1, 1]
