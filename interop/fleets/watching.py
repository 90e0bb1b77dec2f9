"""The lease table as it changes, looked at from outside: every state of every row that a look met."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

from interop.fleets.processes import now_ms
from shardway.core.leases.checkpoint import Checkpoint

LOOK_INTERVAL_S = 0.1


@dataclass(frozen=True)
class Seen:
    """A lease at a moment."""

    at_ms: int
    key: str
    counter: int | None
    owner: str | None
    checkpoint_owner: str | None
    checkpoint: Checkpoint

    @property
    def actual_owner(self) -> str | None:
        return self.checkpoint_owner or self.owner


class TableWatch:
    """Scans the table from a thread of its own; consistently, so a row never seems to go back."""

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb = dynamodb
        self._table = table
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._fault: BaseException | None = None
        self.history: list[Seen] = []
        self.leases: dict[str, Seen] = {}
        self.others: dict[str, dict[str, Any]] = {}
        """Rows that are no leases, as they were last."""
        self.without_counter: set[str] = set()
        """Keys of all rows that were ever seen without a counter."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        if self._fault is not None:
            raise self._fault

    def _run(self) -> None:
        try:
            while not self._stop.wait(LOOK_INTERVAL_S):
                try:
                    pages = self._dynamodb.get_paginator("scan").paginate(TableName=self._table, ConsistentRead=True)
                    rows = [row for page in pages for row in page["Items"]]
                except self._dynamodb.exceptions.ResourceNotFoundException:
                    continue  # no worker has made it yet
                self.look(rows)
        except BaseException as fault:
            self._fault = fault

    def look(self, rows: list[dict[str, Any]]) -> None:
        """Take in all rows of the table."""
        at_ms = now_ms()
        for row in rows:
            key = row["leaseKey"]["S"]
            if "leaseCounter" not in row:
                self.without_counter.add(key)
            if row.get("entityType", {"S": "LEASE"})["S"] != "LEASE" or "checkpoint" not in row:
                self.others[key] = row
                continue
            seen = _seen(at_ms, key, row)
            before = self.leases.get(key)
            if before is None or _changes(before) != _changes(seen):
                self.history.append(seen)
            self.leases[key] = seen
        for key in self.leases.keys() - {row["leaseKey"]["S"] for row in rows}:
            del self.leases[key]

    def steps_back(self) -> list[str]:
        """Checkpoints, and counters, that were less than before. A deleted lease that comes again counts too."""
        faults = []
        last: dict[str, Seen] = {}
        for seen in list(self.history):
            before = last.get(seen.key)
            if before is not None and seen.checkpoint < before.checkpoint:
                faults.append(f"{seen.key}: checkpoint {before.checkpoint.text} -> {seen.checkpoint.text}")
            if before is not None and (seen.counter or 0) < (before.counter or 0):
                faults.append(f"{seen.key}: counter {before.counter} -> {seen.counter}")
            last[seen.key] = seen
        return faults

    def handoffs(self) -> set[tuple[str, str]]:
        """(from, to) of all moves that a KCL 3.x leader asked for with a handoff: worker ids."""
        return {
            (seen.checkpoint_owner, seen.owner)
            for seen in list(self.history)
            if seen.checkpoint_owner is not None and seen.owner is not None
        }

    def owners(self) -> dict[str, str | None]:
        """The owner of each lease that has not ended."""
        return {key: seen.actual_owner for key, seen in list(self.leases.items()) if not seen.checkpoint.is_end}


def _seen(at_ms: int, key: str, row: dict[str, Any]) -> Seen:
    def text(name: str) -> str | None:
        return row[name]["S"] if name in row else None

    counter = row.get("leaseCounter")
    return Seen(
        at_ms,
        key,
        None if counter is None else int(counter["N"]),
        text("leaseOwner"),
        text("checkpointOwner"),
        Checkpoint.parse(row["checkpoint"]["S"], int(row.get("checkpointSubSequenceNumber", {"N": "0"})["N"])),
    )


def _changes(seen: Seen) -> tuple[object, ...]:
    return (seen.counter, seen.owner, seen.checkpoint_owner, seen.checkpoint)
