"""An observer sees counters that others move, and since when they stand still.

No clock of another machine is compared. The observer times a counter on its own monotonic clock, from the answer in
which it first saw the value. The owner counts from the moment at which it sent the write, which is earlier. So the
owner has stopped before any observer has waited for as long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    from shardway.core.leases.row import LeaseRow


class _SeenRow(NamedTuple):
    counter: int
    owner: str | None
    since_s: float


class ObservedCounters:
    """The counters by key that an observer has seen: of leases, or of workers."""

    __slots__ = ("_seen_rows",)

    def __init__(self) -> None:
        self._seen_rows: dict[str, _SeenRow] = {}

    def look(self, key: str, counter: int, now_s: float, *, owner: str | None = None) -> None:
        """Note a value that an answer showed, at the time of the answer. A change of the owner's name is a movement
        too. ``owner``: the lease's owner, or the process whose row it is.
        """
        seen = self._seen_rows.get(key)
        if seen is None or seen.counter != counter or seen.owner != owner:
            self._seen_rows[key] = _SeenRow(counter, owner, now_s)

    def look_at_leases(self, rows: Iterable[LeaseRow], now_s: float) -> None:
        """Note all leases, as one scan showed them; a lease that is not among them is forgotten."""
        before, self._seen_rows = self._seen_rows, {}
        for row in rows:
            seen = before.get(row.key)
            if seen is not None:
                self._seen_rows[row.key] = seen
            self.look(row.key, row.counter, now_s, owner=row.owner)

    def forget(self, key: str) -> None:
        """Forget a key that is gone, or of no interest."""
        self._seen_rows.pop(key, None)

    def unmoved_s(self, key: str, now_s: float) -> float:
        """Return how many seconds the counter is known to stand still; 0 for a key that was never seen."""
        seen = self._seen_rows.get(key)
        return 0.0 if seen is None else now_s - seen.since_s
