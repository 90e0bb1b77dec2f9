"""Small helpers for tests of lease tables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from penstock.aws.settings import Credentials
from penstock.core.leases import Checkpoint, Done, LeaseRow, Outcome
from penstock.model import HASH_KEY_MAX, Position

if TYPE_CHECKING:
    from penstock.ports import LeaseTable

CREDENTIALS = Credentials("AKIAIOSFODNN7EXAMPLE", "secret")
SEQUENCE = 49680422878816985956712234883511993830675535596124897330


def at(offset: int, sub: int = 0) -> Checkpoint:
    """A checkpoint at a real sequence number, and ``offset`` behind it."""
    return Checkpoint.at(Position(SEQUENCE + offset, sub))


def full_row(key: str = "shardId-000000000003") -> LeaseRow:
    """A row with every attribute that a lease can have."""
    return LeaseRow(
        key=key,
        counter=7,
        checkpoint=at(0, 4),
        owner="w2",
        checkpoint_owner="w1",
        pending=at(5, 1),
        pending_state=b"\x00state\xff",
        switches=2,
        parents=frozenset({"shardId-000000000001", "shardId-000000000002"}),
        children=frozenset({"shardId-000000000005"}),
        first_hash_key=0,
        last_hash_key=HASH_KEY_MAX,
        stream="123456789012:orders:1700000000",
        shard_id="shardId-000000000003",
        throughput_kib_s=6.750849,
        entity="LEASE",
    )


def done(outcome: Outcome) -> LeaseRow:
    """The row of a write that was applied."""
    assert isinstance(outcome, Done), outcome
    assert outcome.row is not None
    return outcome.row


async def made(table: LeaseTable, row: LeaseRow) -> LeaseRow:
    """The row, created."""
    return done(await table.create(row))
