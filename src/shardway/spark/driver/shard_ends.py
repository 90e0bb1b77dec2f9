"""Where each shard ends in a batch that is cut at a given time."""

from __future__ import annotations

from dataclasses import dataclass

from shardway.spark.driver.loss_check import silence_error
from shardway.spark.driver.shard_book import ShardBook
from shardway.spark.driver.shard_looks import ShardLooks
from shardway.spark.driver.shard_state import ShardState
from shardway.spark.lookahead.lookahead import Bound, Lookahead, Tail
from shardway.spark.lookahead.stream_calls import run_all
from shardway.spark.ranges import EndKind

READ_ON_PAGES_MAX = 4
"""The most pages with records that are read on behind the first look where nothing is found at the cut."""


@dataclass(slots=True)
class ShardEnd:
    """The end of a shard's range in the batch that is being planned, and what is known behind it."""

    bound: Bound
    behind: Lookahead

    def short_ms(self, cut_ms: int) -> int | None:
        """Return where the shard is in a silence that is not crossed up to the cut; None where it is in none."""
        behind = self.behind
        if self.bound.kind is not EndKind.INCLUSIVE or not behind.crossing or behind.reached_ms >= cut_ms:
            return None
        return max(behind.reached_ms, self.bound.witness_ms)


class EndSearch:
    """Finds the ends of all shards at a cut, with as few calls as it takes."""

    def __init__(self, book: ShardBook, looks: ShardLooks) -> None:
        self._book = book
        self._looks = looks

    async def find(
        self, unread: list[ShardState], cut_ms: int, records_max: int, *, whole: bool = False
    ) -> dict[str, ShardEnd]:
        """Return where each shard ends that has rows before the cut, children of shards that end before it included."""
        ends: dict[str, ShardEnd] = {}
        generation = [state for state in unread if state.is_unread_before(cut_ms)]
        while generation:
            end_of = self._find_whole_end if whole else self._find_end
            found = await run_all(end_of(state, cut_ms, records_max) for state in generation)
            ended = []
            for state, end in zip(generation, found, strict=True):
                if end is not None:
                    ends[state.shard_id] = end
                    if end.bound.kind is EndKind.SHARD_END:
                        ended.append(state)
            generation = await self._next_generation(ended, ends, cut_ms, whole=whole)
        return ends

    async def _next_generation(
        self, ended: list[ShardState], ends: dict[str, ShardEnd], cut_ms: int, *, whole: bool
    ) -> list[ShardState]:
        """Return the children that may start when these shards have ended, and that have rows before the cut."""
        finished = {shard_id for shard_id, end in ends.items() if end.bound.kind is EndKind.SHARD_END}
        ready: list[ShardState] = []
        fresh = ended
        while fresh:
            children = [state for state in await self._book.children_of(fresh) if self._book.may_start(state, finished)]
            await run_all(self._looks.look(state) for state in children if state.look is None)
            if whole:
                await self._looks.cross(children, cut_ms)
            fresh = [state for state in children if state.lookahead.exhausted]
            # These are finished for this cut only, which may be given up: a shard is stored as ended when its parents
            # are. If it were stored earlier, its children would never start, and a query that stops when it is caught
            # up would leave them unread.
            finished.update(state.shard_id for state in fresh)
            ready += [state for state in children if state.is_unread_before(cut_ms)]
        return ready

    async def _find_end(
        self, state: ShardState, cut_ms: int, records_max: int, *, whole: bool = False
    ) -> ShardEnd | None:
        """Return where one shard ends at the cut; None when it makes no progress."""
        look = state.lookahead
        bound = look.bound(cut_ms)
        if bound is not None:
            return ShardEnd(bound, look.behind(bound))
        self._looks.has_searched = True
        if state.attempts.asked_all:
            state.attempts.note_failure(self._looks.began_s)
            state.attempts.asked_all = False
        first = state.first.sequence_number
        after = await state.probe.at_time(cut_ms, records_max, floor=first)
        if after.records:
            seen = after.records[0]
            return ShardEnd(Bound(EndKind.EXCLUSIVE, seen.sequence_number, seen.arrival_ms), after)
        if after.beyond is Tail.END:
            bound = Bound(EndKind.SHARD_END, None, look.records[-1].arrival_ms)
            return ShardEnd(bound, look.behind(bound))
        if look.beyond is Tail.UNKNOWN:  # a sparse shard is known as a whole by reading on, up to the cut or so
            more = state.probe.tail_page() if after.beyond is Tail.TIP or after.reached_ms else records_max
            state.look = look = await _read_on(state, more, cut_ms)
        bound = look.bound(cut_ms)
        if bound is None and look.reached_ms:
            bound = Bound(EndKind.INCLUSIVE, look.records[-1].sequence_number, look.records[-1].arrival_ms)
        if bound is None and (after.beyond is Tail.TIP or after.reached_ms):
            bound, behind = await state.probe.tail(look, cut_ms, whole=whole)
            is_progress = bound.sequence_number != first or bound.kind is not EndKind.EXCLUSIVE
            return ShardEnd(bound, behind) if is_progress else None
        bound = bound or look.last_resort()
        return None if bound is None else ShardEnd(bound, look.behind(bound))

    async def _find_whole_end(self, state: ShardState, cut_ms: int, records_max: int) -> ShardEnd:
        """Return where one shard ends at the cut where no next batch brings the rest: the search goes on from each end
        that was only a step.
        """
        look = state.lookahead
        while True:
            end = await self._find_end(state, cut_ms, records_max, whole=True)
            if end is None:
                raise silence_error(state.shard_id)
            if end.short_ms(cut_ms) is not None:
                state.look = end.behind
                await self._looks.cross([state], cut_ms)
                if state.is_unread_before(cut_ms):
                    continue
                end = _end_behind_silence(end, state.lookahead)
            if end.bound.kind is not EndKind.EXCLUSIVE or end.bound.witness_ms >= cut_ms:
                state.look = look
                return end
            state.look = end.behind


async def _read_on(state: ShardState, records_max: int, cut_ms: int) -> Lookahead:
    """Return the lookahead with a page more, and with what follows that page where it was not full: a silence follows,
    most often. To cross it up to the cut takes a call for each page of it. To search for its beginning by time takes a
    probe for each halving, and each probe crosses what is left of the silence.
    """
    look = state.lookahead
    for _ in range(READ_ON_PAGES_MAX):
        known = len(look.records)
        look = await state.probe.extend(look, state.position, records_max, until_ms=cut_ms)
        if look.beyond is not Tail.UNKNOWN or not known < len(look.records) < known + records_max:
            break
    return look


def _end_behind_silence(end: ShardEnd, look: Lookahead) -> ShardEnd:
    """Return the end that takes the place of one in a silence, when the silence is crossed: the shard's end, or a
    record behind the cut.
    """
    if look.beyond is Tail.END and not look.records:
        return ShardEnd(Bound(EndKind.SHARD_END, None, max(look.tip_seen_ms, end.bound.witness_ms)), look)
    if look.first is not None:
        first = look.first
        return ShardEnd(Bound(EndKind.EXCLUSIVE, first.sequence_number, first.arrival_ms), look)
    return ShardEnd(end.bound, look)
