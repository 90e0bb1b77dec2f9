"""Measures gaps and duplicates in deploys, kills and reshards: four workers, eight shards, 2,000 records/s.

Each worker is a process. ``one_by_one``: Each worker is stopped, and then its successor is started. ``blue_green``:
Four new workers are started, and then the four old ones are stopped. A gap is the time between two deliveries of a
shard around its move, less the shard's median spacing before. The local Kinesis enforces AWS's limits per shard, and
the leases are in DynamoDB Local. The failover time is 10 s, and all else is as it is by default.

``gap_p99_ms_400_shards`` and ``gap_p99_ms_1000_shards``: One process deploys a worker that reads so many shards, with
a lease table that answers in 6 ms. The new worker starts and gets its half, and then the old one is closed. A gap is
the time from `on_shards_revoked` to `on_shards_assigned` of the same shard. ``freed`` counts the shards that did not
come by a handoff: they were free when the new worker took them.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from bench._dynamo import dynamodb
from bench._fleet import STEADY_S, Fleet, by_shard, duplicates, moves, p99, two_readers
from bench._form import cpu_of_s, judge, options, report, say, wanted
from bench._requests import KINESIS, call
from bench.wire import set_environment
from shardway import Consumer
from shardway.leases import MemoryLeaseTable
from shardway.runtime.shard.listener import Origin
from shardway.testing import LocalKinesis
from shardway.testing.streams.memory_stream import MemoryStream

if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator, Sequence

    from bench._form import Result
    from shardway import AssignedShard
    from shardway.core.leases import LeaseRow, Outcome, Write
    from shardway.core.leases.listing import Listing
    from shardway.core.leases.worker_row import WorkerRow
    from shardway.local.spawned import SpawnedKinesis

STREAM = "bench"
SHARDS, WORKERS = 8, 4
RATE_PER_S = 2_000
SPACING_S = 6.0
"""The seconds for which a balanced fleet is watched for its usual spacing."""
DEPLOY_ROUNDS = 2
KILL_ROUNDS = 2
ROUNDS = 3
MANY_ROUNDS = 3
IDLE_S = 3.0
TABLE_ANSWER_S = 0.006
DEADLINE_S = 120.0
LOOK_S = 0.05


@contextmanager
def kinesis(shards: int = SHARDS) -> Iterator[SpawnedKinesis]:
    """Start a local Kinesis with AWS's limits, and print at its end how busy it was."""
    with LocalKinesis.spawn(streams={STREAM: shards}, limits=True) as service:
        began_s = time.monotonic()
        yield service
        busy = cpu_of_s(service.pid) / (time.monotonic() - began_s)
        stats = service.stats()
        refused = ", ".join(
            f"{count.errors} of {count.calls:,} {name}" for name, count in stats.operations.items() if count.errors
        )
        say(f"  the local Kinesis: {busy:.0%} of a core; refused: {refused or 'nothing'}")


# --- deploys ----------------------------------------------------------------------------------------------


class Deploy(NamedTuple):
    """The figures of one deploy."""

    gaps_ms: list[float]
    duplicates: int
    two_readers: int


def one_by_one(fleet: Fleet) -> None:
    """Stop one worker, start its successor, and wait until the fleet is balanced. Do so for each worker."""
    for process in list(fleet.running):
        stopped_s = fleet.stop(process)
        fleet.start()
        say(f"  stopped in {stopped_s:.1f} s, balanced again after {fleet.until_balanced(SHARDS):.1f} s")


def blue_green(fleet: Fleet) -> None:
    """Start as many new workers, and when each has its share, stop all old ones. Wait until the fleet is balanced."""
    old = list(fleet.running)
    for _ in old:
        fleet.start()
    say(f"  balanced among eight after {fleet.until_balanced(SHARDS):.1f} s")
    began_s = time.monotonic()
    for process in old:
        fleet.ask_to_stop(process)
    for process in old:
        fleet.ended(process)
    say(f"  stopped in {time.monotonic() - began_s:.1f} s, balanced again after {fleet.until_balanced(SHARDS):.1f} s")


DEPLOYS = {"one_by_one": one_by_one, "blue_green": blue_green}


