"""A registered consumer (enhanced fan-out), and how requests name it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.local.model.errors import not_found

if TYPE_CHECKING:
    from penstock.local.model.service import KinesisModel
    from penstock.local.model.stream import Stream


class Consumer:
    """A consumer that is registered with a stream. Its state follows from the time."""

    def __init__(self, *, name: str, arn: str, created_s: int, active_ms: int, tags: dict[str, str]) -> None:
        self.name = name
        self.arn = arn
        self.created_s = created_s
        self.active_ms = active_ms
        """CREATING until then."""
        self.gone_ms: int | None = None
        """When it was deregistered: DELETING until then, then gone."""
        self.tags = tags
        self.policy: str | None = None

    def exists(self, now_ms: int) -> bool:
        """False when it has been deregistered."""
        return self.gone_ms is None or now_ms < self.gone_ms

    def status(self, now_ms: int) -> str:
        """CREATING, ACTIVE or DELETING."""
        if self.gone_ms is not None:
            return "DELETING"
        return "CREATING" if now_ms < self.active_ms else "ACTIVE"

    def describe(self, now_ms: int) -> dict[str, Any]:
        """The members that all answers about a consumer have."""
        return {
            "ConsumerName": self.name,
            "ConsumerARN": self.arn,
            "ConsumerStatus": self.status(now_ms),
            "ConsumerCreationTimestamp": self.created_s,
        }


def consumer_of_arn(model: KinesisModel, arn: str) -> tuple[Stream, Consumer]:
    """(stream, consumer) with this consumer ARN. Raises ResourceNotFoundException."""
    stream_arn, _, rest = arn.partition("/consumer/")
    stream = model.find_stream(None, stream_arn)
    consumer = stream.consumers.get(rest.partition(":")[0]) if stream is not None else None
    if stream is None or consumer is None or consumer.arn != arn or not consumer.exists(model.now_ms()):
        raise not_found(f"Consumer {arn}, account {model.account_id} not found.")
    return stream, consumer
