"""Run whole consumers in virtual time, under faults, and check everything that they do."""

from __future__ import annotations

import datetime as dt
import gc
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from shardway.core.leases.checkpoint import Checkpoint
from shardway.core.leases.row import LeaseRow
from shardway.core.shard.checkpoints.cadence import Every, Prompt, Riding
from shardway.core.shard.duplicates import Deduplicate
from shardway.model import StartingPosition
from shardway.options.consumer import BufferOptions, CheckpointOptions, ConsumerOptions, FanOutOptions, HandoffOptions
from shardway.options.leases import LeaseOptions
from shardway.policies import DeadLettersTo, Redeliver, Retry, SettlingOptions
from shardway.testing.sim.history.history import History
from shardway.testing.sim.history.journal import BrokenRule
from shardway.testing.sim.history.promises import Promises
from shardway.testing.sim.history.shard_story import BAD, STREAM
from shardway.testing.sim.plan import (
    Crash,
    Cut,
    Failing,
    FaultPlan,
    Join,
    Jump,
    Leave,
    Merge,
    Noise,
    Outage,
    Pause,
    Seek,
    SlowHandler,
    Split,
)
from shardway.testing.sim.process import Process
from shardway.testing.sim.programs import PROGRAMS, HandlerError
from shardway.testing.sim.services.stream import EPOCH_S, ServiceTime, SimulatedStream
from shardway.testing.sim.services.table import SimulatedTable, now
from shardway.testing.sim.virtual_time import VirtualTime

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Awaitable, Callable

    from shardway.core.shard.checkpoints.cadence import Cadence
    from shardway.runtime.consumer.consumer import Consumer
    from shardway.testing.sim.plan import Fault

CADENCES: dict[str, Cadence] = {"riding": Riding(), "prompt": Prompt(), "every": Every(seconds=1.0)}
PUT_INTERVAL_S = 0.5
LOOK_INTERVAL_S = 0.5
HEALED_FAILOVERS_MAX = 15.0
"""The number of failover times after the last fault, or the last record that was settled, in which all has to be as it
should.
"""
QUIET_AFTER_FAILOVERS = 2.0
QUIET_FAILOVERS = 1.5
"""The number of failover times in which no lease may move then."""
LEAVE_S_MAX = 30.0
RETENTION_S = 24 * 3600.0


@dataclass(frozen=True)
class Report:
    """The report of a simulation that has ended."""

    plan: FaultPlan
    broken: tuple[BrokenRule, ...]
    """The rules that were broken; it is empty where every rule held."""
    deliveries: int
    duplicates: int
    tenures: int
    moves: int
    virtual_s: float
    told: Counter[str]
    digest: str
    """The digest of the run, which is the same for each run of the same plan and code."""

    @property
    def ok(self) -> bool:
        """True when no rule was broken."""
        return not self.broken

    def __str__(self) -> str:
        if self.ok:
            return (
                f"seed {self.plan.seed}: {self.virtual_s:.0f} s, {self.deliveries} deliveries "
                f"({self.duplicates} again), {self.tenures} tenures"
            )
        return f"seed {self.plan.seed}: {self.broken[0]}"


