"""Answer what several symptoms ask of a snapshot."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from shardway.inspect.lag.reports import State

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from shardway.inspect.applications.views import LeaseView
    from shardway.inspect.doctor.snapshots import Snapshot
    from shardway.inspect.lag.reports import Look, ShardLag
    from shardway.inspect.values import StreamView


NAMED_MAX = 5


def checkpoint_text(one: ShardLag) -> str:
    """Return a shard's checkpoint as messages name it."""
    return one.checkpoint + (f"/{one.sub_sequence_number}" if one.sub_sequence_number else "")


def stands_since_s(looks: Sequence[Look], what: Callable[[Look], object]) -> float:
    """Return for how many seconds the newest looks have shown the same value of ``what``."""
    kept = [one.at_s for one in itertools.takewhile(lambda one: what(one) == what(looks[-1]), reversed(looks))]
    return kept[0] - kept[-1]


def counted_metric(snapshot: Snapshot, name: str) -> Iterable[str]:
    """Yield a sentence for each figure of CloudWatch with this name that should be 0, and is more."""
    for one in snapshot.metrics.found if snapshot.metrics else ():
        if one.name == name and one.value > 0:
            of = ", ".join(one.of.values())
            yield f"CloudWatch counts {one.value:g} {name} of {of} in {one.hours:g} h ({one.namespace})"


def is_on_demand(snapshot: Snapshot) -> bool:
    """True for a stream of that mode."""
    view = stream_view_of(snapshot)
    return view is not None and view.mode == "ON_DEMAND"


def stream_view_of(snapshot: Snapshot) -> StreamView | None:
    """Return the stream; None where the snapshot has none."""
    return snapshot.stream.stream if snapshot.stream else None


def unfinished_leases(snapshot: Snapshot) -> Sequence[LeaseView]:
    """Return the leases of shards that are not read to their end."""
    return [one for one in snapshot.application.leases if not one.ended] if snapshot.application else []


def in_state(snapshot: Snapshot, state: State) -> Sequence[ShardLag]:
    """Return the shards whose reading is in a state."""
    return [one for one in snapshot.lag.shards if one.state is state] if snapshot.lag else []


def reasons(snapshot: Snapshot, state: State) -> Iterable[str]:
    """Return a sentence for each shard whose reading is in a state."""
    return (f"{one.shard_id}: {one.why}" for one in in_state(snapshot, state))


def named(found: Sequence[str]) -> list[str]:
    """Return the first `NAMED_MAX` sentences, and one that says how many more there are."""
    if len(found) <= NAMED_MAX:
        return list(found)
    return [*found[:NAMED_MAX], f"and {len(found) - NAMED_MAX} more"]
