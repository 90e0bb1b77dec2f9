"""Read what a page of records is asked for in its address."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from shardway.console.columns import Columns
from shardway.console.looks.newest import Mark, NewestQuery
from shardway.inspect import Goal, Reading, SeenRecord
from shardway.inspect.filters import parse
from shardway.inspect.moments import moment_s

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.datastructures import QueryParams

    from shardway.console.console import Console


NEWEST = "newest"
"""The place at which a list of records begins unless its address names another: with the newest of all shards."""
ROWS = 50
ROWS_MAX = 500
NUMBER = re.compile(r"\d{1,128}", re.ASCII)


class RecordQuery:
    """Which records a page shows: all that its address says. Raises OptionError."""

    def __init__(self, console: Console, stream: str, query: QueryParams, *, at: str = NEWEST) -> None:
        self.stream = stream
        self.at = query.get("from", "").strip() or at
        self.until = query.get("until", "").strip() or None
        self.shard = query.get("shard", "").strip() or None
        self.key = query.get("key", "") or None
        self.where = query.get("where", "").strip() or None
        self.limit = _limit(query.get("limit", ""))
        console.payloads.checked(where=self.where, key=self.key)
        self.matches: Callable[[SeenRecord], bool] | None = None if self.where is None else parse(self.where)
        self.is_newest = self.at.lower() == NEWEST and at == NEWEST
        before = query.get("before", "") if self.is_newest else ""
        self.before = Mark.parse(before) if before else None
        self.columns = Columns(query.getlist("col"))
        if not self.is_newest:
            Goal(self.at).begin(0.0)
        if self.until is not None:
            moment_s(self.until, 0.0)

    def reading(self, now_s: float) -> Reading:
        """Return what is to be read, to the tip."""
        at, behind = Goal(self.at).begin(now_s)
        return Reading(
            starting_position=at,
            behind=behind,
            shards=() if self.shard is None else (self.shard,),
            partition_key=self.key,
            until_s=None if self.until is None else moment_s(self.until, now_s),
        )

    def wish(self, console: Console, now_s: float) -> NewestQuery:
        """Return which of the newest records are wanted. A filter sees what a page shows."""
        matches = self.matches
        return NewestQuery(
            limit=self.limit,
            shard=self.shard,
            key=self.key,
            until_s=None if self.until is None else moment_s(self.until, now_s),
            before=self.before,
            matches=None if matches is None else lambda one: matches(console.payloads.masked(one)),
        )

    def query(self, **changed: Any) -> dict[str, Any]:
        """Return the fields of the address, with changes."""
        own: dict[str, Any] = {
            "from_": None if self.is_newest else self.at,
            "until": self.until,
            "shard": self.shard,
            "key": self.key,
            "where": self.where,
            "col": self.columns.names,
        }
        own["limit"] = None if self.limit == ROWS else self.limit
        return {**own, **changed}

    def target(self) -> dict[str, Any]:
        """Return what the audit log says of the choice. A key and a filter may hold data, so the log says only that
        there was one.
        """
        told = {"stream": self.stream, "from": self.at, "until": self.until, "shard": self.shard}
        told["key"] = "given" if self.key else None
        told["where"] = "given" if self.where else None
        return {name: value for name, value in told.items() if value is not None}


def _limit(text: str) -> int:
    """Return how many rows a page shows. A number of any length may stand in an address."""
    if not NUMBER.fullmatch(text):
        return ROWS
    return min(int(text), ROWS_MAX) or ROWS
