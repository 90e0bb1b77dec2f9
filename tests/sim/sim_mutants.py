"""Rules of the consumer, each taken away: what the simulator has to notice."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from shardway.core.assignment import decide, shardway_fleet, strategies, views
from shardway.core.assignment.lease_births import Birth, births_at_end
from shardway.core.leases import Done, Unknown, conditional_write, lease_row, writes
from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.membership import WorkerRows
from shardway.core.leases.tenure import events as tenure_events
from shardway.core.leases.tenure import machine
from shardway.core.leases.tenure.state import State, Tenure
from shardway.core.ledger import page
from shardway.core.ledger.chain import Chain
from shardway.core.ledger.key_queue import KeyQueue
from shardway.core.ledger.ledger import Ledger, MayDeliver
from shardway.core.ledger.letters import Letters
from shardway.core.ledger.progress import LedgerProgress
from shardway.core.log.feed_cursor import FeedCursor
from shardway.core.shard.duplicates import Duplicates
from shardway.core.shard.events import LetterWritten
from shardway.core.worker import awaited
from shardway.core.worker.state import WorkerState
from shardway.model import Position
from shardway.policies import PendingChoice, Retry
from shardway.runtime.consumer.streams import OpenStream
from shardway.runtime.feeds import pages
from shardway.runtime.feeds.pages import Pages
from shardway.runtime.feeds.polling import PollingFeed
from shardway.runtime.shard import pending
from shardway.runtime.shard.batch import Batch
from shardway.runtime.shard.handle import ShardHandle
from shardway.runtime.shard.letter_tasks import LetterTasks
from shardway.runtime.shard.listener import Callers
from shardway.runtime.shard.shard_reader import ShardReader
from shardway.runtime.shard.tenure_keeper import TenureKeeper
from shardway.runtime.shard.window_reading import WindowRead
from shardway.runtime.worker import shard_leases, worker
from shardway.runtime.worker.presence import Presence
from shardway.runtime.worker.sharded_stream import StreamPart
from shardway.testing.sim import simulator
from shardway.testing.sim.plan import Crash, Cut, Join, Leave, Merge, Noise, Outage, Pause, Seek, Service, Split
from shardway.testing.sim.services.table import TableConnection

if TYPE_CHECKING:
    import pytest

    from shardway.testing import FaultPlan


def no_self_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tenure, "fence_s", property(lambda tenure: float("inf")))


def a_fence_of_thrice_the_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tenure, "fence_s", property(lambda tenure: tenure.base_s + 3 * tenure.times.failover_s))


def a_worker_that_sleeps_does_not_count_it(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(worker, "SteadyClock", lambda loop: loop.time)


def counters_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(writes, "_as_seen", lambda row: ())


def parents_not_awaited(patch: pytest.MonkeyPatch) -> None:
    def all_open(leases: Any) -> list[Any]:
        return [lease for lease in leases if not lease.ended]

    patch.setattr(shardway_fleet, "startable", all_open)
    patch.setattr(awaited, "startable", all_open)


def children_without_a_lease(patch: pytest.MonkeyPatch) -> None:
    """A create without an answer counts as done."""
    real = TableConnection.create

    async def hopeful(self: Any, row: Any) -> Any:
        outcome = await real(self, row)
        return Done(row) if isinstance(outcome, Unknown) else outcome

    patch.setattr(TableConnection, "create", hopeful)


def the_newest_settlement_is_checkpointed(patch: pytest.MonkeyPatch) -> None:
    real = Batch.ack
    newest: dict[Any, Checkpoint] = {}

    def ack(self: Any, *indices: int) -> bool:
        counts = real(self, *indices)
        for record in [self.records[index] for index in indices] or self.records:
            at = Checkpoint.at(Position(record.sequence_number, record.sub_sequence_number))
            newest[self._ledger] = max(at, newest.get(self._ledger, at))
        return counts

    safe = LedgerProgress.safe.fget  # type: ignore[attr-defined]
    patch.setattr(Batch, "ack", ack)
    patch.setattr(LedgerProgress, "safe", property(lambda self: max(safe(self), newest.get(self, safe(self)))))


def what_was_fetched_is_checkpointed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LedgerProgress, "safe", property(lambda self: self.came_to))


def a_shard_ends_when_its_last_record_is_fetched(patch: pytest.MonkeyPatch) -> None:
    safe = LedgerProgress.safe.fget  # type: ignore[attr-defined]
    patch.setattr(LedgerProgress, "safe", property(lambda self: self.came_to if self.came_to.is_end else safe(self)))


def failures_count_as_settled(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Batch, "fail", lambda self, error: self._settle(self._ledger.ack))


def a_tenth_of_the_failover_time_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerRows, "failover_s", lambda self, worker_id: self._failover_s / 10)


def the_own_row_holds_up_no_fence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Tenure, "base_s", property(lambda tenure: tenure.lease_s))


def unknown_outcomes_count_as_done(patch: pytest.MonkeyPatch) -> None:
    real = machine._answer_write

    def hopeful(tenure: Tenure, given: Any, now_s: float) -> Any:
        if isinstance(given.outcome, Unknown) and tenure.sent is not None:
            row = lease_row(tenure.sent.write.onto(tenure.row.attributes()))
            given = replace(given, outcome=Done(row))
        return real(tenure, given, now_s)

    answered: list[tuple[State, type[Any]]] = [(state, tenure_events.WriteAnswered) for state in State]
    for rule in answered:
        patch.setitem(machine.TABLE, rule, machine._ignore if rule[0] is State.OVER else hopeful)


def what_was_applied_is_not_recognized(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(conditional_write, "applied", lambda write, row: False)


def stale_reads_are_trusted(patch: pytest.MonkeyPatch) -> None:
    """Those of the workers' rows: a stale look at a lease makes a take fail, no more."""
    workers = TableConnection.workers
    patch.setattr(TableConnection, "workers", lambda self, *, consistent=False: workers(self))


