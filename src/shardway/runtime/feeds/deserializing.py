"""Deserializing makes the value of a record when it is delivered, and says what becomes of one that cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple

from shardway.core.ledger.page import R
from shardway.core.ledger.parts import Part
from shardway.core.ledger.ticket import Delivery
from shardway.errors import RegistryError, UnreadableRecordError
from shardway.policies import Deliver, Stop, UnreadablePolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Unreadable(NamedTuple):
    """The stand-in for the value of a record that cannot be read."""

    data: bytes
    """The data of the record, as it came."""
    error: Exception
    """The error that the deserializer raised. Its message may hold a part of the data."""


class DeserializedDelivery(NamedTuple, Generic[R]):
    """The result of a deserializer for a delivery."""

    delivery: Delivery[R]
    """The records that are left of the delivery by the policy: maybe none."""
    values: Sequence[Any]
    """The value of each record that is left."""
    left_out: Sequence[tuple[int, Exception]] = ()
    """The places of records that are not delivered, with what the deserializer raised."""
    stops: UnreadableRecordError | None = None
    """The error of a record that cannot be read, where that ends the reading of its shard."""
    waits: RegistryError | None = None
    """The reason why none of the records is delivered now: a schema registry is away, which is no record's fault."""


class Deserializer(Generic[R]):
    """Makes the values of each delivery. A record that was delivered before, and failed, is read anew."""

    def __init__(
        self, deserializer: Callable[[bytes], Any], policy: UnreadablePolicy, *, stream: str, shard_id: str
    ) -> None:
        self.policy = policy
        """The policy for a record that cannot be read."""
        self._deserializer = deserializer
        self._place = f"{stream}, {shard_id}"

    def of(self, delivery: Delivery[R]) -> DeserializedDelivery[R]:
        """Read the values of a delivery."""
        deserializer, datas = self._deserializer, datas_of(delivery.records)
        if delivery.records and isinstance(delivery.records[0], Part):
            return DeserializedDelivery(delivery, datas)  # The function that split the record has read its bytes.
        try:
            return DeserializedDelivery(delivery, [deserializer(data) for data in datas])
        except RegistryError as error:
            return DeserializedDelivery(delivery, (), waits=error)
        except Exception:
            return self._one_by_one(delivery, datas)

    def _one_by_one(self, delivery: Delivery[R], datas: Sequence[bytes]) -> DeserializedDelivery[R]:
        kept: list[int] = []
        values: list[Any] = []
        left_out: list[tuple[int, Exception]] = []
        for index, data in enumerate(datas):
            try:
                value = self._deserializer(data)
            except RegistryError as error:
                return DeserializedDelivery(delivery, (), waits=error)
            except Exception as error:
                if isinstance(self.policy, Stop):
                    return DeserializedDelivery(delivery, (), stops=self._unreadable(delivery, index, error))
                if not isinstance(self.policy, Deliver):
                    left_out.append((delivery.places[index], error))
                    continue
                value = Unreadable(data, error)
            kept.append(index)
            values.append(value)
        if len(kept) == len(datas):
            return DeserializedDelivery(delivery, values)
        left = Delivery(
            delivery.ticket,
            [delivery.records[index] for index in kept],
            [delivery.places[index] for index in kept],
            delivery.attempt,
        )
        return DeserializedDelivery(left, values, left_out)

    def _unreadable(self, delivery: Delivery[R], index: int, error: Exception) -> UnreadableRecordError:
        record = delivery.records[index]
        return UnreadableRecordError(
            f"{self._place}: the record at {record.sequence_number}/{record.sub_sequence_number} "
            f"cannot be read ({type(error).__name__}, see `error`). Mend the deserializer, or say with "
            "`unreadable` what becomes of such records: DeadLetters(), Skip() or Deliver()",
            error=error,
        )


def datas_of(records: Sequence[Any]) -> Sequence[Any]:
    """Return the data of each record; a page's records are not made for that. The data of a part is what the splitting
    function made.
    """
    datas: Sequence[bytes] | None = getattr(records, "datas", None)
    if datas is not None:
        return datas
    return [record.value if isinstance(record, Part) else record.data for record in records]