def deploy(leases: str, folder: Path, how: str, *, fan_out: bool) -> Deploy:
    """Make one deploy of a balanced fleet, and return its figures. ``how`` is a name in `DEPLOYS`."""
    with kinesis() as service, Fleet(service.endpoint_url, leases, folder, stream=STREAM, fan_out=fan_out) as fleet:
        for _ in range(WORKERS):
            fleet.start()
        fleet.load(RATE_PER_S)
        fleet.until_balanced(SHARDS)
        time.sleep(SPACING_S)
        from_s = time.monotonic()
        DEPLOYS[how](fleet)
        put = fleet.unload()
        found = fleet.log.look()
        moved = moves(found, from_s)
        done = Deploy([one.gap_ms for one in moved], duplicates(found), two_readers(found))
    say(f"{how}, {'fan-out' if fan_out else 'polling'}: {put:,} records, {len(moved)} moves, gaps p50 "
        f"{statistics.median(done.gaps_ms):.0f} ms, most {max(done.gaps_ms):.0f} ms; {done.duplicates} duplicates, "
        f"{done.two_readers} deliveries by a former owner")  # fmt: skip
    return done


def deploy_results(leases: str, folder: Path, asked: Namespace) -> list[Result]:
    """Measure both ways of a deploy, by both feeds."""
    results, done = [], []
    for how in DEPLOYS:
        for feed in ("polling", "fanout"):
            name = f"gap_p99_ms_{how}_{feed}"
            if wanted(name, asked) or wanted("duplicates", asked) or wanted("two_readers", asked):
                rounds = [deploy(leases, folder, how, fan_out=feed == "fanout") for _ in range(DEPLOY_ROUNDS)]
                done += rounds
                gaps_ms = [gap for one in rounds for gap in one.gaps_ms]
                results.append(judge(name, [p99(gaps_ms)], unit="ms", goal=250, sense="at_most"))
    if done:
        results += [
            judge("duplicates", [sum(one.duplicates for one in done)], unit="records", goal=0, sense="at_most"),
            judge("two_readers", [sum(one.two_readers for one in done)], unit="deliveries", goal=0, sense="at_most"),
        ]
    return results


# --- kills ------------------------------------------------------------------------------------------------


class Kill(NamedTuple):
    """The figures of the shards of a worker that was killed."""

    gaps_s: list[float]
    repeated: int
    allowed: int
    """The records that the killed worker delivered, and that the checkpoint in the table did not cover."""


def kill_one(fleet: Fleet) -> Kill:
    """Kill a worker, look at what was stored, and wait until others deliver its shards. Return the figures."""
    victim = fleet.running[0]
    number = fleet.names[victim.pid]
    fleet.kill(victim)
    at_s = time.monotonic()
    time.sleep(0.3)  # a write that was on its way has been made by then
    theirs = {
        shard: its
        for shard, its in by_shard(fleet.log.look()).items()
        if its[-1].worker == number and its[-1].at_s > at_s - 2 * STEADY_S
    }
    rows = fleet.rows()

    def back() -> bool:
        seen = {one.shard for one in fleet.log.since(at_s) if one.worker != number}
        return theirs.keys() <= seen

    fleet.until(back, "the killed worker's shards are delivered")
    fleet.start()
    fleet.until_balanced(SHARDS)
    gaps_s, repeated, allowed = [], 0, 0
    for shard, its in by_shard(fleet.log.look()).items():
        if shard not in theirs:
            continue
        mine = [one for one in its if one.worker == number]
        others = [one for one in its if one.worker != number and one.at_s > at_s]
        gaps_s.append(others[0].at_s - mine[-1].at_s)
        again = {n for one in others for n in one.numbers}
        stored = rows[shard].checkpoint
        done = stored.position.sequence_number if stored.is_position else -1
        for one in mine:
            repeated += sum(n in again for n in one.numbers)
            allowed += sum(sequence_number > done for sequence_number in one.sequence_numbers)
    return Kill(gaps_s, repeated, allowed)


def kill_results(leases: str, folder: Path, asked: Namespace) -> list[Result]:
    """Kill one of four workers, again and again, with each cadence of checkpoints."""
    results, gaps_s = [], []
    for name, prompt in (("prompt", True), ("coalesced", False)):
        case = f"sigkill_duplicates_{name}"
        if not (wanted(case, asked) or wanted("sigkill_gap_s", asked)):
            continue
        with kinesis() as service, Fleet(service.endpoint_url, leases, folder, stream=STREAM, prompt=prompt) as fleet:
            for _ in range(WORKERS):
                fleet.start()
            fleet.load(RATE_PER_S)
            fleet.until_balanced(SHARDS)
            kills = []
            for _ in range(KILL_ROUNDS):
                time.sleep(SPACING_S)
                kills.append(kill_one(fleet))
            fleet.unload()
            found = fleet.log.look()
        for one in kills:
            back = ", ".join(f"{gap_s:.2f} s" for gap_s in one.gaps_s)
            say(f"sigkill, {name}: back after {back}; {one.repeated} records repeated, {one.allowed} were not covered")
            gaps_s += one.gaps_s
        say(f"sigkill, {name}: {two_readers(found)} deliveries by a former owner")
        results.append(
            judge(case, [one.repeated - one.allowed for one in kills], unit="records", goal=0, sense="at_most")
        )
    if gaps_s:
        results.insert(0, judge("sigkill_gap_s", gaps_s, unit="s", goal=11, sense="at_most"))
    return results


