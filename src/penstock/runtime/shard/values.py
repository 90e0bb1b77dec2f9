"""From a record's bytes to a value, when it is handed out; and what becomes of a record that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

from penstock.core.ledger.book import Delivery, R
from penstock.core.ledger.parts import Part
from penstock.core.ledger.settings import DeadLetters, Skip, Stop
from penstock.errors import UnreadableRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True, slots=True)
class HandOut:
    """The record is handed out with an `Unreadable` in place of its value."""


UnreadablePolicy: TypeAlias = DeadLetters | Skip | Stop | HandOut


class Unreadable(NamedTuple):
    """Stands where the value of a record would, which cannot be read."""

    data: bytes
    """As it came."""
    error: Exception
    """What the deserializer raised. Its message may hold a part of the data."""


class Read(NamedTuple, Generic[R]):
    """What a deserializer made of a delivery."""

    delivery: Delivery[R]
    """What is left of it by the policy: maybe nothing."""
    values: Sequence[Any]
    """Of each record that is left."""
    left_out: Sequence[tuple[int, Exception]] = ()
    """The places of records that are not handed out, with what the deserializer raised."""
    stops: UnreadableRecordError | None = None
    """A record that cannot be read ends the reading of its shard."""


class Values(Generic[R]):
    """Makes the values of each delivery. What was handed out before, and failed, is read anew."""

    def __init__(
        self, deserializer: Callable[[bytes], Any], policy: UnreadablePolicy, *, stream: str, shard_id: str
    ) -> None:
        self.policy = policy
        """What becomes of a record that cannot be read."""
        self._deserializer = deserializer
        self._where = f"{stream}, {shard_id}"

    def of(self, delivery: Delivery[R]) -> Read[R]:
        """Read a delivery."""
        deserializer, datas = self._deserializer, datas_of(delivery.records)
        if delivery.records and isinstance(delivery.records[0], Part):
            return Read(delivery, datas)  # the function that split the record has read its bytes
        try:
            return Read(delivery, [deserializer(data) for data in datas])
        except Exception:
            return self._one_by_one(delivery, datas)

    def _one_by_one(self, delivery: Delivery[R], datas: Sequence[bytes]) -> Read[R]:
        kept: list[int] = []
        values: list[Any] = []
        left_out: list[tuple[int, Exception]] = []
        for index, data in enumerate(datas):
            try:
                value = self._deserializer(data)
            except Exception as error:
                if isinstance(self.policy, Stop):
                    return Read(delivery, (), stops=self._unreadable(delivery, index, error))
                if not isinstance(self.policy, HandOut):
                    left_out.append((delivery.places[index], error))
                    continue
                value = Unreadable(data, error)
            kept.append(index)
            values.append(value)
        if len(kept) == len(datas):
            return Read(delivery, values)
        left = Delivery(
            delivery.ticket,
            [delivery.records[index] for index in kept],
            [delivery.places[index] for index in kept],
            delivery.attempt,
        )
        return Read(left, values, left_out)

    def _unreadable(self, delivery: Delivery[R], index: int, error: Exception) -> UnreadableRecordError:
        record = delivery.records[index]
        return UnreadableRecordError(
            f"{self._where}: the record at {record.sequence_number}/{record.sub_sequence_number} "
            f"cannot be read ({type(error).__name__}, see `error`). Mend the deserializer, or say with "
            "`unreadable` what becomes of such records: DeadLetters(), Skip() or HandOut()",
            error=error,
        )


def datas_of(records: Sequence[Any]) -> Sequence[Any]:
    """The data of each record; of a page's records, without making any. Of parts, what the splitting function made."""
    datas: Sequence[bytes] | None = getattr(records, "datas", None)
    if datas is not None:
        return datas
    return [record.value if isinstance(record, Part) else record.data for record in records]
