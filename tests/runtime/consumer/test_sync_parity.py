"""What threads get has the names, the arguments and the defaults of what tasks get; the exceptions have reasons."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from penstock import (
    Batch,
    Collection,
    Consumer,
    Delivered,
    PendingCheckpoint,
    ShardReader,
    SyncBatch,
    SyncCollection,
    SyncConsumer,
    SyncDelivered,
    SyncPendingCheckpoint,
    SyncShard,
    collect,
    sync_collect,
)

FACES = [
    (Batch, SyncBatch),
    (Delivered, SyncDelivered),
    (Collection, SyncCollection),
    (PendingCheckpoint, SyncPendingCheckpoint),
    (Consumer, SyncConsumer),
    (ShardReader, SyncShard),
]
MISSING: dict[type, dict[str, list[str]]] = {
    ShardReader: {
        "a worker's, on the loop": [
            *("run", "heard", "stop", "drain", "resume", "hand_over", "over", "row", "tell_failed"),
            *("listen", "unlisten"),
        ],
        "the consumer's, on the loop": ["take", "take_back", "use_order"],
        "for its batches": ["lock", "now_s", "may_deliver", "writes_letters", "emit", "touched", "handled"],
        "the consumer's numbers": ["counts", "records_settled"],
        "where a reader runs, which its consumer says": ["lives"],
        "it changes while a thread looks at it": ["ledger"],
        "a pending checkpoint's, which threads have too": ["ask"],
        "Loss is the worker's": ["lost"],
        "Consumer.seek is a user's way to it, which opens the feed": ["seek"],
    },
}
"""Names of the first face that the second has not, and why."""
OTHERWISE = {
    (Consumer, "run"): "threads are bounded: HANDLERS_MAX in place of no bound",
    (Consumer, "__init__"): "rng: for simulations, which have a loop of their own",
}
"""Arguments that are not the same, and why."""
DUNDERS = {"__len__": "__len__", "__iter__": "__iter__", "__aiter__": "__iter__", "__aenter__": "__enter__"}


def public(face: type) -> set[str]:
    """Methods, properties and slots that have no underscore."""
    return {name for kind in face.__mro__[:-1] for name in vars(kind) if not name.startswith("_")}


def arguments(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("tasks", "threads"), FACES)
def test_each_name_is_in_both_faces(tasks: type, threads: type) -> None:
    missing = {name for names in MISSING.get(tasks, {}).values() for name in names}
    assert public(tasks) - public(threads) - instance_names(threads) == missing
    assert public(threads) - public(tasks) - instance_names(tasks) == set()


def instance_names(face: type) -> set[str]:
    """What ``__init__`` of it, or of its bases, sets without an underscore."""
    names: set[str] = set()
    for kind in face.__mro__[:-1]:
        if "__init__" in vars(kind):
            code = inspect.unwrap(vars(kind)["__init__"]).__code__
            names |= {name for name in code.co_names if not name.startswith("_")}
    return names


@pytest.mark.parametrize(("tasks", "threads"), FACES)
def test_methods_take_the_same(tasks: Any, threads: Any) -> None:
    methods = {name: name for name in public(tasks) & public(threads)}
    methods |= {mine: theirs for mine, theirs in DUNDERS.items() if hasattr(tasks, mine)}
    for mine, theirs in methods.items():
        one, other = getattr(tasks, mine), getattr(threads, theirs)
        assert callable(one) == callable(other), mine
        if not callable(one):
            continue
        same = arguments(one) == arguments(other)
        assert same != ((tasks, mine) in OTHERWISE), f"{tasks.__name__}.{mine}: {arguments(one)}, {arguments(other)}"


def test_a_consumer_is_made_of_the_same_arguments() -> None:
    mine, theirs = arguments(Consumer), arguments(SyncConsumer)
    assert [each for each in mine if each[0] != "rng"] == theirs
    assert (Consumer, "__init__") in OTHERWISE


def test_collections_are_asked_for_alike() -> None:
    assert arguments(collect) == arguments(sync_collect)
