"""One shard as the driver knows it: how far it is read, and what is known ahead."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardway.model import ListedShard
from shardway.spark.driver.carried_records import Attempts
from shardway.spark.driver.pace import Pace
from shardway.spark.lookahead.lookahead import KnownRecord, Lookahead, Tail
from shardway.spark.lookahead.shard_probe import ShardProbe
from shardway.spark.positions import Kind, ShardPosition


@dataclass(slots=True)
class ShardState:
    """One shard in the book."""

    shard: ListedShard
    position: ShardPosition
    probe: ShardProbe
    stored: bool = False
    """True where the position comes from an offset and was not compared yet with what the shard still holds."""
    orphan: bool = False
    """True where the shard appeared while the query was away, and so did its parents: how long it had been written is
    unknown.
    """
    look: Lookahead | None = None
    pace: Pace = field(default_factory=Pace)
    """The pace of looks while nothing comes."""
    attempts: Attempts = field(default_factory=Attempts)
    """The attempts to see all that is new in one look."""

    @property
    def shard_id(self) -> str:
        """The shard's id."""
        return self.shard.shard_id

    @property
    def lookahead(self) -> Lookahead:
        """What was seen ahead; the shard must have been looked at."""
        assert self.look is not None, self.shard_id
        return self.look

    @property
    def first(self) -> KnownRecord:
        """The next record to read; it must have been seen."""
        first = self.lookahead.first
        assert first is not None, self.shard_id
        return first

    def stored_form(self) -> ShardPosition:
        """Return the position as an offset holds it: pinned to the next record if it was seen, refreshed by silence."""
        look = self.look
        if look is None or self.stored or self.position.kind is Kind.ENDED:
            return self.position
        # Such a shard is not idle: only an empty page moves the witness.
        if look.first is not None:
            return ShardPosition(Kind.NEXT, look.first.arrival_ms, look.first.sequence_number)
        if look.exhausted:
            return self.position.at_shard_end(look.tip_seen_ms)
        return self.position.idle_until(look.tip_seen_ms if look.beyond is Tail.TIP else look.reached_ms)

    def reached_ms(self) -> int:
        """Return the time up to which nothing arrived in the silence that is crossed, as far as it is known."""
        return self.position.witness_ms if self.look is None else max(self.look.reached_ms, self.position.witness_ms)

    def crosses(self, until_ms: int) -> bool:
        """True when it is not known yet whether the shard has a record before that time. A closed shard is followed to
        its end: its children wait for it.
        """
        look = self.look
        return look is not None and look.crossing and (self.probe.closed or look.reached_ms < until_ms)

    def is_unread_before(self, cut_ms: int) -> bool:
        """True when a record was seen that arrived before the cut."""
        return self.look is not None and self.look.first is not None and self.look.first.arrival_ms < cut_ms

    def may_hold_more_before(self, cut_ms: int) -> bool:
        """True when there may be records before the cut that were not seen."""
        look = self.lookahead
        return look.beyond is Tail.UNKNOWN and max(seen.arrival_ms for seen in look.records) < cut_ms
