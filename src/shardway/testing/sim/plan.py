"""A plan says what happens in a simulation: how many workers and shards, which faults, and when. It is data, which can
be printed and repeated.
"""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass, field, replace
from typing import Any


class Way(enum.StrEnum):
    """The ways in which a connection is cut."""

    SILENT = "silent"
    """Nothing comes through, either way, and neither side gets an error."""
    REFUSED = "refused"
    """Each call fails at once."""
    ANSWERS = "answers"
    """Calls arrive and are done, their answers get lost."""


class Service(enum.StrEnum):
    """The services that a worker talks to."""

    STREAM = "stream"
    TABLE = "table"
    """The table with the leases."""
    WORKERS = "workers"
    """The table with the workers' own rows, which may be throttled or cut off for itself."""
    LETTERS = "letters"
    """The place where dead letters go."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault happens at ``at_s`` (virtual seconds). ``worker`` is a place in the fleet; None stands for all."""

    at_s: float


@dataclass(frozen=True, kw_only=True)
class Crash(Fault):
    """The process is gone, with all that it knew. A new one comes after a while, or never."""

    worker: int
    back_after_s: float | None = None
    same_id: bool = False


@dataclass(frozen=True, kw_only=True)
class Pause(Fault):
    """The process does nothing while time goes on (SIGSTOP, a machine that is moved)."""

    worker: int
    lasts_s: float
    suspended: bool = False
    """True: the machine sleeps, so its monotonic clock stands still as well."""


@dataclass(frozen=True, kw_only=True)
class Cut(Fault):
    """The worker is cut off from one service, not from the other."""

    worker: int
    service: Service
    way: Way
    lasts_s: float


@dataclass(frozen=True, kw_only=True)
class Noise(Fault):
    """Calls go wrong with these chances."""

    service: Service
    lasts_s: float
    worker: int | None = None
    request_lost: float = 0.0
    answer_lost: float = 0.0
    """The chance that the answer of a call that was done gets lost."""
    throttled: float = 0.0
    failed: float = 0.0
    """The chance that a call is answered by a 5xx; half of such calls were done."""
    late: float = 0.0
    """The chance that a call arrives when its caller does not wait for the answer any more."""
    twice: float = 0.0
    """The chance that something on the way sends a call again."""
    slower: float = 1.0
    """The usual delay is multiplied by this factor."""
    stale_s: float = 0.0
    """The greatest age, in seconds, of rows in a read that is not consistent."""
    frozen: bool = False
    """True: reads that are not consistent come from a copy that has stopped when this fault began."""


@dataclass(frozen=True, kw_only=True)
class Jump(Fault):
    """The worker's wall clock is set (its monotonic one goes on). It stays so for what starts on the machine later."""

    worker: int
    by_s: float


@dataclass(frozen=True, kw_only=True)
class SlowHandler(Fault):
    """Each batch takes ``handle_s`` to handle."""

    worker: int
    lasts_s: float
    handle_s: float


@dataclass(frozen=True, kw_only=True)
class Failing(Fault):
    """What the worker's handlers need is down: all of them fail."""

    worker: int
    lasts_s: float


@dataclass(frozen=True, kw_only=True)
class Outage(Fault):
    """All processes are gone, and come back after ``hours``: that may be more than the stream keeps its records."""

    hours: float


@dataclass(frozen=True, kw_only=True)
class Split(Fault):
    """An open shard becomes two. ``choice`` picks it."""

    choice: float


@dataclass(frozen=True, kw_only=True)
class Merge(Fault):
    """Two neighbours become one."""

    choice: float


@dataclass(frozen=True, kw_only=True)
class Join(Fault):
    """One more worker starts."""


@dataclass(frozen=True, kw_only=True)
class Leave(Fault):
    """A worker is told to stop (SIGTERM)."""

    worker: int


