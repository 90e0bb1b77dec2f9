"""Which worker delivered what, when, by the workers' lines: moves between workers, what came twice, what is missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from interop.fleets.writing import KEYS

if TYPE_CHECKING:
    from collections.abc import Iterable


class Worker(Protocol):
    """A worker that has printed lines, such as a WorkerProcess."""

    name: str
    kind: str

    def new_lines(self) -> list[dict[str, Any]]: ...


@dataclass
class Tenure:
    """One worker's deliveries of one shard, from a start to the end."""

    worker: str
    kind: str
    shard: str
    number: int
    deliveries: list[tuple[int, list[int]]] = field(default_factory=list)
    """(epoch ms, numbers of the records), as they came."""
    arrived_ms: int = 0
    """When the first of them arrived in the shard."""

    @property
    def first_ms(self) -> int:
        return self.deliveries[0][0]


@dataclass(frozen=True)
class Move:
    """A shard that went from one worker to another."""

    step: str
    """What was done when it moved."""
    shard: str
    giver: str
    taker: str
    """Kinds of workers."""
    gap_ms: int
    """From the last delivery before the taker's first one, to that, less the giver's median spacing."""
    duplicates: int
    """Records that the taker delivered, and another worker before it."""
    late: int
    """Records that the giver delivered after the taker had begun: two readers."""
    late_ms: int
    """For how long it did."""


@dataclass(frozen=True)
class Child:
    """The first record of a shard whose parents ended while it was looked at."""

    step: str
    shard: str
    taker: str
    delay_ms: int
    """From its arrival in the shard to its first delivery."""


class Account:
    """Reads the workers' lines as they come."""

    def __init__(self) -> None:
        self.tenures: dict[tuple[str, str, int], Tenure] = {}
        self.numbers: Counter[int] = Counter()
        """How often each record was delivered."""
        self.steps: list[tuple[int, str]] = []
        """(epoch ms, name) of what was done with the fleet."""
        self.events: Counter[str] = Counter()
        self.first_ms: dict[str, int] = {}
        """A worker's first record."""
        self._deliveries: list[tuple[int, int]] = []  # (epoch ms, number)

    def read(self, workers: Iterable[Worker]) -> None:
        """Take in what was printed since."""
        for worker in workers:
            for line in worker.new_lines():
                self.events[f"{worker.kind}: {line['event']}"] += 1
                if line["event"] == "records":
                    self._records(worker, line)

    def _records(self, worker: Worker, line: dict[str, Any]) -> None:
        key = (worker.name, line["shard"], line["tenure"])
        tenure = self.tenures.setdefault(key, Tenure(worker.name, worker.kind, line["shard"], line["tenure"]))
        if not tenure.deliveries:
            tenure.arrived_ms = line["records"][0][2]
        numbers = [record[3] for record in line["records"]]
        tenure.deliveries.append((line["at_ms"], numbers))
        self.first_ms.setdefault(worker.name, line["at_ms"])
        self.numbers.update(numbers)
        self._deliveries += [(line["at_ms"], number) for number in numbers]

    # --- while it runs --------------------------------------------------------------------------

    def read_all(self, shards: Iterable[str]) -> bool:
        """True when records of each of these shards were delivered."""
        return set(shards) <= {tenure.shard for tenure in self.tenures.values()}

    def readers(self, *, since_ms: int) -> dict[str, set[str]]:
        """Shard to the workers that have delivered of it since."""
        found: dict[str, set[str]] = {}
        for tenure in self.tenures.values():
            if tenure.deliveries[-1][0] >= since_ms:
                found.setdefault(tenure.shard, set()).add(tenure.worker)
        return found

    # --- afterwards -----------------------------------------------------------------------------

    def missing(self, written: int, opened: int = 0) -> list[int]:
        """Return the numbers that did not arrive. ``opened``: the fleet began to read before this one was written, so
        those below it may be missing, but for any that lie behind one of their key that arrived.
        """
        first = dict.fromkeys(range(KEYS), opened)
        for number in self.numbers:
            first[number % KEYS] = min(number, first[number % KEYS])
        return [number for number in range(written) if number >= first[number % KEYS] and number not in self.numbers]

    def duplicates(self) -> int:
        return sum(count - 1 for count in self.numbers.values())

    def out_of_order(self) -> list[str]:
        """Keys whose records, each at its first delivery, did not come in order: a child that began too early."""
        last: dict[int, int] = {}
        seen: set[int] = set()
        faults = []
        for _, number in sorted(self._deliveries):
            if number in seen:
                continue
            seen.add(number)
            if number < last.get(number % KEYS, -1):
                faults.append(f"record {number} of its key came after {last[number % KEYS]}")
            last[number % KEYS] = max(number, last.get(number % KEYS, -1))
        return faults

    def moves(self) -> list[Move]:
        found = []
        for shard in sorted({tenure.shard for tenure in self.tenures.values()}):
            in_turn = sorted((one for one in self.tenures.values() if one.shard == shard), key=lambda one: one.first_ms)
            before: set[int] = set()
            for giver, taker in pairwise(in_turn):
                before.update(number for _, numbers in giver.deliveries for number in numbers)
                found.append(self._move(shard, giver, taker, before))
        return found

    def _move(self, shard: str, giver: Tenure, taker: Tenure, before: set[int]) -> Move:
        early = [at_ms for at_ms, _ in giver.deliveries if at_ms <= taker.first_ms]
        late = [(at_ms, numbers) for at_ms, numbers in giver.deliveries if at_ms > taker.first_ms]
        spacings = [after - at for at, after in pairwise(early)]
        # What the giver delivered late was the taker's to deliver: it counts once, as late.
        late_numbers = {number for _, numbers in late for number in numbers}
        taken = {number for _, numbers in taker.deliveries for number in numbers}
        return Move(
            self._step(taker.first_ms),
            shard,
            giver.kind,
            taker.kind,
            max(0, taker.first_ms - early[-1] - round(median(spacings or [0]))),
            len((taken & before) - late_numbers),
            len(late_numbers),
            late[-1][0] - taker.first_ms if late else 0,
        )

    def children(self, first_shards: Iterable[str]) -> list[Child]:
        """``first_shards``: those that the stream began with, which have no parents."""
        roots = set(first_shards)
        found = {}
        for tenure in sorted(self.tenures.values(), key=lambda one: one.first_ms):
            if tenure.shard not in roots and tenure.shard not in found:
                delay_ms = tenure.first_ms - tenure.arrived_ms
                found[tenure.shard] = Child(self._step(tenure.first_ms), tenure.shard, tenure.kind, delay_ms)
        return list(found.values())

    def _step(self, at_ms: int) -> str:
        return next((name for began_ms, name in reversed(self.steps) if began_ms <= at_ms), "")


def as_rows(found: Iterable[Move | Child]) -> list[dict[str, Any]]:
    return [asdict(one) for one in found]
