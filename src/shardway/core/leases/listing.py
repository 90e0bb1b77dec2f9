"""A scan of a lease table finds leases, and rows that are none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from shardway.core.leases.row import KEY, LeaseRow, NotALeaseError, is_lease, lease_row, seems_lease

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Listing(NamedTuple):
    """The rows of one scan."""

    rows: list[LeaseRow]
    foreign: dict[str, Mapping[str, Any]]
    """The rows of other kinds by their key, as plain attributes: the KCL 3.5 keeps its own beside the leases."""
    unreadable: Mapping[str, str]
    """The reasons, by the keys of rows that seem to be leases and cannot be read as such. They are left alone."""


def listing_of(items: Iterable[Mapping[str, Any]]) -> Listing:
    """Sort out rows that come as plain attributes. No row makes this fail."""
    rows: list[LeaseRow] = []
    foreign: dict[str, Mapping[str, Any]] = {}
    unreadable: dict[str, str] = {}
    for item in items:
        if not is_lease(item) and not seems_lease(item):
            foreign[str(item.get(KEY))] = item
            continue
        try:
            rows.append(lease_row(item))
        except NotALeaseError as fault:
            unreadable[str(item.get(KEY))] = str(fault)
    return Listing(rows, foreign, unreadable)