@dataclass(frozen=True, kw_only=True)
class Seek(Fault):
    """The worker's program seeks one of its shards. ``choice`` picks the shard."""

    worker: int
    choice: float
    to: str
    """TRIM_HORIZON, LATEST, AT_TIMESTAMP or POSITION."""
    where: float = 0.0
    """The part (0 to 1) of the records that were delivered of the shard, which picks one: its position, or the time of
    its arrival, is sought.
    """


@dataclass(frozen=True, kw_only=True)
class FaultPlan:
    """A plan is a whole simulation but for the program in it. `draw` makes one of a seed; or write your own."""

    seed: int = 0
    """The seed of all that is left to chance: delays, lost calls, what handlers do."""
    workers: int = 3
    shards: int = 3
    duration_s: float = 90.0
    """Seconds in which faults happen. What follows is quiet, and everything has to come right in it."""
    start: str = "TRIM_HORIZON"
    """The workers' starting position: TRIM_HORIZON, LATEST or AT_TIMESTAMP."""
    before_s: float = 0.0
    """How many seconds the stream is written to before the first workers start."""
    since_s: float = 0.0
    """The time of AT_TIMESTAMP, in seconds after the stream was made."""
    foreign_leases: bool = False
    """True: another program has made the leases before, without the time at which they begin, as KCL workers do."""
    records_per_s: float = 8.0
    aggregates: bool = False
    """True: some records are KPL aggregates, and each of their user records is settled for itself."""
    drift: float = 0.0
    """How much faster or slower workers' clocks run at most, as a part."""
    limits: bool = False
    """True: the per-shard limits of the service hold."""
    fan_out: bool = False
    page_span_s: float = 3_600.0
    """Seconds of a shard's log that one GetRecords crosses: silence is answered by empty pages that are behind."""
    handle_s: float = 0.05
    """The most seconds that a batch takes to be handled, unless a fault says otherwise."""
    failing: float = 0.0
    """The chance that a handler fails."""
    streams: int = 1
    """The number of streams that the shards are spread over. Each worker reads all of them."""
    keys: int = 0
    """The number of partition keys of records; 0: they have one key, and chance says which shard they go to."""
    bad: float = 0.0
    """The chance that a record is one that no handler can handle: it has to become a dead letter."""
    repeats: float = 0.0
    """The chance that a record is put once more later."""
    window_s: float = 0.0
    """Seconds of the window over which duplicates are left out; 0: they are not."""
    window_waits: bool = True
    """The value of ``Deduplicate.wait``."""
    parts: bool = False
    """True: records are split, each into none to three parts."""
    gives_up_after_s: float | None = None
    """Seconds after which a shard whose handlers only fail is given up; None: it is not."""
    cool_down_s: float = 8.0
    """How many seconds the worker that gave a shard up leaves it alone."""
    stall_s: float = 0.0
    """Seconds after which records that are not settled are delivered again; 0: they are not."""
    program: str = "batches"
    """The name of a program of `shardway.testing.sim.programs`; a simulator that is given a program of its own does not
    look here.
    """
    options: dict[str, float | str] = field(default_factory=dict)
    """The workers' options, by the names of their fields; ``cadence`` is ``riding``, ``prompt`` or ``every``."""
    faults: tuple[Fault, ...] = ()

    @property
    def calm(self) -> bool:
        """True when nothing goes wrong but that workers come and go, and shards: then no record may come twice, unless
        a seek asks for it, or a drain comes to its deadline while the program is at work.
        """
        calm = (Split, Merge, Join, Leave, Seek)
        return not (self.failing or self.bad) and all(isinstance(fault, calm) for fault in self.faults)

    @classmethod
    def draw(cls, seed: int) -> FaultPlan:
        """Draw the plan of a seed: each has other kinds of faults, few or many."""
        rng = random.Random(f"plan {seed}")
        workers, duration_s = rng.randint(2, 5), rng.uniform(40, 90)
        program = rng.choice(["batches", "batches", "shards", "run", "any_order", "leaves_early"])
        plan = cls(
            seed=seed,
            workers=workers,
            shards=rng.randint(1, 6),
            duration_s=round(duration_s, 3),
            records_per_s=rng.choice([2.0, 8.0, 20.0]),
            aggregates=rng.random() < 0.25,
            drift=rng.choice([0.0, 0.0, 0.005, 0.015]),
            limits=rng.random() < 0.3,
            fan_out=rng.random() < 0.25,
            handle_s=rng.choice([0.0, 0.05, 0.05, 0.5]),
            failing=rng.choice([0.0, 0.0, 0.0, 0.1]),
            program=program,
            options=_options(rng),
        )
        return _with_seeks(_with_program(_with_options(replace(plan, faults=_faults(rng, workers, duration_s)))))