def the_token_does_not_grow(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TenureKeeper, "token", property(lambda self: 1))


def drains_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    def drained(self: Any, deadline_s: float) -> asyncio.Future[bool]:
        self._driver.ledger.may_deliver = MayDeliver.NOTHING
        at_once: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        at_once.set_result(True)
        return at_once

    patch.setattr(ShardHandle, "drain", drained)


def a_worker_that_gives_goes_on_delivering(patch: pytest.MonkeyPatch) -> None:
    real = Ledger.deliver

    def deliver(self: Any, now_s: float, records_max: int = 10_000) -> Any:
        delivers, self.may_deliver = self.may_deliver, MayDeliver.ALL
        try:
            return real(self, now_s, records_max)
        finally:
            self.may_deliver = delivers

    patch.setattr(Tenure, "may_deliver", lambda tenure, now_s: tenure.token > 0 and now_s < tenure.fence_s)
    patch.setattr(Ledger, "deliver", deliver)


def what_was_read_ahead_is_all_delivered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pages, "behind", lambda records, after: records)


def letters_count_before_they_are_written(patch: pytest.MonkeyPatch) -> None:
    real = LetterTasks._write

    async def hasty(self: Any, given: Any) -> None:
        self._tell(LetterWritten(given.ledger, given.letter))
        await real(self, given)

    patch.setattr(LetterTasks, "_write", hasty)


def letters_that_were_not_written_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Letters, "not_written", lambda self, letter, error, now_s, hurries: self.written(letter))


def a_batch_dies_of_one_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(simulator, "Retry", partial(Retry, halve=False))


def each_record_has_its_own_key(patch: pytest.MonkeyPatch) -> None:
    real = KeyQueue.__init__

    def init(self: Any, tickets: Any, *, slots_max: int, key_of: Any) -> None:
        real(self, tickets, slots_max=slots_max, key_of=id)

    patch.setattr(KeyQueue, "__init__", init)


