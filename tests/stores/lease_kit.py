"""Small helpers for tests of lease tables."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from shardway.aws.options import Credentials
from shardway.core.leases import Done, LeaseRow, Outcome
from tests.stored_kit import FULL, at

if TYPE_CHECKING:
    from shardway.ports import LeaseTable

__all__ = ["CREDENTIALS", "at", "done", "full_row", "made"]

CREDENTIALS = Credentials("AKIAIOSFODNN7EXAMPLE", "secret")


def full_row(key: str = "shardId-000000000003") -> LeaseRow:
    """A row with every attribute that a lease of the KCL can have."""
    return replace(FULL, key=key)


def done(outcome: Outcome) -> LeaseRow:
    """The row of a write that was applied."""
    assert isinstance(outcome, Done), outcome
    assert outcome.row is not None
    return outcome.row


async def made(table: LeaseTable, row: LeaseRow) -> LeaseRow:
    """The row, created."""
    return done(await table.create(row))
