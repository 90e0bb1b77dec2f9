"""What a shard's reader is told to do, the same for all shards of a consumer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.core.ledger.settings import LedgerSettings
from penstock.core.shard.checkpoints import Riding
from penstock.runtime.dead_letters.burying import AT_ONCE_MAX, TIMEOUT_S

if TYPE_CHECKING:
    from penstock.core.shard.checkpoints import Cadence
    from penstock.runtime.dead_letters.destinations import LetterSink
    from penstock.runtime.shard.two_phase import OnPending

BATCH_RECORDS_MAX = 10_000


@dataclass(frozen=True, kw_only=True)
class ReaderChoices:
    """They are checked where they come from: `WorkerSettings`."""

    ledger: LedgerSettings = field(default_factory=LedgerSettings)
    cadence: Cadence = field(default_factory=Riding)
    batch_records_max: int = BATCH_RECORDS_MAX
    checkpoint_when_told: bool = False
    """What is settled is checkpointed no further than `ShardReader.checkpoint_to` says."""
    letters: LetterSink | None = None
    """Where dead letters go; None: none are written."""
    letter_timeout_s: float = TIMEOUT_S
    letters_at_once_max: int = AT_ONCE_MAX
    on_pending: OnPending | None = None
    """What becomes of a checkpoint that the former owner left pending; None: it is abandoned."""
