"""The driver runs the planner for Spark's synchronous calls: on a loop in a thread, with a client of its own, and at a
limited pace.

Spark asks an idle query's source for its latest offset some 70 times a second; nearly all of these calls must cost
nothing.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from itertools import chain
from typing import TYPE_CHECKING, Any

import msgspec

from shardway.aws.calls.retry import NEVER
from shardway.aws.dynamodb.lease_table import DynamoLeaseTable
from shardway.aws.kinesis.client import KinesisClient
from shardway.aws.wire import Wire
from shardway.core.leases.stream_mark import StreamMark
from shardway.core.service_clock import ClockSearch, SteadyEpoch
from shardway.errors import OptionError, ShardwayError
from shardway.model import epoch_ms
from shardway.runtime.clocks import SteadyClock
from shardway.runtime.threads.loop_thread import LoopThread
from shardway.spark.driver.grouping import chains_of, pack_tasks
from shardway.spark.driver.pace import BUSY_INTERVAL_S, CARRIED_INTERVAL_S, Pace
from shardway.spark.driver.planner import Planner, PlanOptions
from shardway.spark.driver.stream_summary import describe
from shardway.spark.leases.mirror import LeaseMirror
from shardway.spark.lookahead.stream_calls import latest_ms, patience
from shardway.spark.offsets import StreamOffset, is_initial
from shardway.spark.ranges import ShardPartition, TaskOptions
from shardway.tasks import give_up, logged, spawn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.spark.options.read_options import QueryLeases, ReadOptions

CLOCK_WAIT_S = 0.1
BEGAN_S_MAX = 60.0
"""A caller's start is the time up to which AvailableNow reads, if it is at most so many seconds ago. An earlier one is
of another run of the query, or the machine's clock was set.
"""


class Driver:
    """Keeps what one query knows of its stream, on Spark's driver.

    ``all_at_first``: the first plan after a start goes up to the very moment and waits for it for up to a second, as it
    does after :meth:`freeze`, which some versions of Spark do not call; the next ones are cut a little before now.
    """

    def __init__(self, options: ReadOptions, task_options: TaskOptions, *, all_at_first: bool = False) -> None:
        self._options = options
        self._task_options = task_options
        self._loop = LoopThread("shardway-driver")
        self._now_s = SteadyEpoch(SteadyClock(self._loop.loop), time.time)
        self._planner: Planner | None = None
        self._wire: Wire | None = None
        self._pace = Pace()
        self._clock_search = ClockSearch()
        self._clock_call: asyncio.Task[None] | None = None
        self._answer: dict[str, Any] | None = None
        """The newest offset as Spark got it: with 10,000 shards, making it 70 times a second would take a core."""
        self._target_ms: int | None = None
        self._all_next = all_at_first
        self._leases: LeaseMirror | None = None
        self._planned_end: StreamOffset | None = None
        """The end of the batch that Spark is busy with."""
        self._has_committed = False

    def latest(self, start: Mapping[str, Any] | None, *, capped: bool) -> dict[str, Any]:
        """Return the end of the next batch as Spark's offset; the newest one again while there is nothing new."""
        if self._planned_end is not None:
            # Spark runs one batch at a time, and asks for the next end when the last one is in its commit log.
            self._loop.run(self._note_commit(self._planned_end))
        # Spark asks some 70 times a second; a plan asks the service.
        if self._answer is None or self._pace.due(time.monotonic()):
            self._answer = self._loop.run(self._latest(start, capped))
        return self._answer

    def freeze(self) -> None:
        """Fix the end for AvailableNow: batches read what is there now, and then the offset stays the same."""
        self._loop.run(self._freeze())

    def stand_at(self, offset: Mapping[str, Any]) -> None:
        """Take the place of a restarted query: Spark 4.0 and 4.1 give it only before the first plan, in this way."""
        self._loop.run(self._begin(StreamOffset.from_dict(offset)))

    def partitions(self, end: Mapping[str, Any]) -> list[ShardPartition]:
        """Return the tasks of the batch that ends at ``end``. A replay gets the same."""
        return self._loop.run(self._partitions(StreamOffset.from_dict(end)))

    def note_commit(self, end: Mapping[str, Any]) -> None:
        """Take note that Spark has committed the batch that ends at ``end``. Spark says so late: with the next one."""
        if self._options.leases is not None and not self._has_committed:
            self._loop.run(self._note_commit(StreamOffset.from_dict(end)))

    def plan_whole(self) -> list[ShardPartition]:
        """Return the tasks of a batch read: everything from the start to the ending time."""
        return self._loop.run(self._plan_whole())

    def report(self) -> dict[str, Any] | None:
        """Return what Spark shows as the source's latest offset in a query's progress, such as the lag, and the losses
        that were passed over.
        """
        planner = self._planner
        if planner is None or planner.offset is None:
            return None
        shown = {} if self._leases is None else {"leasesBehind": self._leases.behind}
        return {
            **shown,
            "cutMs": planner.offset.cut_ms,
            "lagMs": planner.lag_ms(),
            "leftOutShards": len(planner.waits.left_out),
            "possibleLosses": planner.losses.count,
            "shards": len(planner.offset.shards),
            "silentShards": len(planner.waits.shards),
            "unreadShards": len(planner.offset.unread()),
        }

    def close(self) -> None:
        """End the loop and its connections."""
        if self._clock_call is not None:
            self._loop.run(give_up(self._clock_call))
            self._clock_call = None
        if self._leases is not None:
            self._loop.run(self._leases.close())
            self._leases = None
        if self._wire is not None:
            self._loop.run(self._wire.close())
            self._wire = None
        self._loop.close()

    async def _begin(self, stored: StreamOffset | None) -> Planner:
        if self._planner is None:
            self._wire = self._new_wire()
            planner = Planner(
                KinesisClient(self._wire),
                self._options.stream,
                self._options.start,
                PlanOptions.of(self._options),
            )
            leases = self._options.leases
            if leases is not None and self._leases is None:
                self._leases = await self._open_leases(leases)
            rows = self._leases.rows if self._leases is not None and leases is not None and leases.start_there else {}
            await planner.begin(stored, rows)
            if self._leases is not None and leases is not None:
                summary, made_again = planner.summary, stored is not None and planner.offset is not stored
                stream = StreamMark(summary.stream_arn, int(summary.creation_timestamp_s))
                self._leases.check_stream(stream, begins_anew=made_again or not leases.start_there)
            if self._leases is not None and stored is not None and planner.offset is stored:
                self._leases.compare(stored, planner.lineage)
            await self._check_start(planner)
            self._planner = planner
        return self._planner

    def _new_wire(self) -> Wire:
        """Make a wire with a clock that does not jump: positions are judged by the service's time, which is counted
        from it.
        """
        return Wire(self._options.connection("driver"), now=self._now_s)

    async def _open_leases(self, options: QueryLeases) -> LeaseMirror:
        connection = msgspec.structs.replace(self._options.connection("driver"), endpoint_url=options.endpoint_url)
        leases = LeaseMirror(
            DynamoLeaseTable(options.table, connection),
            stream=str(self._options.stream),
            application=options.application,
            start=self._options.start,
            interval_s=options.interval_s,
            failover_s=options.failover_s,
        )
        try:
            await leases.begin()
        except BaseException:
            await leases.close()
            raise
        return leases

    async def _note_commit(self, end: StreamOffset) -> None:
        self._planned_end, self._has_committed = None, True
        planner, leases = self._planner, self._leases
        if planner is not None and leases is not None and end.created_s == int(planner.summary.creation_timestamp_s):
            leases.follow(end, planner.lineage)

    async def _check_start(self, planner: Planner) -> None:
        moment = self._options.start.timestamp
        if moment is None:
            return
        if epoch_ms(moment) > planner.service_ms_upper():
            raise OptionError(f"startingTimestamp {moment.isoformat()} is in the future by the service's clock")
        # The service refuses an iterator at a time that is still to come, by a millisecond too.
        await self._wait_until(planner, epoch_ms(moment))

    async def _latest(self, start: Mapping[str, Any] | None, capped: bool) -> dict[str, Any]:
        planner = self._planner
        if planner is None:
            stored = None if is_initial(start) or start is None else StreamOffset.from_dict(start)
            planner = await self._begin(stored)
        at_once, self._all_next = self._all_next, False
        until_ms = self._now_ms(self._wire) if at_once else self._target_ms
        if until_ms is not None:
            await self._wait_until(planner, until_ms)
        before, began_s = planner.offset, time.monotonic()
        offset = await planner.plan(until_ms=until_ms, capped=capped, at_once=at_once)
        if not planner.more and self._target_ms is None:
            has_data = offset is not before or planner.is_waiting
            idle_s = self._options.poll_interval_s
            busy_s = CARRIED_INTERVAL_S if planner.is_carried else BUSY_INTERVAL_S
            self._pace.note_look(began_s, min(busy_s, idle_s) if has_data else idle_s)
            if has_data:
                self._search_clock()
        return offset.to_dict()

    def _search_clock(self) -> None:
        """Make a call that narrows the service's clock down, where that is not known well enough: each batch is
        cut at the earliest time that the clock may show, so its records wait for what is not known.
        """
        wire = self._wire
        if wire is None or (self._clock_call is not None and not self._clock_call.done()):
            return
        call_s = self._clock_search.call_s(wire.clock, wire.now())
        if call_s is not None:
            self._clock_call = spawn(self._ask_time(wire, call_s), logged("the service was not asked for its time"))

    async def _ask_time(self, wire: Wire, at_s: float) -> None:
        """Make a call at a local time, for the ``Date`` of its answer. A refusal has one, too. Without an answer the
        batches are cut as before.
        """
        await asyncio.sleep(max(0.0, at_s - wire.now()))
        with suppress(ShardwayError):
            await KinesisClient(wire).describe_stream_summary(self._options.stream, retry=NEVER)

    async def _freeze(self) -> None:
        if self._planner is not None:
            self._target_ms = self._now_ms(self._wire)
            return
        async with self._new_wire() as wire:
            await describe(KinesisClient(wire), self._options.stream, patience(self._options.outage_s))
            self._target_ms = self._now_ms(wire)

    def _now_ms(self, wire: Wire | None) -> int:
        """Return the service's time, at most, up to which AvailableNow reads: it is that of the caller's start, where
        this is known. By now that is past for sure, and nothing has to be waited for.
        """
        assert wire is not None  # a planner has come with it
        now_s, began_s = wire.now(), self._options.available_now_s
        if began_s is None or not 0 <= now_s - began_s <= BEGAN_S_MAX:
            began_s = now_s
        return latest_ms(wire.clock, began_s)

    async def _wait_until(self, planner: Planner, moment_ms: int) -> None:
        """Wait until the service's clock has surely passed a moment: the service's answers give the time to about a
        second.
        """
        # Without answers the bounds of the service's clock only widen. The moment was taken before, so the lower bound
        # passes it all the same; one that is taken again in each turn would stay ahead of it.
        while planner.service_ms() < moment_ms:
            await asyncio.sleep(CLOCK_WAIT_S)

    async def _partitions(self, end: StreamOffset) -> list[ShardPartition]:
        planner = await self._begin(end)
        self._planned_end = end if self._leases is not None else None
        if end.created_s != int(planner.summary.creation_timestamp_s):
            return []  # it was reported as a loss when the query took its place in the new stream
        return await self._tasks(planner, end)

    async def _tasks(self, planner: Planner, end: StreamOffset) -> list[ShardPartition]:
        ranges = await planner.readable(planner.ranges(end))
        chains = chains_of(ranges, planner.lineage)
        return [
            ShardPartition(
                task,
                self._options.stream,
                self._task_options,
                planner.carried.for_ranges(tuple(chain.from_iterable(task))),
            )
            for task in pack_tasks(end, chains)
        ]

    async def _plan_whole(self) -> list[ShardPartition]:
        planner = await self._begin(None)
        ending = self._options.ending_timestamp
        now_ms = planner.service_ms_upper()
        target_ms = now_ms if ending is None else min(now_ms, epoch_ms(ending))
        await self._wait_until(planner, target_ms)
        return await self._tasks(planner, await planner.plan_whole(target_ms))
