"""What a batcher tells while it works. The producer makes its metrics and events of it; by default it goes nowhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.core.batching.chunk import Run


class Watch:
    """One method for each fact; all numbers are counts unless their name says more. Shard ids may be None where no
    shard could be predicted.
    """

    def written(self, shard_id: str, records: int, user_records: int, record_bytes: int, data_bytes: int) -> None:
        """Kinesis records were written: one that holds all the user records, or one for each.

        ``record_bytes`` are their data and keys, ``data_bytes`` the data of the user records.
        """

    def settled(self, run: Run, shard_id: str, records: int, attempts: int, doubtful: bool, now_s: float) -> None:
        """So many user records of a run were written, with ``attempts`` requests in all."""

    def refused(self, shard_id: str | None, records: int, error_code: str) -> None:
        """Kinesis records of a request that was answered were not taken; they are tried again."""

    def expired(self, run: Run, shard_id: str | None, now_s: float) -> None:
        """The user records of a run had their time-to-live pass."""

    def failed(self, run: Run, shard_id: str | None, error_code: str, now_s: float) -> None:
        """The user records of a run can not be written and were given up."""

    def withdrawn(self, records: int) -> None:
        """User records were withdrawn before they were sent."""

    def repeated(self, shard_id: str, aggregates: int, user_records: int) -> None:
        """Aggregates landed on a shard whose range does not hold them, and are put again by shard."""

    def unknown(self, records: int, reason: str) -> None:
        """Whether these Kinesis records were written is not known; they are put again."""
