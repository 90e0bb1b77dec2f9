"""From a record's bytes to a value, when it is handed out; and what becomes of a record that cannot be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeAlias

from penstock.core.ledger.page import R
from penstock.core.ledger.parts import Part
from penstock.core.ledger.settings import DeadLetters, Skip, Stop
from penstock.core.ledger.ticket import Delivery
from penstock.errors import UnreadableRecordError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from penstock.core.ledger.ledger import Ledger
    from penstock.runtime.shard.batch import Reader


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


class StopReading(Exception):  # noqa: N818 - a signal, not an error
    """A record that cannot be read ends the reading of its shard."""

    def __init__(self, error: UnreadableRecordError) -> None:
        self.error = error


class Values(Generic[R]):
    """Makes the values of each delivery. What was handed out before, and failed, is read anew."""

    def __init__(
        self, deserializer: Callable[[bytes], Any], policy: UnreadablePolicy, *, stream: str, shard_id: str
    ) -> None:
        self._deserializer = deserializer
        self._policy = policy
        self._where = f"{stream}, {shard_id}"

    def of(
        self, ledger: Ledger[R], delivery: Delivery[R], now_s: float, reader: Reader
    ) -> tuple[Delivery[R], Sequence[Any]]:
        """The values, and what is left of the delivery by the policy: maybe nothing. Raises StopReading."""
        deserializer, datas = self._deserializer, datas_of(delivery.records)
        if delivery.records and isinstance(delivery.records[0], Part):
            return delivery, datas  # the function that split the record has read its bytes
        try:
            return delivery, [deserializer(data) for data in datas]
        except Exception:
            return self._one_by_one(ledger, delivery, datas, now_s, reader)

    def _one_by_one(
        self,
        ledger: Ledger[R],
        delivery: Delivery[R],
        datas: Sequence[bytes],
        now_s: float,
        reader: Reader,
    ) -> tuple[Delivery[R], Sequence[Any]]:
        kept: list[int] = []
        values: list[Any] = []
        for index, data in enumerate(datas):
            try:
                value = self._deserializer(data)
            except Exception as error:
                if not isinstance(self._policy, HandOut):
                    with reader.lock:
                        self._leave_out(ledger, delivery, index, error, now_s)
                        told = ledger.take_told()
                    reader.emit(told)
                    continue
                value = Unreadable(data, error)
            kept.append(index)
            values.append(value)
        if len(kept) == len(datas):
            return delivery, values
        left = Delivery(
            delivery.ticket,
            [delivery.records[index] for index in kept],
            [delivery.places[index] for index in kept],
            delivery.attempt,
        )
        return left, values

    def _leave_out(self, ledger: Ledger[R], delivery: Delivery[R], index: int, error: Exception, now_s: float) -> None:
        place = delivery.places[index]
        match self._policy:
            case Skip():
                ledger.skip(delivery.ticket, [place], reason=f"unreadable: {type(error).__name__}")
            case DeadLetters():
                ledger.dead_letter(delivery.ticket, now_s, [place], error=error, reason="unreadable")
            case _:
                position = delivery.ticket.page.position(place)
                raise StopReading(
                    UnreadableRecordError(
                        f"{self._where}: the record at {position.sequence_number}/{position.sub_sequence_number} "
                        f"cannot be read ({type(error).__name__}, see `error`). Mend the deserializer, or say with "
                        "`unreadable` what becomes of such records: DeadLetters(), Skip() or HandOut()",
                        error=error,
                    )
                )


def datas_of(records: Sequence[Any]) -> Sequence[Any]:
    """The data of each record; of a page's records, without making any. Of parts, what the splitting function made."""
    datas: Sequence[bytes] | None = getattr(records, "datas", None)
    if datas is not None:
        return datas
    return [record.value if isinstance(record, Part) else record.data for record in records]
