"""The choice of the time at which a capped batch is cut, from samples of its shards."""

from __future__ import annotations

from shardway.spark.driver.batch_size import (
    CutSearch,
    expected_size,
    latest_cut_within,
    latest_sure_cut,
    total_share,
)
from shardway.spark.driver.grouping import ROW_COST_BYTES
from shardway.spark.driver.shard_book import ShardBook
from shardway.spark.driver.shard_ends import EndSearch, ShardEnd
from shardway.spark.driver.shard_looks import LOOK_RECORDS, ShardLooks
from shardway.spark.driver.shard_state import ShardState
from shardway.spark.lookahead.lookahead import Tail
from shardway.spark.lookahead.shard_probe import PROBE_PAGES_MAX
from shardway.spark.lookahead.stream_calls import StreamCalls, run_all
from shardway.spark.options.caps import Caps

SAMPLE_RECORDS_MAX = 1000
"""The most records that one look asks for where the batch is capped: they give the shard's rate."""
SAMPLE_BYTES_MAX = 8 * 2**20
"""Bytes, about, that the samples of all shards may bring together."""
SAMPLE_SHARDS = 512
"""The number of shards above which the samples get no smaller."""
SAMPLE_ROUNDS_MAX = 4
"""How many times more is looked at than the first samples, each time twice as much."""
SAMPLE_SHARE = 0.5
"""The part of a capped batch that the samples of all shards together are at most, where that is fewer records than
``SAMPLE_RECORDS_MAX`` of each.
"""
LOOK_RECORDS_MAX = 10_000
"""The most records that one call gives (AWS API reference, GetRecords)."""
ENOUGH = 0.75
"""The part of its cap from which on an expected batch is not worth more samples."""


class CutChoice:
    """Chooses the cut at which the batch about fills its caps, and surely keeps within its bound."""

    def __init__(self, book: ShardBook, calls: StreamCalls, looks: ShardLooks, search: EndSearch) -> None:
        self._book = book
        self._calls = calls
        self._looks = looks
        self._search = search

    async def choose(self, unread: list[ShardState], latest_ms: int, caps: Caps) -> tuple[int, dict[str, ShardEnd]]:
        """Return the time at which the batch is cut, and where each shard ends at it."""
        records_max = _sample_records(caps, len(unread))
        self._calls.sample_bytes_max = max(SAMPLE_BYTES_MAX // SAMPLE_SHARDS, SAMPLE_BYTES_MAX // len(unread))
        if caps.none:
            return latest_ms, await self._search.find(unread, latest_ms, records_max)
        await run_all(self._sample(state, records_max) for state in unread)
        first_ms = min(state.first.arrival_ms for state in unread)
        cut_ms, sure_ms = await self._sure_cut(unread, first_ms + 1, latest_ms, caps, records_max)
        tries = CutSearch(first_ms, sure_ms)
        while True:
            ends = await self._search.find(unread, cut_ms, records_max)
            looks = {shard_id: self._book.states[shard_id].lookahead for shard_id in ends}
            sure_ms = latest_sure_cut(caps, list(looks.values()), first_ms + 1, cut_ms)
            if sure_ms < cut_ms:  # children begin in the batch that were not known before
                tries.keep_below(sure_ms)
                cut_ms = sure_ms
                continue
            share = total_share(caps, [expected_size(looks[one], cut_ms, end.behind) for one, end in ends.items()])
            next_ms = min((end.behind.first.arrival_ms for end in ends.values() if end.behind.first), default=latest_ms)
            better_ms = tries.next_cut(cut_ms, share, next_ms) if cut_ms < latest_ms or share > 1 else None
            if better_ms is None:
                return cut_ms, ends
            cut_ms = better_ms

    async def _sure_cut(
        self, unread: list[ShardState], earliest_ms: int, latest_ms: int, caps: Caps, records_max: int
    ) -> tuple[int, int]:
        """Return (a cut at which the batch is expected to be full, the latest one at which it surely keeps within its
        bound).

        Where the bound alone would leave the batch small, more is looked at, since what was seen needs no bound.
        """
        for more in range(SAMPLE_ROUNDS_MAX + 1):
            looks = [state.lookahead for state in unread]
            wanted_ms = latest_cut_within(caps, looks, earliest_ms, latest_ms)
            sure_ms = latest_sure_cut(caps, looks, earliest_ms, latest_ms)
            if wanted_ms <= sure_ms or more == SAMPLE_ROUNDS_MAX:
                break
            share = total_share(caps, [expected_size(look, sure_ms) for look in looks])
            seen = [seen for look in looks for seen in look.records]
            known = sum(one.size + ROW_COST_BYTES for one in seen)
            if share >= ENOUGH or known >= SAMPLE_BYTES_MAX:
                break
            short = [state for state in unread if state.may_hold_more_before(wanted_ms)]
            await run_all(self._look_further(state, records_max << more) for state in short)
        return min(wanted_ms, sure_ms), sure_ms

    async def _look_further(self, state: ShardState, records_max: int) -> None:
        self._looks.has_searched = True
        state.look = await state.probe.extend(state.lookahead, state.position, min(records_max, LOOK_RECORDS_MAX))

    async def _sample(self, state: ShardState, records_max: int) -> None:
        look = state.lookahead
        if look.beyond is Tail.UNKNOWN and len(look.records) < records_max // 2 and not look.reached_ms:
            self._looks.has_searched = True
            state.look = await state.probe.extend(look, state.position, records_max, pages_max=PROBE_PAGES_MAX)


def _sample_records(caps: Caps, shards: int) -> int:
    if caps.none:
        return LOOK_RECORDS
    if caps.rows is None:
        return SAMPLE_RECORDS_MAX
    return max(LOOK_RECORDS, min(SAMPLE_RECORDS_MAX, int(caps.rows * SAMPLE_SHARE / max(shards, 1))))
