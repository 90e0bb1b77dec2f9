"""What the options of the consumers promise of the records of a simulation."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

from shardway.model import Record
from shardway.policies import Redeliver
from shardway.testing.sim.history.shard_story import STREAM

if TYPE_CHECKING:
    from shardway.options.consumer import ConsumerOptions
    from shardway.testing.sim.history.shard_story import Put


class Promises:
    """Keeps what the consumers' options say of the records, also options that are not the plan's. What their functions
    make of a record follows from it alone.
    """

    def __init__(self, options: ConsumerOptions) -> None:
        choice = options.deduplicate
        self.window_s = 0.0 if choice is None else choice.window_s
        """Seconds within which a record whose key came before is a duplicate; 0: none is."""
        self.window_waits = choice is None or choice.wait
        """True where no duplicate is ever delivered."""
        self.redelivers = isinstance(options.settling.stalled, Redeliver)
        """True where what a handler has is delivered again after some time."""
        self.splits = options.split is not None
        """True where records are delivered in parts."""
        self._options = options

    def key_of(self, put: Put) -> bytes | str | None:
        """Return the key that a record shares with its duplicates."""
        choice = self._options.deduplicate
        return put.data if choice is None else choice.key(_record(put))

    def parts_of(self, put: Put) -> int:
        """Return how many parts a record is split into."""
        split = self._options.split
        return 1 if split is None else sum(1 for _ in split(_record(put)))


def _record(put: Put) -> Record:
    return Record(
        stream=STREAM,
        shard_id="",
        partition_key=put.key,
        data=put.data,
        sequence_number=0,
        approximate_arrival_timestamp=dt.datetime.fromtimestamp(0, dt.UTC),
    )
