"""The ledger of a shard says what was delivered, what became of it, and how far a checkpoint may go. It makes no I/O.

``Ledger`` is the whole of one tenure: pages of records go in, deliveries come out, handlers settle them in any order,
and ``safe`` says how far all is settled. ``LedgerPolicy`` has the choices.
"""

from shardway.core.ledger.book import DeadLetter, Delivery, Ticket, behind
from shardway.core.ledger.grouping import Collected, Collector, Part, Split, SplitError, split
from shardway.core.ledger.ledger import GiveUpReason, Ledger, TenureEnd
from shardway.core.ledger.policies import (
    AnyOrder,
    ByKey,
    DeadLetters,
    GiveUp,
    InOrder,
    LedgerPolicy,
    Redeliver,
    Retry,
    Skip,
    Stop,
    Warn,
)

__all__ = [
    "AnyOrder",
    "ByKey",
    "Collected",
    "Collector",
    "DeadLetter",
    "DeadLetters",
    "Delivery",
    "GiveUp",
    "GiveUpReason",
    "InOrder",
    "Ledger",
    "LedgerPolicy",
    "Part",
    "Redeliver",
    "Retry",
    "Skip",
    "Split",
    "SplitError",
    "Stop",
    "TenureEnd",
    "Ticket",
    "Warn",
    "behind",
    "split",
]
