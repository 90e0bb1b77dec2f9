"""A cut is moved back so that all shards stay in step: to a silence that is not crossed, or to a reshard."""

from __future__ import annotations

from shardway.spark.driver.grouping import chains_of, ranges_of
from shardway.spark.driver.offset_draft import OffsetDraft
from shardway.spark.driver.shard_book import ShardBook
from shardway.spark.driver.shard_ends import EndSearch, ShardEnd
from shardway.spark.driver.shard_looks import LOOK_RECORDS
from shardway.spark.driver.shard_state import ShardState
from shardway.spark.ranges import EndKind


class CutStep:
    """Moves the cut of a batch back, as far as the shards are out of step."""

    def __init__(self, book: ShardBook, search: EndSearch, draft: OffsetDraft) -> None:
        self._book = book
        self._search = search
        self._draft = draft

    async def keep(
        self, unread: list[ShardState], cut_ms: int, ends: dict[str, ShardEnd]
    ) -> tuple[int, dict[str, ShardEnd]]:
        """Cut earlier where a shard is in a silence that is not crossed yet, and at a reshard where that is due."""
        while True:
            cut_ms, ends = await self._cut_at_generation(unread, cut_ms, ends)
            slowest_ms = self._slowest_ms(cut_ms, ends)
            if slowest_ms is None:
                return cut_ms, ends
            cut_ms = slowest_ms
            ends = await self._search.find(unread, cut_ms, LOOK_RECORDS)

    def _slowest_ms(self, cut_ms: int, ends: dict[str, ShardEnd]) -> int | None:
        """Return how far the slowest shard has come that ends in a silence before the cut or whose parents end here."""
        finished = {shard_id for shard_id, end in ends.items() if end.bound.kind is EndKind.SHARD_END}
        reached = [short_ms for end in ends.values() if (short_ms := end.short_ms(cut_ms)) is not None]
        reached += [
            state.reached_ms()
            for state in self._book.states.values()
            if not finished.isdisjoint(state.shard.parents)
            and self._book.may_start(state, finished)
            and state.crosses(cut_ms)
            and 0 < state.lookahead.reached_ms < cut_ms
        ]
        return min(reached, default=None)

    async def _cut_at_generation(
        self, unread: list[ShardState], cut_ms: int, ends: dict[str, ShardEnd]
    ) -> tuple[int, dict[str, ShardEnd]]:
        """Cut at a reshard where keeping parents and children in one task would leave the cluster idle.

        All shards are cut at that time: else the event-time watermark would pass the children's records.
        """
        while True:
            earlier_ms = self._generation_ms(ends, cut_ms)
            if earlier_ms is None or earlier_ms >= cut_ms:
                return cut_ms, ends
            cut_ms = earlier_ms
            ends = await self._search.find(unread, cut_ms, LOOK_RECORDS)

    def _generation_ms(self, ends: dict[str, ShardEnd], cut_ms: int) -> int | None:
        """Return the first arrival in a child whose parent is in the batch, when its chain is too long for one task."""
        lineage, states = self._book.lineage, self._book.states
        ranges = ranges_of(self._draft.offset(cut_ms, ends), lineage.shards)
        chains = chains_of(ranges, lineage)
        longer = [one.shard_id for chain in chains if len(chain) > 1 for one in chain]
        children = [shard_id for shard_id in longer if not lineage.ancestors([shard_id]).isdisjoint(longer)]
        if not children:
            return None
        widest = max(len(ends) - len(children), len(children))
        if len(chains) >= min(self._draft.tasks(cut_ms, ends), widest):
            return None
        earliest_ms = min(states[one].first.arrival_ms for one in ends)
        child_ms = min(states[one].first.arrival_ms for one in children)
        return child_ms if child_ms > earliest_ms else None
