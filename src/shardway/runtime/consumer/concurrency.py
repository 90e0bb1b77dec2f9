"""The concurrency of a consumer's handlers: which of their calls run side by side, and which order that keeps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeAlias

from msgspec import Meta

from shardway.core.options.base import Options
from shardway.policies import AnyOrder, ByKey, InOrder

if TYPE_CHECKING:
    from shardway.policies import OrderPolicy


@dataclass(frozen=True, slots=True)
class OneByOne:
    """One call at a time for each shard, in its order; the calls of different shards run side by side."""


class Unordered(Options, frozen=True, kw_only=True):
    """Several calls side by side for each shard, in no order; a record that fails holds up no other."""

    slots_max: Annotated[int, Meta(gt=0)] = 16
    """The number of calls that run for a shard at the same time."""


Concurrency: TypeAlias = OneByOne | ByKey | Unordered


def by_key(slots_max: int = 16) -> ByKey:
    """Return a choice: partition keys side by side, at most ``slots_max`` of a shard at a time; each key in its
    order.
    """
    return ByKey(slots_max=slots_max)


def unordered(slots_max: int = 16) -> Unordered:
    """Return a choice: at most ``slots_max`` calls side by side for each shard, in no order."""
    return Unordered(slots_max=slots_max)


def order_of(concurrency: Concurrency) -> OrderPolicy | None:
    """Return the order in which the ledgers have to deliver for a concurrency; None: the order that the options
    name.
    """
    match concurrency:
        case ByKey():
            return concurrency
        case Unordered():
            return AnyOrder()
    return None


def promised(order: OrderPolicy | None, concurrency: Concurrency | None = None) -> str | None:
    """Return the name of what was chosen for the order that it keeps; None: nothing was. ``concurrency`` None: no
    handler is driven.
    """
    match concurrency:
        case ByKey():
            return "by_key"
        case Unordered():
            return None
        case OneByOne() if not isinstance(order, AnyOrder):
            return "OneByOne"
    return "ByKey" if isinstance(order, ByKey) else "InOrder" if isinstance(order, InOrder) else None
