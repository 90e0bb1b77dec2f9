"""A test may want another consumer of the application: it has the shards that it is to have, and no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shardway.core.assignment.views import LeaseView, WorkerView

OTHER = "another-worker"
"""The id of the consumer that gets what is handed over."""
THIEF = "a-worker-that-took-it"
"""The id of a worker that took a lease and shows itself in no other row."""


class Whereabouts:
    """The strategy of both consumers: every shard belongs to the one that is tested, but for those that are to be
    elsewhere.
    """

    def __init__(self, here: str) -> None:
        self.here = here
        self.other: set[str] = set()
        """Shards for the other consumer."""
        self.lost: set[str] = set()
        """Shards that neither of the two consumers may take back."""

    def __call__(
        self, leases: Sequence[LeaseView], workers: Sequence[WorkerView], _preferred: Mapping[str, str], /
    ) -> Mapping[str, str]:
        """See `shardway.core.assignment.strategies.Strategy`."""
        present: Any = {worker.id for worker in workers}
        wanted = {
            lease.key: OTHER if lease.key in self.other else self.here for lease in leases if lease.key not in self.lost
        }
        return {key: worker for key, worker in wanted.items() if worker in present}
