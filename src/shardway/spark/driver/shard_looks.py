"""The looks of one plan: which shards are looked at, for how many records, and until when over a silence."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from shardway.spark.driver.carried_records import SPAN_MS_MAX, shard_bytes_max
from shardway.spark.driver.cut_wait import CutWait
from shardway.spark.driver.loss_check import LossCheck, silence_error
from shardway.spark.driver.shard_book import ShardBook
from shardway.spark.driver.shard_state import ShardState
from shardway.spark.lookahead.lookahead import Tail
from shardway.spark.lookahead.stream_calls import StreamCalls, run_all

LOOK_RECORDS = 10
"""The number of records that one look at a shard asks for where nothing is capped."""


class ShardLooks:
    """Looks at the shards that may be read now."""

    def __init__(
        self,
        book: ShardBook,
        calls: StreamCalls,
        check: LossCheck,
        poll_interval_s: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._book = book
        self._calls = calls
        self._check = check
        self._poll_interval_s = poll_interval_s
        self._monotonic = monotonic
        self.began_s = 0.0
        """The time at which the newest plan began: all shards that it looks at are due together."""
        self.has_searched = False
        """True when this plan made calls beyond one look at each shard."""

    def begin(self) -> None:
        """Begin the looks of another plan."""
        self.has_searched, self.began_s = False, self._monotonic()
        self._book.doubt_old()

    async def look_around(self) -> None:
        """Open what was never looked at, and poll the tips that are due; shards found empty and closed end here."""
        while True:
            startable = self._book.startable()
            self._calls.entry_bytes_max = shard_bytes_max(len(startable))
            await run_all(self.look(state) for state in startable if self._is_due(state))
            # Some were found empty earlier, when their parents were not read to their ends yet.
            ended = [state for state in startable if state.look is not None and state.look.exhausted]
            for state in ended:
                state.position = state.position.at_shard_end(state.lookahead.tip_seen_ms)
            if not ended:
                return
            await self._book.children_of(ended)

    async def look(self, state: ShardState) -> None:
        """Open a shard, or look further in it."""
        if state.look is None or not state.look.crossing:  # a shard that crosses a silence is followed, and not polled
            state.pace.note_look(self.began_s, self._poll_interval_s)
        records_max = self._records_max(state)
        if state.look is None or state.stored:
            state.look = await self._check.open(state, records_max)
            return
        more = await state.probe.extend(state.look, state.stored_form(), records_max)
        if self._book.is_overtaken(state):
            # The answer says how late it is: this machine stood still, and what was trimmed meanwhile is not in it.
            self._book.doubt(state)
            more = await self._check.open(state, LOOK_RECORDS)
        state.look = more

    async def cross(self, states: Iterable[ShardState], until_ms: int) -> None:
        """Look on until each of these shards has its next record seen, or nothing before that time. Raises StalledError
        for a shard that stands still.
        """
        wait = CutWait()
        looked = list(states)
        while crossing := [state for state in looked if state.crosses(until_ms)]:
            now_s = self._monotonic()
            wait.note_looks({state.shard_id: state.reached_ms() for state in crossing}, now_s)
            for state in crossing:
                if wait.stands(state.shard_id, now_s):
                    raise silence_error(state.shard_id)
            await run_all(self.look(state) for state in crossing)

    def seen_until_ms(self) -> int:
        """Return the service's time, at least, up to which no look of this plan can have missed a record."""
        looks = (state.look for state in self._book.startable())
        asked = (
            look.asked_ms
            for look in looks
            if look is not None and look.records and look.beyond is Tail.TIP and look.asked_s >= self.began_s
        )
        return min(asked, default=self._calls.service_ms())

    def _is_due(self, state: ShardState) -> bool:
        look = state.look
        if look is None:
            return True
        if look.beyond is not Tail.TIP:
            return look.beyond is Tail.UNKNOWN and (not look.records or self._may_see_all(state))
        if state.probe.closed:  # it was open when its tip was seen
            return True
        return not look.quiet or state.pace.due(self.began_s)

    def _may_see_all(self, state: ShardState) -> bool:
        """True when one look may bring all that is new in the shard: it is about caught up, and its records are small
        and were few.
        """
        if not state.attempts.may(self.began_s) or state.probe.records_to_keep() <= LOOK_RECORDS:
            return False
        first = None if state.look is None else state.look.first
        return first is None or first.arrival_ms >= self._calls.service_ms() - SPAN_MS_MAX

    def _records_max(self, state: ShardState) -> int:
        state.attempts.asked_all = self._may_see_all(state)
        return state.probe.records_to_keep() if state.attempts.asked_all else LOOK_RECORDS