# --- starts, stops, reshards ------------------------------------------------------------------------------


def start_results(leases: str, folder: Path, asked: Namespace) -> list[Result]:
    """Measure one worker alone: from its start to its first delivery, and from SIGTERM to its end while nothing
    comes.
    """
    names = ("start_empty_table_s", "start_existing_table_s", "idle_stop_s")
    if not any(wanted(name, asked) for name in names):
        return []
    took: dict[str, list[float]] = {name: [] for name in names}
    with kinesis() as service:
        for turn in range(ROUNDS + 1):
            with Fleet(service.endpoint_url, leases, folder, stream=STREAM) as fleet:
                for name in names[:2]:
                    fleet.load(RATE_PER_S)
                    time.sleep(1.0)
                    began_s = time.monotonic()
                    process = fleet.start()
                    fleet.until(lambda: bool(fleet.log.since(began_s)), "a record")  # noqa: B023
                    first_s = min(one.at_s for one in fleet.log.since(began_s)) - began_s
                    fleet.until_balanced(SHARDS)
                    fleet.unload()
                    time.sleep(IDLE_S)
                    stopped_s = fleet.stop(process)
                    if turn:  # the first turn compiles, and fills the system's caches
                        took[name].append(first_s)
                        took["idle_stop_s"].append(stopped_s)
    return [judge(name, figures, unit="s", goal=1, sense="at_most") for name, figures in took.items()]


