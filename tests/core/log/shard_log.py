"""A shard as the service answers for it, with the habits that readers trip over."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from shardway.core.log.pages import ReadPage

if TYPE_CHECKING:
    from shardway.model import IteratorAt

FIRST = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898


@dataclass(frozen=True)
class Raw:
    data: bytes
    number: int
    approximate_arrival_timestamp: float
    partition_key: str | None = "k"

    @property
    def sequence_number(self) -> str:
        return str(self.number)


@dataclass
class ShardLog:
    """Records of which the oldest are gone; an iterator is a place in the whole log, or one that leads nowhere."""

    raws: list[Raw] = field(default_factory=list)
    trimmed: int = 0
    closed: bool = False
    behind_ms: int = 86_400_000
    """What an iterator that leads nowhere tells."""
    hesitates: int = 0
    """So many empty pages come before the first records."""

    def put(self, *datas: bytes, at_s: float = 0.0) -> None:
        for data in datas:
            self.raws.append(Raw(data, FIRST + 10 * len(self.raws), at_s))

    def iterator(self, at: IteratorAt) -> str:
        if at.type == "TRIM_HORIZON":
            return str(self.trimmed)
        if at.type == "LATEST":
            return str(len(self.raws))
        if at.type == "AT_TIMESTAMP":
            assert at.timestamp_s is not None
            places = range(self.trimmed, len(self.raws))
            return str(
                next(
                    (n for n in places if self.raws[n].approximate_arrival_timestamp >= at.timestamp_s), len(self.raws)
                )
            )
        assert at.sequence_number is not None
        after = at.type == "AFTER_SEQUENCE_NUMBER"
        place = (at.sequence_number - FIRST) // 10 + after
        return "nowhere" if place - after < self.trimmed else str(place)

    def read(self, iterator: str, limit: int) -> ReadPage:
        if iterator == "nowhere":
            return ReadPage((), self.behind_ms, "nowhere")
        if self.hesitates:
            self.hesitates -= 1
            return ReadPage((), 1000, iterator)
        start = max(int(iterator), self.trimmed)
        some = self.raws[start : start + limit]
        stop = start + len(some)
        at_end = stop == len(self.raws)
        return ReadPage(some, 0 if at_end else 1000, None if at_end and self.closed else str(stop))
