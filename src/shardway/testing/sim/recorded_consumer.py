"""A consumer that tells the history of a simulation what it delivers, and what is settled of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from shardway.core.leases.tenure import commands as tenure_commands
from shardway.core.leases.tenure.state import Loss
from shardway.core.ledger.parts import Part
from shardway.model import Position
from shardway.policies import ByKey
from shardway.runtime.consumer.consumer import Consumer
from shardway.runtime.consumer.session import ConsumerSession
from shardway.runtime.shard.batch import Batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shardway.runtime.consumer.spec import ConsumerSpec
    from shardway.runtime.shard.shard_reader import ShardReader
    from shardway.testing.sim.process import Process


class SimulatedConsumer(Consumer[Any]):
    """A consumer that tells the history what it delivers, and what is settled of it."""

    def __init__(self, process: Process, *arguments: Any, **options: Any) -> None:
        self._process = process
        super().__init__(*arguments, **options)

    def _session_of(self, spec: ConsumerSpec) -> ConsumerSession:
        return ConsumerSession(spec, on_reader=self._record)

    def _record(self, reader: ShardReader) -> None:
        """Have a reader tell the history what it does."""
        process, driver, delivery = self._process, reader.driver, reader.delivery
        take, heard, take_back = delivery.take, driver.hear, delivery.take_back

        def take_recorded(*arguments: Any, **options: Any) -> Batch[Any] | None:
            batch = take(*arguments, **options)
            if batch is not None and process.alive:
                by_key = isinstance(reader.ledger.policy.order, ByKey)
                key, parts = process.key_of(batch), _parts(batch, ())
                process.history.delivered(process.name, key, batch.token, positions_of(batch, ()), parts, by_key)
                batch.__class__ = process.batch_class
            return batch

        def hear_command(command: tenure_commands.Command) -> None:
            if isinstance(command, tenure_commands.LeaseLost) and command.why is Loss.TAKEN and process.alive:
                process.history.lease_lost(process.name, process.worker_id, process.key_of(reader), reader.token)
            heard(command)

        def taken_back() -> None:
            if process.alive:
                process.history.taken_back(process.key_of(reader))
            take_back()

        delivery.take_back = taken_back  # type: ignore[method-assign]
        delivery.take = take_recorded  # type: ignore[method-assign]
        driver.hear = hear_command  # type: ignore[method-assign]


def positions_of(batch: Batch[Any], indices: Sequence[int]) -> list[Position]:
    """Return the positions of a batch's records, or of those at ``indices``."""
    records = batch.records if not indices else [batch.records[index] for index in indices]
    return [Position(record.sequence_number, record.sub_sequence_number) for record in records]


def _parts(batch: Batch[Any], indices: Sequence[int]) -> list[int] | None:
    """Return which parts of their records a batch has; None where records are not split."""
    if not isinstance(batch.records[0], Part):
        return None
    records: Sequence[Any] = batch.records if not indices else [batch.records[index] for index in indices]
    return [record.part for record in records]


def recorded_batches(process: Process) -> type[Batch[Any]]:
    """Return a class of batches that tell the history of this process what is settled."""

    def tell(batch: Batch[Any], positions: list[Position], counts: bool, parts: Sequence[int] | None = None) -> bool:
        if process.alive:
            process.history.settled(process.name, process.key_of(batch), batch.token, positions, counts, parts)
        return counts

    class RecordedBatch(Batch[Any]):
        __slots__ = ()

        def fail(self, error: BaseException, *indices: int) -> bool:
            if process.alive:
                process.history.given_back(process.key_of(self), positions_of(self, indices), _parts(self, indices))
            return super().fail(error, *indices)

        def dead_letter(self, *indices: int, error: BaseException | None = None) -> bool:
            if process.alive:
                process.history.given_back(process.key_of(self), positions_of(self, indices), _parts(self, indices))
            return super().dead_letter(*indices, error=error)

        def ack(self, *indices: int) -> bool:
            return tell(self, positions_of(self, indices), super().ack(*indices), _parts(self, indices))

        def nack(self, *indices: int, delay_s: float = 0.0) -> bool:
            if process.alive:
                positions, parts = positions_of(self, indices), _parts(self, indices)
                process.history.put_off(process.name, process.key_of(self), self.token, positions, parts)
            return super().nack(*indices, delay_s=delay_s)

        def _settle_rest(self, indices: Sequence[int] | None = None) -> bool:
            places = self._delivery.places
            left = range(len(places)) if indices is None else indices
            kept = set(self._ledger._book.not_put_off(self._delivery.ticket, [places[index] for index in left]))
            done = [index for index in left if places[index] in kept]
            counts = super()._settle_rest(indices)
            return tell(self, positions_of(self, done), counts, _parts(self, done)) if done else counts

        def settle_through(self, record: Any) -> bool:
            index = record if isinstance(record, int) else list(self.records).index(record)
            last = positions_of(self, (index,))[0]
            positions = process.history.delivered_by(process.key_of(self), self.token, last)
            return tell(self, positions, super().settle_through(record))

        def skip(self, *indices: int, reason: str = "skipped") -> bool:
            return tell(self, positions_of(self, indices), super().skip(*indices, reason=reason), _parts(self, indices))

    return RecordedBatch