def child_result(leases: str, folder: Path) -> Result:
    """Measure the time from the last delivery of a shard that was split to the first one of each of its children."""
    delays_ms = []
    with kinesis(2) as service, Fleet(service.endpoint_url, leases, folder, stream=STREAM) as fleet:
        port = int(service.endpoint_url.rpartition(":")[2])
        for _ in range(2):
            fleet.start()
        fleet.load(RATE_PER_S // 4)
        fleet.until_balanced(2)
        for turn in range(ROUNDS):
            open_shards = [
                one for one in call(port, KINESIS, "ListShards", {"StreamName": STREAM})["Shards"]
                if "EndingSequenceNumber" not in one["SequenceNumberRange"]
            ]  # fmt: skip
            parent = open_shards[0]
            low, high = (int(parent["HashKeyRange"][f"{end}HashKey"]) for end in ("Starting", "Ending"))
            split = {
                "StreamName": STREAM,
                "ShardToSplit": parent["ShardId"],
                "NewStartingHashKey": str((low + high) // 2),
            }
            call(port, KINESIS, "SplitShard", split)
            children = {2 + 2 * turn, 3 + 2 * turn}
            fleet.until(lambda: children <= by_shard(fleet.log.look()).keys(), "the children's records")  # noqa: B023
            shards = by_shard(fleet.log.look())
            ended_s = shards[int(parent["ShardId"].rpartition("-")[2])][-1].at_s
            delays_ms += [(shards[child][0].at_s - ended_s) * 1e3 for child in children]
            time.sleep(2.0)
        fleet.unload()
    say(f"child_delay_ms: {', '.join(f'{delay:.0f}' for delay in delays_ms)}")
    return judge("child_delay_ms", delays_ms, unit="ms", goal=300, sense="at_most")


def scale_result(leases: str, folder: Path) -> Result:
    """Measure the time from the start of three more workers beside one, until each has two shards, to the first
    delivery of the last shard that moved.
    """
    took_s = []
    for _ in range(ROUNDS):
        with kinesis() as service, Fleet(service.endpoint_url, leases, folder, stream=STREAM) as fleet:
            fleet.start()
            fleet.load(RATE_PER_S)
            fleet.until_balanced(SHARDS)
            began_s = time.monotonic()
            for _ in range(WORKERS - 1):
                fleet.start()
            fleet.until_balanced(SHARDS)
            last_s = began_s
            for its in by_shard(fleet.log.look()).values():
                owner = its[-1].worker
                others = [one.at_s for one in its if one.worker != owner]
                if others:
                    last_s = max(last_s, min(one.at_s for one in its if one.at_s > max(others)))
            took_s.append(last_s - began_s)
    return judge("scale_1_to_4_s", took_s, unit="s", goal=5, sense="at_most")


# --- many shards ------------------------------------------------------------------------------------------


class AnsweringIn(MemoryLeaseTable):
    """A lease table in memory that answers after so many seconds, as one in a service does."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def create(self, row: LeaseRow) -> Outcome:
        await asyncio.sleep(self._seconds)
        return await super().create(row)

    async def write(self, write: Write) -> Outcome:
        await asyncio.sleep(self._seconds)
        return await super().write(write)

    async def get(self, key: str) -> LeaseRow | None:
        await asyncio.sleep(self._seconds)
        return await super().get(key)

    async def scan(self, *, consistent: bool = False) -> Listing:
        await asyncio.sleep(self._seconds)
        return await super().scan(consistent=consistent)

    async def workers(self, *, consistent: bool = False) -> list[WorkerRow]:
        await asyncio.sleep(self._seconds)
        return await super().workers(consistent=consistent)

    async def put_worker(self, row: WorkerRow) -> Outcome:
        await asyncio.sleep(self._seconds)
        return await super().put_worker(row)


class ManyShards(NamedTuple):
    """The figures of one deploy of a worker with many shards."""

    gaps_ms: list[float]
    freed: int


async def deploy_of_many(shards: int) -> ManyShards:
    """Start a second worker beside the first, close the first when each has half, and wait until the new one has all
    shards. Return the figures.
    """
    stream, table = MemoryStream(STREAM, shards=shards), AnsweringIn(TABLE_ANSWER_S)
    revoked_s: dict[str, float] = {}
    gaps_ms: list[float] = []
    origins: Counter[Origin] = Counter()
    held: Counter[int] = Counter()

    async def went(given: Sequence[AssignedShard]) -> None:
        revoked_s.update(dict.fromkeys((one.shard_id for one in given), time.monotonic()))

    def consumer(number: int) -> Consumer[bytes]:
        async def came(given: Sequence[AssignedShard]) -> None:
            held[number] += len(given)
            for one in given:
                if one.shard_id in revoked_s:
                    gaps_ms.append((time.monotonic() - revoked_s.pop(one.shard_id)) * 1e3)
                    origins[one.origin] += 1

        return Consumer(
            stream.source(), application="many", worker_id=f"w{number}", leases=table, on_shards_assigned=came,
            on_shards_revoked=went, starting_position="TRIM_HORIZON",
        )  # fmt: skip

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while not condition():
                await asyncio.sleep(LOOK_S)

    async with consumer(1) as old:
        await until(lambda: held[1] == shards)
        async with consumer(2):
            await until(lambda: held[2] >= shards // 2 and not revoked_s)
            await asyncio.sleep(IDLE_S)
            await old.close()
            await until(lambda: held[2] >= shards)
            done = ManyShards(list(gaps_ms), shards - origins[Origin.HANDED_OVER])
    return done


def many_results(asked: Namespace) -> list[Result]:
    """Measure deploys of a worker with 400 and with 1,000 shards."""
    results, freed = [], []
    for shards, goal_ms in ((400, 250), (1000, 700)):
        name = f"gap_p99_ms_{shards}_shards"
        if wanted(name, asked) or wanted("freed", asked):
            rounds = [asyncio.run(deploy_of_many(shards)) for _ in range(MANY_ROUNDS)]
            for one in rounds:
                say(f"{shards} shards: {len(one.gaps_ms)} moves, gaps p50 {statistics.median(one.gaps_ms):.0f} ms, p99 "
                    f"{p99(one.gaps_ms):.0f} ms, most {max(one.gaps_ms):.0f} ms; {one.freed} freed")  # fmt: skip
            freed += [one.freed for one in rounds]
            results.append(judge(name, [p99(one.gaps_ms) for one in rounds], unit="ms", goal=goal_ms, sense="at_most"))
    if freed:
        results.append(judge("freed", [sum(freed)], unit="shards", goal=0, sense="at_most"))
    return results


def main() -> None:
    asked = options(__doc__ or "")
    set_environment()
    results = many_results(asked)
    if asked.only and not {*asked.only} - {result.case for result in results}:
        report("deploy", [result for result in results if wanted(result.case, asked)], as_json=asked.json)
        return
    with tempfile.TemporaryDirectory() as path, dynamodb() as leases:
        folder = Path(path)
        # Installed packages are compiled. The first start compiles this one, too, whatever the environment says.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = str(folder / "compiled")
        results += deploy_results(leases, folder, asked)
        results += kill_results(leases, folder, asked)
        results += start_results(leases, folder, asked)
        if wanted("child_delay_ms", asked):
            results.append(child_result(leases, folder))
        if wanted("scale_1_to_4_s", asked):
            results.append(scale_result(leases, folder))
    report("deploy", [result for result in results if wanted(result.case, asked)], as_json=asked.json)


if __name__ == "__main__":
    main()