def _with_seeks(plan: FaultPlan) -> FaultPlan:
    """Let the programs of some plans seek. This has a seed of its own: what else a plan holds stays as it is."""
    rng = random.Random(f"seeks {plan.seed}")
    if rng.random() >= 0.2:
        return plan
    seeks = [
        Seek(
            at_s=rng.uniform(2.0, plan.duration_s),
            worker=rng.randrange(plan.workers),
            choice=rng.random(),
            to=rng.choice(["POSITION", "AT_TIMESTAMP", "TRIM_HORIZON", "LATEST"]),
            where=rng.random(),
        )
        for _ in range(rng.choice([1, 3, 8]))
    ]
    return replace(plan, faults=tuple(sorted([*plan.faults, *seeks], key=lambda fault: fault.at_s)))


def _with_program(plan: FaultPlan) -> FaultPlan:
    """Give some plans a program that steers its consumer while that runs, little room, or a policy for what stalls.
    This has a seed of its own: what else a plan holds stays as it is.
    """
    rng = random.Random(f"programs {plan.seed}")
    more: dict[str, Any] = {}
    if plan.program != "two_phase" and rng.random() < 0.3:
        more["program"] = rng.choice(["late_orders", "late_orders", "pauses", "collects", "getmany"])
        more["keys"] = plan.keys or rng.choice([4, 12, 40])
        if (
            more["program"] == "collects"
        ):  # A collection fails as a whole: its good records are given up with a bad one.
            more["bad"] = 0.0
    if rng.random() < 0.1:
        more["options"] = {**plan.options, "shard_records_max": rng.choice([20, 100])}
    if more.get("program", plan.program) in ("batches", "shards", "run", "pauses") and rng.random() < 0.1:
        more["stall_s"] = rng.choice([2.0, 10.0])
    return replace(plan, **more)


def _with_options(plan: FaultPlan) -> FaultPlan:
    """Give some plans several streams, bad records, duplicates, keys side by side, parts, checkpoints in two phases,
    workers that cannot work, or an outage that may take longer than the retention.
    """
    rng = random.Random(f"options {plan.seed}")
    more: dict[str, Any] = {"streams": rng.choice([1, 1, 1, 1, 2, 3])}
    found: list[Fault] = []
    if rng.random() < 0.2:
        more |= {"program": rng.choice(["by_key", "by_key", "unordered"]), "keys": rng.choice([4, 12, 40])}
    elif rng.random() < 0.12:
        more["program"] = "two_phase"
    program = more.get("program", plan.program)
    if rng.random() < 0.25:
        more |= {"repeats": rng.choice([0.1, 0.3]), "window_s": rng.choice([10.0, 30.0, 60.0])}
        more["window_waits"] = rng.random() < 0.75
    if program != "two_phase" and rng.random() < 0.25:
        more["bad"] = rng.choice([0.01, 0.05, 0.2])
        if rng.random() < 0.5:
            found += [_letters_noise(rng, rng.uniform(3.0, plan.duration_s))]
    if program not in ("two_phase", "any_order") and rng.random() < 0.15:
        more["parts"] = True
    if program not in ("two_phase", "any_order") and rng.random() < 0.2:
        more |= {"gives_up_after_s": rng.choice([1.0, 4.0]), "cool_down_s": rng.choice([4.0, 8.0])}
        for _ in range(rng.randint(1, 2)):
            at_s = rng.uniform(2.0, plan.duration_s)
            found.append(Failing(at_s=at_s, worker=rng.randrange(plan.workers), lasts_s=rng.uniform(3.0, 20.0)))
    if rng.random() < 0.12:
        found.append(
            Outage(at_s=rng.uniform(plan.duration_s / 3, plan.duration_s), hours=rng.choice([20.0, 25.0, 60.0]))
        )
    # This has a seed of its own: what else a plan holds stays as it is. A page a call at least keeps up with the time
    # that passes.
    longest = any(isinstance(fault, Outage) for fault in found)
    spans = [3_600.0, 1_800.0] if longest else [3_600.0, 30.0, 5.0, 2.0]
    more["page_span_s"] = random.Random(f"pages {plan.seed}").choice(spans)
    more |= _start(random.Random(f"start {plan.seed}"))
    return replace(plan, **more, faults=tuple(sorted([*plan.faults, *found], key=lambda fault: fault.at_s)))