class Simulator:
    """Runs a plan, once. ``program(consumer, process)`` is what each process does with its consumer; by default the
    plan names one of `shardway.testing.sim.programs`. ``options`` go before those of the plan.
    """

    def __init__(
        self,
        plan: FaultPlan,
        *,
        program: Callable[[Consumer[Any], Process], Awaitable[object]] | None = None,
        options: ConsumerOptions | None = None,
        on_note: Callable[[float, tuple[object, ...]], None] | None = None,
    ) -> None:
        """``on_note`` hears each fact of the run with its time, in order."""
        self.plan = plan
        self.time = VirtualTime()
        self.options = _options(plan) if options is None else options
        self.history = History(lambda: self.time.now_s, Promises(self.options), on_note)
        self.service_time = ServiceTime(self.time)
        self.streams = [self._stream(number) for number in range(plan.streams)]
        self.table = SimulatedTable(self.time, self.history)
        self.processes: list[Process] = []
        """All processes that there ever were."""
        self.fleet: list[Process] = []
        """The processes by their places in the fleet, which faults name."""
        self._program = PROGRAMS[plan.program] if program is None else program
        self._rng = random.Random(f"simulator {plan.seed}")

    def run(self) -> Report:
        """Run the simulation: faults come first, then a quiet time, then all workers leave."""
        collects = gc.isenabled()
        gc.disable()  # it depends on other runs what is collected when
        try:
            self._faults()
            self._heal()
            self._come_right()
            self._leave()
        finally:
            for process in self.processes:
                process.dispose()
            if collects:
                gc.enable()
        history = self.history
        return Report(
            self.plan,
            tuple(history.broken),
            history.counts.deliveries,
            history.counts.duplicates,
            history.counts.tenures,
            len(history.lease_rules.moves),
            self.time.now_s,
            history.told,
            history.digest,
        )

    def _stream(self, number: int) -> SimulatedStream:
        plan = self.plan
        name = STREAM if number == 0 else f"{STREAM}-{number + 1}"
        rng = random.Random(f"stream {plan.seed}" if number == 0 else f"stream {plan.seed} {number}")
        shards = max(1, (plan.shards + number) // plan.streams)
        return SimulatedStream(name, plan, shards, self.service_time, self.history, rng)

    # --- phases ---------------------------------------------------------------------------------

    def _faults(self) -> None:
        for place in range(self.plan.workers):
            at_s = self._rng.choice([0.0, self._rng.uniform(0.0, 2.0)]) + place * 1e-3
            self.time.at(self.plan.before_s + at_s, self._join)
        if self.plan.foreign_leases:
            self.time.at(self.plan.before_s / 2, self._make_leases)
        for fault in self.plan.faults:
            if fault.at_s >= self.plan.duration_s:
                continue
            self.time.at(fault.at_s, lambda fault=fault: self._happen(fault))  # type: ignore[misc]
        self.time.at(0.1, self._put)
        self.time.run(self.plan.duration_s)

    def _put(self) -> None:
        if self.time.now_s < self.plan.duration_s:
            records = self._rng.choice([0, 1, 2]) * self.plan.records_per_s * PUT_INTERVAL_S
            whole = int(records) + (self._rng.random() < records % 1)
            if whole:
                self._any_stream().put(whole)
            self.time.after(PUT_INTERVAL_S * self._rng.uniform(0.5, 1.5), self._put)

    def _any_stream(self) -> SimulatedStream:
        return self.streams[0] if len(self.streams) == 1 else self._rng.choice(self.streams)

    def _heal(self) -> None:
        if not any(process.here and not process.leaving for process in self.processes):
            self._join()
        for process in self.processes:
            for link in process.links.values():
                link.cut = None
                link.noises.clear()
            process.slow_s = None
            process.failing, process.handle_s, process.lingers_s, process.broken = 0.0, 0.0, 0.0, False
            if process.loop.frozen and process.alive:
                process.loop.thaw()
        for stream in self.streams:
            for _ in range(3):
                stream.put(5)

    def _come_right(self) -> None:
        """Wait until every record is settled, and every shard is with a worker that lives: within a bounded time, which
        begins anew with each further record, as what is left may be much for this program.
        """
        healed_s, settled = self.time.now_s, self.history.settled_count
        until_s = healed_s + HEALED_FAILOVERS_MAX * self.options.leases.failover_s
        # The last row of a worker that crashed may still be on its way: it shows the worker as if it lived, so that the
        # others give leases to it, as they must.
        arrived_s = max(process.arrives_until_s for process in self.processes)
        wrong = self._wrong()
        while (wrong or self.history.untold) and self.time.now_s < until_s and not self.history.broken:
            self.time.run(self.time.now_s + LOOK_INTERVAL_S)
            wrong = self._wrong()
            if self.history.settled_count > settled:
                settled = self.history.settled_count
                until_s = self.time.now_s + HEALED_FAILOVERS_MAX * self.options.leases.failover_s
        if wrong:
            self.history.fault("no progress after healing", f"{self.time.now_s - healed_s:.0f} s later: {wrong}")
            self.history.lost()
            return
        if self.history.untold:
            self.history.fault("a loss that is not told", f"records were trimmed of {self.history.untold}")
        # A worker may still be taken for silent whose row was written for the last time before the faults ended.
        self.time.run(
            max(self.time.now_s, max(healed_s, arrived_s) + QUIET_AFTER_FAILOVERS * self.options.leases.failover_s)
        )
        moves = len(self.history.lease_rules.moves)
        self.time.run(self.time.now_s + QUIET_FAILOVERS * self.options.leases.failover_s)
        if len(self.history.lease_rules.moves) > moves:
            moved = self.history.lease_rules.moves[moves:]
            self.history.fault("leases move without need", f"{len(moved)} in a quiet time, first {moved[0]}")
        history = self.history
        if self.plan.calm and history.counts.done_again:
            history.fault("records that are settled come again", f"{history.counts.done_again}, without any fault")
        if self.plan.calm and history.counts.handed_twice and self.plan.program != "leaves_early":
            history.fault("records come again after a handoff", f"{history.counts.handed_twice}, without any fault")

    def _wrong(self) -> str:
        """Return what is not yet as it should be."""
        if unsettled := self.history.unsettled():
            return f"not settled: {unsettled}"
        working = {process.worker_id for process in self.processes if process.here and not process.leaving}
        held = dict.fromkeys(working, 0)
        for key, story in self.history.shards.items():
            row = self.table.get(key)
            if story.ended or ((story.gone or story.passed) and row is None):
                continue
            if story.gone:
                return f"{key} is trimmed, and its lease is there"
            if row is None:
                return f"{key} has no lease"
            if story.closed:
                return f"{key} is read to its end, and not stored as ended"
            if row.actual_owner not in working:
                return f"{key} is with {row.actual_owner}, which does not work"
            held[row.actual_owner] += 1
        if max(held.values()) - min(held.values()) > 1:
            return f"not shared evenly: {held}"
        return ""

    def _leave(self) -> None:
        """Have all workers stop, one after the other, or at once: every lease is free then, everything settled is
        stored, and no row shows a worker that has left.
        """
        if self.history.broken:
            return
        left = {process.worker_id for process in self.processes if process.here}
        for process in self.processes:
            if process.here:
                self.time.after(self._rng.uniform(0.0, 2.0), process.leave)
        until_s = self.time.now_s + LEAVE_S_MAX
        while any(process.here for process in self.processes) and self.time.now_s < until_s:
            self.time.run(self.time.now_s + LOOK_INTERVAL_S)
        if late := [process.name for process in self.processes if process.here]:
            self.history.fault("a worker does not end", f"{', '.join(late)} after {LEAVE_S_MAX:g} s")
        for row in now(self.table.rows.scan()).rows:
            if row.owner is not None and not row.ended:
                self.history.fault("a lease is left behind", f"{row.key} with {row.owner}, which has gone")
            if not self.history.is_stored(row):
                self.history.fault("settled and not stored", f"{row.key} is at {row.checkpoint.text}")
        # What a worker has sent arrives also when it has gone: a row that comes back has the others wait.
        self.time.run(max(self.time.now_s, *(process.arrives_until_s for process in self.processes)))
        for shown in now(self.table.rows.workers()):
            if shown.worker_id in left:
                self.history.fault("a worker's row is left behind", f"{shown.worker_id} has left, and its row is there")

    # --- workers --------------------------------------------------------------------------------

    def _make_leases(self) -> None:
        """Make the first leases as another program does, which stores no time beside the word."""
        for stream in self.streams:
            for key, shard_id in sorted(stream.listed_by_key().items()):
                several = None if key == shard_id else key.removesuffix(f":{shard_id}")
                row = LeaseRow(
                    key=key,
                    checkpoint=Checkpoint.parse(self.plan.start),
                    stream=several,
                    shard_id=None if several is None else shard_id,
                )
                self.table.create(row)

    def _join(self) -> None:
        self._start(len(self.fleet), None)

    def _come_back(self, place: int, worker_id: str | None) -> None:
        if self.time.now_s < self.plan.duration_s:
            self._start(place, worker_id)

    def _start(self, place: int, worker_id: str | None) -> None:
        name = f"w{place}" if place == len(self.fleet) else f"w{place}.{len(self.processes)}"
        process = Process(name, worker_id or name, self, self._program)
        self.processes.append(process)
        if place == len(self.fleet):
            self.fleet.append(process)
        else:
            process.jumped_s = self.fleet[place].jumped_s
            self.fleet[place] = process

    # --- faults ---------------------------------------------------------------------------------

    def _happen(self, fault: Fault) -> None:
        self.history.note(fault)
        if isinstance(fault, Split):
            self._any_stream().split(fault.choice)
        elif isinstance(fault, Merge):
            self._any_stream().merge(fault.choice)
        elif isinstance(fault, Join):
            self._join()
        elif isinstance(fault, Noise):
            self._noise(fault)
        elif isinstance(fault, Outage):
            self._outage(fault)
        else:
            worker: int = fault.worker  # type: ignore[attr-defined]
            if worker < len(self.fleet) and self.fleet[worker].here:
                self._befall(fault, self.fleet[worker])

    def _noise(self, fault: Noise) -> None:
        found = [
            process.links[fault.service] for place, process in enumerate(self.fleet) if fault.worker in (None, place)
        ]
        for link in found:
            link.noises.append(fault)

        def end() -> None:
            for link in found:
                if fault in link.noises:
                    link.noises.remove(fault)

        self.time.after(fault.lasts_s, end)

    def _outage(self, fault: Outage) -> None:
        """Have all processes gone for hours. Nothing happens meanwhile, so the outage takes no time here."""
        for place, process in enumerate(self.fleet):
            if process.here:
                process.crash()
                back_s, worker_id = self._rng.uniform(0.5, 3.0), process.worker_id if self._rng.random() < 0.5 else None
                if not process.leaving:
                    self.time.after(back_s, lambda place=place, name=worker_id: self._come_back(place, name))  # type: ignore[misc]
        self.service_time.passed_s += fault.hours * 3600
        listed = set().union(*(stream.listed() for stream in self.streams))
        self.history.trimmed(self.service_time() - RETENTION_S, listed)

    def _befall(self, fault: Any, process: Process) -> None:
        match fault:
            case Crash():
                process.crash()
                if fault.back_after_s is not None:
                    worker_id = process.worker_id if fault.same_id else None
                    self.time.after(fault.back_after_s, lambda: self._come_back(fault.worker, worker_id))
            case Pause() if not process.loop.frozen:
                process.loop.freeze(suspended=fault.suspended)
                self.time.after(fault.lasts_s, lambda: process.loop.thaw() if process.alive else None)
            case Cut():
                link = process.links[fault.service]
                link.cut = fault.way

                def mend() -> None:
                    link.cut = None

                self.time.after(fault.lasts_s, mend)
            case Jump():
                process.jumped_s += fault.by_s
            case SlowHandler():
                process.slow_s = fault.handle_s

                def end_slowness() -> None:
                    process.slow_s = None

                self.time.after(fault.lasts_s, end_slowness)
            case Failing():
                process.broken = True

                def works() -> None:
                    process.broken = False

                self.time.after(fault.lasts_s, works)
            case Seek():
                process.seek(fault)
            case Leave():
                process.leave()


def _options(plan: FaultPlan) -> ConsumerOptions:
    given: dict[str, Any] = dict(plan.options)
    cadence = CADENCES[str(given.pop("cadence", "riding"))]
    groups = {"leases": LeaseOptions, "handoff": HandoffOptions, "buffer": BufferOptions}
    chosen = {
        group: kind(**{name: given.pop(name) for name in kind.__struct_fields__ if name in given})
        for group, kind in groups.items()
    }
    more: dict[str, Any] = {"checkpoints": CheckpointOptions(cadence=cadence), **chosen, **given}
    if plan.fan_out:
        more["fan_out"] = FanOutOptions()
    retry = Retry(failures_max=None)
    if plan.gives_up_after_s is not None:
        retry = replace(retry, give_up_after_s=plan.gives_up_after_s, cool_down_s=plan.cool_down_s)
    if plan.bad or plan.parts or plan.gives_up_after_s is not None:  # what fails by chance is no record's fault
        retry = replace(retry, transient=(HandlerError,), failures_max=2, cap_s=2.0)
        more |= {"dead_letters": DeadLettersTo(_drop_letter), "retry": retry}
    if plan.window_s:
        more["deduplicate"] = Deduplicate(
            key=lambda record: record.data, window_s=plan.window_s, wait=plan.window_waits
        )
    if plan.stall_s:
        more["settling"] = SettlingOptions(deadline_s=plan.stall_s, stalled=Redeliver(times_max=2))
    if plan.parts:
        more["split"] = lambda record: range(_parts_of(record.data))
    return ConsumerOptions(starting_position=_start(plan), **more)


def _start(plan: FaultPlan) -> StartingPosition:
    if plan.start == "AT_TIMESTAMP":
        return StartingPosition.at_timestamp(dt.datetime.fromtimestamp(EPOCH_S + plan.since_s, dt.UTC))
    return StartingPosition.LATEST if plan.start == "LATEST" else StartingPosition.TRIM_HORIZON


def _drop_letter(letter: object) -> None:
    """Do nothing with a dead letter: the history keeps it."""


def _parts_of(data: bytes) -> int:
    """Return the number of parts of a record, 0 to 3, which its data says."""
    return int(data.removesuffix(BAD)) % 4


def simulate(seed: int) -> Report:
    """Draw a plan of a seed, and run it."""
    return Simulator(FaultPlan.draw(seed)).run()
