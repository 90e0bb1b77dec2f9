"""A shard's ledger in one tenure, and another one after each seek; with what writes its dead letters."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from penstock.core.feeding.user_records import PLAIN_BYTES, RECORD_BYTES
from penstock.core.ledger.ledger import Ledger
from penstock.core.ledger.settings import payload_bytes_of
from penstock.runtime.dead_letters.burying import Burying

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from penstock.core.feeding.buffer import Share
    from penstock.core.leases.checkpoint import Checkpoint
    from penstock.core.ledger.settings import OrderPolicy
    from penstock.events import LedgerEvent
    from penstock.model import Record
    from penstock.runtime.shard.choices import ReaderChoices
    from penstock.tasks import Heard


class Ledgers:
    """`current` is the one that counts; those before it take nothing any more."""

    def __init__(
        self,
        after: Checkpoint,
        choices: ReaderChoices,
        *,
        stream: str,
        shard_id: str,
        rng: Random,
        on_event: Callable[[LedgerEvent], None],
        worker: str,
        token: int,
        on_written: Callable[[], None],
        on_failed: Heard,
        share: Share | None = None,
    ) -> None:
        """``worker`` and ``token`` stand in dead letters. ``on_written``: one is written, or could not be.
        ``on_failed`` hears of an error by which it is neither. ``share``: what the shard has of the consumer's buffer.
        """
        self._share = share
        self._settings = choices.ledger
        self._stream, self._shard_id = stream, shard_id
        self._rng = rng
        self._on_event = on_event
        self.buries = choices.letters is not None
        """True when dead letters are written."""
        self._letters, self._choices = choices.letters, choices
        self._worker, self._token = worker, token
        self._on_written, self._on_failed = on_written, on_failed
        self._burying: Burying | None = None
        self._records_before = 0
        self.current = self._begin(after)

    @property
    def settled_records(self) -> int:
        """Records that were settled without a gap, by all of them."""
        return self._records_before + self.current.settled_records

    def begin_anew(self, after: Checkpoint, order: OrderPolicy | None) -> None:
        """An empty one, for what follows ``after``; in another order from here on, if one is given."""
        former = self.current
        if order is not None:
            self._settings = replace(self._settings, order=order)
        self._records_before += former.settled_records
        former.close("the shard is read from another place on (seek)")
        self.current = self._begin(after)
        self.current.draining, self.current.filling = former.draining, former.filling

    def write_letters(self) -> float:
        """Begin to write the dead letters that are due. When there will be more; infinity where that is not known."""
        if self._burying is None:
            return math.inf
        self._burying.work()
        return self.current.next_letter_at_s()

    @property
    def next_letter_at_s(self) -> float:
        """When `write_letters` has something to do."""
        return math.inf if self._burying is None else self.current.next_letter_at_s()

    def close(self, reason: str) -> None:
        """The tenure is over."""
        self.current.close(reason)
        if self._burying is not None:
            self._burying.stop()

    def _begin(self, after: Checkpoint) -> Ledger[Record]:
        ledger: Ledger[Record] = Ledger(
            self._stream,
            self._shard_id,
            after,
            self._settings,
            rng=self._rng,
            on_event=self._on_event,
            size_of=held_bytes_of,
            share=self._share,
        )
        ledger.buries = self.buries
        if self._burying is not None:
            self._burying.stop()
        if self._letters is not None:
            self._burying = Burying(
                ledger,
                self._letters,
                stream=self._stream,
                shard_id=self._shard_id,
                worker=self._worker,
                token=self._token,
                timeout_s=self._choices.letter_timeout_s,
                at_once_max=self._choices.letters_at_once_max,
                on_written=self._on_written,
                on_failed=self._on_failed,
            )
        return ledger


def held_bytes_of(record: Record) -> int:
    """The memory of a record, or of a part of one, that stays when those around it are settled."""
    return payload_bytes_of(record) + PLAIN_BYTES + RECORD_BYTES