def _start(rng: random.Random) -> dict[str, Any]:
    """Draw where the workers start: none of the three starts is rarer than another."""
    start = rng.choice(["TRIM_HORIZON", "LATEST", "AT_TIMESTAMP"])
    if start == "TRIM_HORIZON":
        return {}
    before_s = rng.choice([0.0, round(rng.uniform(1.0, 4.0), 3)])
    since_s = round(rng.uniform(0.0, before_s / 2), 3) if start == "AT_TIMESTAMP" else 0.0
    return {"start": start, "before_s": before_s, "since_s": since_s, "foreign_leases": rng.random() < 0.2}


def _letters_noise(rng: random.Random, at_s: float) -> Noise:
    lost = rng.choice([0.1, 0.5])
    return Noise(
        at_s=at_s, service=Service.LETTERS, lasts_s=rng.uniform(5.0, 30.0), request_lost=lost, answer_lost=lost,
        failed=rng.choice([0.0, 0.3]), slower=rng.choice([1.0, 50.0]),
    )  # fmt: skip


def _options(rng: random.Random) -> dict[str, float | str]:
    return {
        "failover_s": rng.choice([10.0, 10.0, 10.0, 5.0]),
        "drain_deadline_s": rng.choice([10.0, 5.0, 2.0]),
        "warm_deadline_s": rng.choice([3.0, 3.0, 0.0]),
        "batch_records_max": rng.choice([10_000, 20, 3]),
        "cadence": rng.choice(["riding", "riding", "prompt", "every"]),
    }


def _faults(rng: random.Random, workers: int, duration_s: float) -> tuple[Fault, ...]:
    """Draw faults. Each seed has its own mix of kinds: of all at once, the loud ones would hide what the quiet ones
    find.
    """
    kinds = [kind for kind in _KINDS if rng.random() < 0.35]
    if rng.random() < 0.2:
        kinds = []
    found: list[Fault] = []
    for kind in kinds:
        for _ in range(rng.choice([1, 1, 2, 3])):
            found += _KINDS[kind](rng, rng.uniform(3.0, duration_s), rng.randrange(workers))
    reshards = rng.choice([0, 0, 0, 1, 2, 4])
    for _ in range(reshards):
        at_s, choice = rng.uniform(2.0, duration_s), rng.random()
        found.append(Split(at_s=at_s, choice=choice) if rng.random() < 0.6 else Merge(at_s=at_s, choice=choice))
    found += _deploys(rng, workers, duration_s)
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def _deploys(rng: random.Random, workers: int, duration_s: float) -> list[Fault]:
    kind = rng.choice(["none", "none", "some", "rolling", "blue_green"])
    if kind == "none":
        return []
    if kind == "some":
        found: list[Fault] = []
        for _ in range(rng.randint(1, 3)):
            at_s, leave = rng.uniform(2.0, duration_s), Leave(at_s=0.0, worker=rng.randrange(workers))
            found.append(replace(leave, at_s=at_s) if rng.random() < 0.5 else Join(at_s=at_s))
        return found
    begin_s, gap_s = rng.uniform(5.0, duration_s / 2), rng.uniform(0.5, 8.0)
    if kind == "rolling":
        return [
            fault
            for one in range(workers)
            for fault in (
                Join(at_s=begin_s + one * gap_s),
                Leave(at_s=begin_s + one * gap_s + rng.uniform(0.0, 3.0), worker=one),
            )
        ]
    joins = [Join(at_s=begin_s + one * 0.1) for one in range(workers)]
    return [*joins, *(Leave(at_s=begin_s + gap_s + one * 0.1, worker=one) for one in range(workers))]


