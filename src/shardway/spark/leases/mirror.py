"""A mirror keeps an application's lease table up to what Spark has committed.

Spark's checkpoint directory stays the truth. The table is written to in the background, so that it never holds a
batch up, and a table that fails never fails the query: failures are logged, and the write is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import random
from typing import TYPE_CHECKING

from shardway.core.leases import Done, Outcome, Unknown
from shardway.core.leases.mirror import Create, MirroredRows, Read, Step
from shardway.core.leases.stream_mark import StreamMark, disowned_text
from shardway.core.pacing import Backoff
from shardway.errors import OptionError, ShardwayError
from shardway.spark.leases.claim import LeaseClaim, some_of
from shardway.spark.leases.lease_position import keys_of_trimmed_shards, marks_of
from shardway.tasks import give_up, spawn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shardway.core.leases.row import LeaseRow
    from shardway.core.lineage import Lineage
    from shardway.model import StartingPosition
    from shardway.ports import LeaseTable
    from shardway.spark.offsets import StreamOffset

log = logging.getLogger("shardway.spark")

CALLS_MAX = 16
"""Calls to the table that are under way at the same time."""
ROUNDS_MAX = 5
"""Where another program writes to the same rows, the query tries so many times in a row; then these rows wait for the
next turn.
"""
NOTES_INTERVAL_S = 600.0
"""Seconds between two writes of the times of silent shards."""
LOOK_INTERVAL_S = 60.0
"""Seconds between two looks at leases that got an owner while the query runs; also between two equal warnings."""
BACKOFF_S, BACKOFF_MAX_S = 1.0, 60.0
CLOSE_TIMEOUT_S = 5.0
"""Seconds for the last writes when the query is stopped."""


class LeaseMirror:
    """Keeps the lease table of one application up to what one query has committed. It is used on one event loop."""

    def __init__(
        self,
        table: LeaseTable,
        *,
        stream: str,
        application: str,
        start: StartingPosition,
        interval_s: float,
        failover_s: float,
        rng: random.Random | None = None,
    ) -> None:
        """``interval_s``: the least time between two writes of the rows. ``failover_s``: the time after which an owner
        that has not renewed its leases is dead.
        """
        self._table = table
        self._place = f"stream {stream}, application {application} (table {table.name})"
        self._start = start
        self._interval_s = interval_s
        self._failover_s = failover_s
        self._rows = MirroredRows(())
        self._newest: tuple[StreamOffset, Lineage] | None = None
        self._news = asyncio.Event()
        self._run_task: asyncio.Task[None] | None = None
        self._calls = asyncio.Semaphore(CALLS_MAX)
        self._backoff = Backoff(base_s=BACKOFF_S, cap_s=BACKOFF_MAX_S, rng=rng or random.Random())
        self._faults: dict[str, str] = {}
        self._warned_s: dict[str, float] = {}
        self._noted_s = self._looked_s = float("-inf")

    async def begin(self) -> None:
        """Read the application's leases. No living worker may own one. The table is made if there is none.

        Raises LeasesInUseError, and what the table answers: a query that does not know where to begin does not begin.
        """
        try:
            rows = await LeaseClaim(self._table, self._place, self._failover_s).rows()
        except ShardwayError as error:
            error.add_note(f"while reading the leases of {self._place}")
            raise
        self._rows = MirroredRows(rows)

    def check_stream(self, stream: StreamMark, *, begins_anew: bool) -> None:
        """Raise OptionError for leases of another stream, or of a former one of this name. ``begins_anew``: such leases
        begin again with the first commit instead.
        """
        foreign = [row for row in self._rows.rows.values() if stream.disowns(row)]
        if not foreign:
            return
        if begins_anew:
            log.warning("%s: %s: they begin again", self._place, disowned_text(foreign, stream))
            return
        raise OptionError(
            f"{self._place}: {disowned_text(foreign, stream)}: their positions mean nothing here. Give the query an "
            "applicationName of its own, or set continueFromLeases to false: then they begin again"
        )

    def compare(self, offset: StreamOffset, lineage: Lineage) -> None:
        """Warn where the leases are ahead of where the query goes on."""
        ahead = self._rows.ahead(marks_of(offset, lineage, self._start))
        if ahead:
            log.warning(
                "%s: the leases of %d shards (%s) are ahead of the Spark checkpoint directory: another program has "
                "read on. The query goes on where its directory says, and reads what lies between again",
                self._place, len(ahead), some_of(ahead),
            )  # fmt: skip

    def follow(self, offset: StreamOffset, lineage: Lineage) -> None:
        """Take an offset that Spark has committed: its positions are written in a moment, unless newer ones come
        before.
        """
        self._newest = (offset, lineage)
        self._news.set()
        if self._run_task is None:
            self._run_task = spawn(self._run(), self._note_failure)

    @property
    def rows(self) -> Mapping[str, LeaseRow]:
        """The leases by shard, as they were read or written last."""
        return self._rows.rows

    @property
    def behind(self) -> int:
        """The number of shards whose leases do not say yet what is committed."""
        newest = self._newest
        return len(self._rows.behind(None if newest is None else marks_of(*newest, self._start)))

    async def close(self) -> None:
        """Write what is missing, for a moment, and close the table."""
        if self._run_task is not None:
            await give_up(self._run_task)
            self._run_task = None
            try:
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    await self._turn()
                    while self._faults:
                        await asyncio.sleep(self._backoff.next_s())
                        await self._turn()
            except TimeoutError:
                self._faults.setdefault("", f"nothing came of it within {CLOSE_TIMEOUT_S:g} s")
            self._warned_s.clear()
            self._warn_of_faults("the query stops")
        await self._table.close()

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._news.wait()
            self._news.clear()
            began_s = loop.time()
            await self._turn()
            self._warn_of_owners()
            wait_s = self._interval_s
            if self._faults:
                wait_s = max(wait_s, self._backoff.next_s())
                self._warn_of_faults(f"it is tried again in {wait_s:.1f} s, and the query goes on")
                self._news.set()
            elif self._backoff.attempt:
                self._backoff.reset()
                log.info("%s: the leases are up to date again", self._place)
            await asyncio.sleep(max(0.0, began_s + wait_s - loop.time()))

    def _note_failure(self, error: BaseException) -> None:
        """Take note that the writing task has failed: the next commit begins it again, and what is missing is written
        then, or at the end.
        """
        log.error("%s: the writing of leases has failed, and is begun again", self._place, exc_info=error)
        self._run_task = None

    async def _turn(self) -> None:
        """Write until the rows say what is wanted. What fails is left in ``_faults``, by shard."""
        now_s = asyncio.get_running_loop().time()
        self._want(now_s)
        if now_s - self._looked_s > LOOK_INTERVAL_S:
            self._looked_s = now_s
            self._rows.doubt(self._rows.owned())
        self._faults = {}
        for _ in range(ROUNDS_MAX):
            steps = self._rows.steps()
            if not steps or self._faults:
                return
            await asyncio.gather(*map(self._step, steps))
        self._faults = {_key(step): "another program writes to the lease" for step in self._rows.steps()}

    def _want(self, now_s: float) -> None:
        """Say what the rows should say. With thousands of shards this takes a while: it is done once for each turn, and
        not for each batch.
        """
        if self._newest is None:
            return
        (offset, lineage), self._newest = self._newest, None
        notes = now_s - self._noted_s > NOTES_INTERVAL_S
        if notes:
            self._noted_s = now_s
        gone = keys_of_trimmed_shards(self._rows.rows, offset, lineage)
        self._rows.want(marks_of(offset, lineage, self._start), gone=gone, notes=notes)

    async def _step(self, step: Step) -> None:
        key = _key(step)
        try:
            async with self._calls:
                outcome = await self._perform(step)
        except Exception as error:  # whatever failed: the next turn tries again, and the query goes on
            outcome = Unknown(f"{type(error).__name__}: {error}")
        self._rows.learn(key, outcome)
        if isinstance(outcome, Unknown):
            self._faults[key] = outcome.reason

    async def _perform(self, step: Step) -> Outcome:
        if isinstance(step, Read):
            return Done(await self._table.get(step.key))
        if isinstance(step, Create):
            return await self._table.create(step.row)
        return await self._table.write(step)

    def _warn_of_faults(self, what_now: str) -> None:
        if not self._faults or not self._due("faults"):
            return
        shards = some_of(one for one in self._faults if one)
        reason = next(iter(self._faults.values()))
        log.warning(
            "%s: the leases of %d shards (%s) are behind what the query has committed: %s; %s. The Spark checkpoint "
            "directory has all of it", self._place, len(self._faults), shards, reason, what_now,
        )  # fmt: skip

    def _warn_of_owners(self) -> None:
        owned = self._rows.owned()
        if owned and self._due("owners"):
            log.warning(
                "%s: the leases of %d shards (%s) have an owner now, %s: the query does not write to them, and "
                "the owner and the query both read these shards. Stop one of the two",
                self._place, len(owned), some_of(owned), some_of(dict.fromkeys(owned.values())),
            )  # fmt: skip

    def _due(self, what: str) -> bool:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._warned_s.get(what, float("-inf")) < LOOK_INTERVAL_S:
            return False
        self._warned_s[what] = now_s
        return True


def _key(step: Step) -> str:
    return step.row.key if isinstance(step, Create) else step.key