def windows_are_not_read_again(patch: pytest.MonkeyPatch) -> None:
    async def nothing(self: Any, *arguments: Any) -> None:
        """Nothing is learnt."""

    patch.setattr(WindowRead, "_read", nothing)


def windows_are_not_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Duplicates, "may_deliver", property(lambda self: True))


def one_part_settles_its_record(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(page, "_is_same", lambda one, other: False)


def parts_are_left_at_a_handoff(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(page.Page, "continues", lambda self, place: False)


def what_was_prepared_and_done_is_abandoned(patch: pytest.MonkeyPatch) -> None:
    def abandon(choice: object) -> PendingChoice:
        return PendingChoice.ABANDON

    abandon.ABANDON, abandon.KEEP = PendingChoice.ABANDON, PendingChoice.KEEP  # type: ignore[attr-defined]
    patch.setattr(pending, "PendingChoice", abandon)


def a_worker_that_gives_up_takes_it_again(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(WorkerState, "avoid", lambda self, key, until_s: None)


def streams_share_their_leases(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(StreamPart, "key_of", lambda self, shard_id: shard_id)


def what_was_trimmed_counts_as_silence(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(FeedCursor, "_is_covered", lambda self, horizon_s: True)


def a_trimmed_shard_is_an_error(patch: pytest.MonkeyPatch) -> None:
    async def never(self: Any) -> bool:
        return False

    patch.setattr(PollingFeed, "_is_trimmed", never)


TWO_READERS = {"two readers", "a token that does not grow", "a batch without a tenure"}
AGAIN = {"records that are settled come again", "records come again after a handoff"}
AHEAD = {"a checkpoint ahead of settlement"}
STUCK = {"no progress after healing"}
OUT_OF_ORDER = {"a key out of order", "a key side by side", "a batch of several keys"}


def the_last_write_of_a_tenure_stores_nothing(patch: pytest.MonkeyPatch) -> None:
    real = machine._storable
    patch.setattr(machine, "_storable", lambda tenure: None if tenure.state is State.ENDING else real(tenure))


def an_owner_that_renews_is_taken_for_one_that_let_go(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(views, "ABANDONED_FAILOVERS", 0.3)


def only_a_caller_that_asks_at_this_moment_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Callers, "__bool__", lambda asking: False)


def what_failed_of_a_key_comes_behind_what_is_new(patch: pytest.MonkeyPatch) -> None:
    real = KeyQueue._next_of

    def fresh_first(queue: Any, lane: Any, records_max: int, *, gaps_only: bool) -> Any:
        again, lane.again = lane.again, None if lane.fresh else lane.again
        try:
            return real(queue, lane, records_max, gaps_only=gaps_only)
        finally:
            lane.again = again

    patch.setattr(KeyQueue, "_next_of", fresh_first)


def an_aggregate_is_settled_by_one_of_its_records(patch: pytest.MonkeyPatch) -> None:
    real = Chain.safe.fget  # type: ignore[attr-defined]

    def whole(chain: Any) -> Checkpoint:
        safe: Checkpoint = real(chain)
        return Checkpoint.at(Position(safe.position.sequence_number, 10_000)) if safe.is_position else safe

    patch.setattr(Chain, "safe", property(whole))


def the_last_record_of_a_page_settles_it(patch: pytest.MonkeyPatch) -> None:
    real = page.Page.mark

    def mark(one: Any, place: int) -> bool:
        done = real(one, place)
        if done and place == one.count - 1 and one.left:
            one.mark_all(one.places, one.left)
        return done

    patch.setattr(page.Page, "mark", mark)


def a_position_is_reopened_at_the_tip(patch: pytest.MonkeyPatch) -> None:
    real = FeedCursor.start

    def start(feed: Any, service_now_s: float, **known: Any) -> Any:
        at = real(feed, service_now_s, **known)
        return at if at.sequence_number is None else at._replace(type="LATEST", sequence_number=None)

    patch.setattr(FeedCursor, "start", start)


def the_last_record_of_an_answer_is_overlooked(patch: pytest.MonkeyPatch) -> None:
    real = FeedCursor.take

    def shorter(feed: Any, given: Any, **known: Any) -> Any:
        fewer = given.records[:-1] if len(given.records) > 1 else given.records
        return real(feed, given._replace(records=fewer), **known)

    patch.setattr(FeedCursor, "take", shorter)


def each_worker_plans_to_have_all(patch: pytest.MonkeyPatch) -> None:
    real = shardway_fleet.plan

    def selfish(leases: Any, workers: Any, me: str, strategy: Any, **times: Any) -> Any:
        return real(leases, [one for one in workers if one.id == me], me, strategy, **times)

    patch.setattr(decide, "plan", selfish)


def children_begin_with_what_comes_from_now_on(patch: pytest.MonkeyPatch) -> None:
    real = births_at_end

    def late(children: Any, held: Any) -> list[Birth]:
        return [Birth(one.shard, "LATEST") for one in real(children, held)]

    patch.setattr(shard_leases, "births_at_end", late)


def latest_is_a_word_alone(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenStream, "start_ms", lambda stream, checkpoint: None)


def latest_is_a_moment_to_come(patch: pytest.MonkeyPatch) -> None:
    real = OpenStream.start_ms
    patch.setattr(OpenStream, "start_ms", lambda stream, at: None if (ms := real(stream, at)) is None else ms + 6_000)


def each_take_moves_the_start(patch: pytest.MonkeyPatch) -> None:
    real = FeedCursor.__init__

    def init(feed: Any, shard: Any, checkpoint: Checkpoint, **known: Any) -> None:
        real(feed, shard, checkpoint, **{**known, "read_until_s": None} if checkpoint == Checkpoint.LATEST else known)

    patch.setattr(FeedCursor, "__init__", init)


def a_seek_is_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ShardReader, "seek", lambda reader, feed, after: None)


def what_was_asked_for_before_a_seek_is_taken(patch: pytest.MonkeyPatch) -> None:
    """A page that was asked for at the former place comes behind the seek, into the new ledger."""
    real = Pages.seek

    def seek(pages: Any, feed: Any, after: Checkpoint) -> None:
        running, pages._running_task = pages._running_task, None
        real(pages, feed, after)
        pages._running_task = running

    patch.setattr(Pages, "seek", seek)


def any_plan(plan: FaultPlan) -> bool:
    return True


def seeks(plan: FaultPlan) -> bool:
    return sum(isinstance(one, Seek) for one in plan.faults) >= 3 and plan.records_per_s > 5


def from_latest(plan: FaultPlan) -> bool:
    return plan.start == "LATEST" and plan.records_per_s > 5


def sleeping(plan: FaultPlan) -> bool:
    return any(isinstance(one, Pause) and one.suspended and one.lasts_s > 12 for one in plan.faults)


def calm_moves(plan: FaultPlan) -> bool:
    return plan.calm and any(isinstance(one, Leave | Join) for one in plan.faults) and plan.records_per_s > 5


def stale(plan: FaultPlan) -> bool:
    return any(isinstance(one, Noise) and one.frozen for one in plan.faults)


def cut_off(plan: FaultPlan) -> bool:
    """A worker is cut off from its leases, not from the stream, for longer than they last."""
    return any(isinstance(one, Cut) and one.service is Service.TABLE and one.lasts_s > 15 for one in plan.faults)


def reshards_in_noise(plan: FaultPlan) -> bool:
    """A shard is split while writes to the leases get lost."""
    noises = [one for one in plan.faults if isinstance(one, Noise) and one.service is Service.TABLE]
    return any(
        one.request_lost >= 0.1 and one.worker is None and one.at_s < split.at_s < one.at_s + one.lasts_s - 1
        for one in noises
        for split in plan.faults
        if isinstance(split, Split)
    )


def workers_alone(plan: FaultPlan) -> bool:
    """A worker cannot write its own row, and goes on writing to its leases."""
    cuts = [one for one in plan.faults if isinstance(one, Cut)]
    both = {one.at_s for one in cuts if one.service is Service.TABLE}
    return any(one.service is Service.WORKERS and one.at_s not in both and one.lasts_s > 15 for one in cuts)


def moves(plan: FaultPlan) -> bool:
    return any(isinstance(one, Leave | Join) for one in plan.faults)


def letters_get_lost(plan: FaultPlan) -> bool:
    return plan.bad > 0 and any(isinstance(one, Noise) and one.service is Service.LETTERS for one in plan.faults)


def bad_records(plan: FaultPlan) -> bool:
    return plan.bad > 0


def by_key(plan: FaultPlan) -> bool:
    return plan.program == "by_key"


def windows(plan: FaultPlan) -> bool:
    return plan.window_s >= 30 and plan.window_waits and not plan.calm


def split(plan: FaultPlan) -> bool:
    return plan.parts


def split_and_moved(plan: FaultPlan) -> bool:
    return plan.parts and calm_moves(plan) and plan.options["batch_records_max"] == 3


def two_phases(plan: FaultPlan) -> bool:
    return plan.program == "two_phase" and any(isinstance(one, Crash) for one in plan.faults)


def given_up(plan: FaultPlan) -> bool:
    return plan.gives_up_after_s == 1.0 and plan.cool_down_s == 8.0


def several_streams(plan: FaultPlan) -> bool:
    return plan.streams > 1


def aggregates(plan: FaultPlan) -> bool:
    return plan.aggregates


def side_by_side(plan: FaultPlan) -> bool:
    return plan.program in ("any_order", "by_key", "unordered")


def reshards(plan: FaultPlan) -> bool:
    return any(isinstance(fault, Split | Merge) for fault in plan.faults)


def outages(plan: FaultPlan) -> bool:
    return any(isinstance(one, Outage) and one.hours > 24 for one in plan.faults) and plan.records_per_s > 5


def reshards_before_outages(plan: FaultPlan) -> bool:
    """A shard may have been closed, and not been read to its end, when all of it is trimmed."""
    return any(
        one.at_s - 4 < reshard.at_s < one.at_s
        for one in plan.faults
        if isinstance(one, Outage) and one.hours > 24
        for reshard in plan.faults
        if isinstance(reshard, Split | Merge)
    )


def leases_are_dealt_out_otherwise_each_time(patch: pytest.MonkeyPatch) -> None:
    """Each worker counts the others' leases by turns, so that leases go on moving once all is even."""
    turns = count()

    def by_turns(self: Any, leases: Any, workers: Any, preferred: Any) -> dict[str, str]:
        ids = sorted(worker.id for worker in workers)
        turn = next(turns) // 8
        return {
            one.key: ids[(place + turn) % len(ids)] for place, one in enumerate(sorted(leases, key=lambda x: x.key))
        }

    patch.setattr(strategies.EqualCounts, "__call__", by_turns)


def a_row_that_is_on_its_way_is_not_awaited(patch: pytest.MonkeyPatch) -> None:
    """A worker that leaves takes its row away while a write of that row is under way."""
    real, tasks = Presence.run, dict[Any, Any]()

    async def run(self: Any, on_alive: Any) -> None:
        tasks[self] = asyncio.current_task()
        await real(self, on_alive)

    patch.setattr(Presence, "run", run)
    patch.setattr(Presence, "end", lambda self: tasks[self].cancel())


MUTANTS = [
    (no_self_fence, TWO_READERS, cut_off),
    (a_fence_of_thrice_the_time, TWO_READERS, cut_off),
    (a_worker_that_sleeps_does_not_count_it, TWO_READERS, sleeping),
    (counters_ignored, TWO_READERS | {"a checkpoint goes back"}, any_plan),
    (parents_not_awaited, {"an early child"}, any_plan),
    (children_without_a_lease, {"an end before the children have leases"}, reshards_in_noise),
    (the_newest_settlement_is_checkpointed, AHEAD, any_plan),
    (what_was_fetched_is_checkpointed, AHEAD, any_plan),
    (a_shard_ends_when_its_last_record_is_fetched, AHEAD, any_plan),
    (failures_count_as_settled, AHEAD, any_plan),
    (a_tenth_of_the_failover_time_is_waited_for, TWO_READERS, any_plan),
    (the_own_row_holds_up_no_fence, TWO_READERS, workers_alone),
    (unknown_outcomes_count_as_done, TWO_READERS | STUCK, any_plan),
    (what_was_applied_is_not_recognized, {"a healthy owner lost its lease"}, any_plan),
    (stale_reads_are_trusted, TWO_READERS, stale),
    (the_token_does_not_grow, {"a token that does not grow"}, any_plan),
    (drains_are_not_awaited, AGAIN, calm_moves),
    (a_worker_that_gives_goes_on_delivering, TWO_READERS | AGAIN, calm_moves),
    (what_was_read_ahead_is_all_delivered, {"settled before", "a worker ends"}, moves),
    (letters_count_before_they_are_written, {"settled before its letter"}, bad_records),
    (letters_that_were_not_written_count, {"settled before its letter"}, letters_get_lost),
    (a_batch_dies_of_one_record, {"a good record is given up"}, bad_records),
    (each_record_has_its_own_key, OUT_OF_ORDER, by_key),
    (windows_are_not_read_again, {"a duplicate is delivered"}, windows),
    (windows_are_not_waited_for, {"a duplicate is delivered"}, windows),
    (one_part_settles_its_record, AHEAD, split),
    (parts_are_left_at_a_handoff, AGAIN, split_and_moved),
    (what_was_prepared_and_done_is_abandoned, {"put out twice"}, two_phases),
    (a_worker_that_gives_up_takes_it_again, {"a shard comes back in its cool-down"}, given_up),
    (streams_share_their_leases, STUCK | {"a worker ends"}, several_streams),
    (what_was_trimmed_counts_as_silence, {"a loss that is not told"}, outages),
    (a_trimmed_shard_is_an_error, {"a worker ends"}, reshards_before_outages),
    (the_last_write_of_a_tenure_stores_nothing, AGAIN | {"settled and not stored"}, calm_moves),
    (an_owner_that_renews_is_taken_for_one_that_let_go, TWO_READERS, any_plan),
    (only_a_caller_that_asks_at_this_moment_is_waited_for, AGAIN, split_and_moved),
    (what_failed_of_a_key_comes_behind_what_is_new, OUT_OF_ORDER, by_key),
    (an_aggregate_is_settled_by_one_of_its_records, AHEAD, aggregates),
    (the_last_record_of_a_page_settles_it, AHEAD, side_by_side),
    (a_position_is_reopened_at_the_tip, {"a gap"} | AHEAD | STUCK, moves),
    (the_last_record_of_an_answer_is_overlooked, {"a gap"} | AHEAD, any_plan),
    (leases_are_dealt_out_otherwise_each_time, {"leases move without need"}, any_plan),
    (each_worker_plans_to_have_all, STUCK, moves),
    (children_begin_with_what_comes_from_now_on, {"a child that loses its beginning"}, reshards),
    (latest_is_a_word_alone, {"an owner without a time"}, from_latest),
    (latest_is_a_moment_to_come, {"a start that is still to come"}, from_latest),
    (each_take_moves_the_start, {"a gap"} | AHEAD | STUCK, from_latest),
    (a_seek_is_dropped, {"a gap", "a record of the former place"}, seeks),
    (what_was_asked_for_before_a_seek_is_taken, {"a gap", "a record of the former place"}, seeks),
    (a_row_that_is_on_its_way_is_not_awaited, {"a worker's row is left behind"}, any_plan),
]
"""What is done, the rules of which one must be found broken, and the plans in which that can happen."""