def _crash(rng: random.Random, at_s: float, worker: int) -> list[Fault]:
    back_s = rng.choice([None, rng.uniform(0.0, 3.0), rng.uniform(5.0, 30.0)])
    return [Crash(at_s=at_s, worker=worker, back_after_s=back_s, same_id=rng.random() < 0.5)]


def _pause(rng: random.Random, at_s: float, worker: int) -> list[Fault]:
    lasts_s = rng.choice([rng.uniform(0.2, 9.0), rng.uniform(9.0, 35.0)])
    return [Pause(at_s=at_s, worker=worker, lasts_s=lasts_s, suspended=rng.random() < 0.35)]


def _cut(service: Service, rng: random.Random, at_s: float, worker: int) -> list[Fault]:
    lasts_s = rng.choice([rng.uniform(0.5, 10.0), rng.uniform(10.0, 40.0)])
    return [Cut(at_s=at_s, worker=worker, service=service, way=rng.choice(list(Way)), lasts_s=lasts_s)]


def _cut_from_stream(rng: random.Random, at_s: float, worker: int) -> list[Fault]:
    return _cut(Service.STREAM, rng, at_s, worker)


def _cut_from_table(rng: random.Random, at_s: float, worker: int) -> list[Fault]:
    """Cut a worker off from both tables, most often: they are reached by one way."""
    both = _cut(Service.TABLE, rng, at_s, worker)
    kind = rng.random()
    if kind < 0.6:
        return [*both, *(replace(cut, service=Service.WORKERS) for cut in both if isinstance(cut, Cut))]
    return both if kind < 0.8 else _cut(Service.WORKERS, rng, at_s, worker)


def _noise(rng: random.Random, at_s: float, worker: int) -> list[Fault]:
    chances: Any = {
        name: rng.choice([0.02, 0.1, 0.4])
        for name in ("request_lost", "answer_lost", "throttled", "failed", "late", "twice")
        if rng.random() < 0.35
    }
    return [
        Noise(
            at_s=at_s,
            service=rng.choice([Service.TABLE, Service.TABLE, Service.WORKERS, Service.STREAM]),
            lasts_s=rng.uniform(2.0, 30.0),
            worker=rng.choice([None, worker]),
            slower=rng.choice([1.0, 1.0, 10.0, 50.0]),
            **chances,
        )
    ]


def _stale_reads(rng: random.Random, at_s: float, worker: int) -> list[Fault]:  # noqa: ARG001 - one signature in the table
    lasts_s, stale_s, frozen = rng.uniform(10.0, 60.0), rng.choice([0.5, 2.0, 8.0]), rng.random() < 0.5
    services = (Service.TABLE, Service.WORKERS)
    return [Noise(at_s=at_s, service=one, lasts_s=lasts_s, stale_s=stale_s, frozen=frozen) for one in services]


def _jump(rng: random.Random, at_s: float, worker: int) -> list[Fault]:
    return [Jump(at_s=at_s, worker=worker, by_s=rng.choice([-3600.0, -5.0, 5.0, 3600.0, 86_400.0]))]


def _slow(rng: random.Random, at_s: float, worker: int) -> list[Fault]:
    return [SlowHandler(at_s=at_s, worker=worker, lasts_s=rng.uniform(2.0, 20.0), handle_s=rng.uniform(1.0, 25.0))]


_KINDS = {
    "crash": _crash,
    "pause": _pause,
    "cut from stream": _cut_from_stream,
    "cut from table": _cut_from_table,
    "noise": _noise,
    "stale": _stale_reads,
    "jump": _jump,
    "slow": _slow,
}
