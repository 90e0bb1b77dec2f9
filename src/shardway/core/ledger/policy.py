"""The policy of a ledger: what it needs of the consumer's options, and the bounds that no option sets."""

from __future__ import annotations

from dataclasses import dataclass, field

from shardway.errors import OptionError
from shardway.policies import SETTLE_DEADLINE_S, ByKey, OrderPolicy, Retry, StallPolicy, Warn

MIB = 1024 * 1024
SHARD_BUFFER_BYTES_MAX = 64 * MIB
SHARD_RECORDS_MAX = 100_000

REPEAT_RECORDS_MAX = 1_000_000
"""The consumer fetches no more of a shard while this many records lie behind its oldest unsettled one: a crash would
repeat them.
"""
FULL_AFTER_S = 5.0
"""An event reports it when the program asks for records and gets none for this long, because the records that it has
not settled are at a bound.
"""
LETTER_BACKOFF_S = 0.5
LETTER_BACKOFF_MAX_S = 60.0
"""The consumer writes a dead letter that could not be written again after a random pause, up to a bound that doubles
from the first time to the second.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPolicy:
    """How one shard's records are delivered and settled: what a ledger needs of the consumer's options, and the bounds
    that no option sets. The options were checked where they were given.
    """

    order: OrderPolicy | None = None
    retry: Retry = field(default_factory=Retry)
    settle_deadline_s: float = SETTLE_DEADLINE_S
    stalled: StallPolicy = field(default_factory=Warn)
    latest_wins: bool = False
    log_errors: str = "place"
    records_max: int = SHARD_RECORDS_MAX
    bytes_max: int = SHARD_BUFFER_BYTES_MAX
    repeat_records_max: int = REPEAT_RECORDS_MAX
    full_after_s: float = FULL_AFTER_S
    letter_backoff_s: float = LETTER_BACKOFF_S
    letter_backoff_max_s: float = LETTER_BACKOFF_MAX_S

    def __post_init__(self) -> None:
        if self.latest_wins and isinstance(self.order, ByKey):
            raise OptionError(
                "latest_wins: with keys side by side the newest record says nothing about those before it"
            )
