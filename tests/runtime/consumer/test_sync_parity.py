"""What threads get has the names, the arguments and the defaults of what tasks get; the exceptions have reasons. And
what waits is typed apart: the wrong kind of call is a finding of mypy, and an error.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest

from shardway import Batch, Collection, Consumer, Delivered, Shard, SyncConsumer, SyncShard
from shardway.checkpoints import PendingCheckpoint

if TYPE_CHECKING:
    from collections.abc import Callable

FACES = [(Consumer, SyncConsumer), (Shard, SyncShard)]
WAIT = {
    Consumer: {
        *("start", "close", "deregister", "getmany", "run_batches", "run_records", "prepare", "commit", "abandon"),
        *("__aenter__", "__aexit__"),
    },
    Shard: {"next_batch", "until_stored"},
}
"""The calls that wait: coroutines for tasks, and plain calls for threads."""
VALUES = [Batch, Delivered, Collection, PendingCheckpoint]
"""They are the same in both, and nothing of them waits."""
OTHERWISE = {
    (Consumer, "run_batches"): "threads are bounded: HANDLERS_MAX in place of no bound",
    (Consumer, "run_records"): "as run_batches",
}
"""Arguments that are not the same, and why."""
DUNDERS = {"__aiter__": "__iter__", "__aenter__": "__enter__", "__aexit__": "__exit__"}


def public(face: type) -> set[str]:
    """Methods, properties and slots that have no underscore."""
    return {name for kind in face.__mro__[:-1] for name in vars(kind) if not name.startswith("_")}


def arguments(function: Any) -> list[tuple[str, Any, Any]]:
    return [(each.name, each.kind, each.default) for each in inspect.signature(function).parameters.values()]


@pytest.mark.parametrize(("tasks", "threads"), FACES)
def test_each_name_is_in_both_faces(tasks: type, threads: type) -> None:
    assert public(tasks) - public(threads) - instance_names(threads) == set()
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
    assert arguments(Consumer) == arguments(SyncConsumer)


@pytest.mark.parametrize(("tasks", "threads"), FACES)
def test_what_waits_is_a_coroutine_for_tasks_and_none_for_threads(tasks: type, threads: type) -> None:
    coroutines = {
        name for kind in tasks.__mro__[:-1] for name, one in vars(kind).items()
        if inspect.iscoroutinefunction(one) and not (name.startswith("_") and name not in DUNDERS)
    }  # fmt: skip
    assert coroutines == WAIT[tasks]
    assert not [name for name in public(threads) if inspect.iscoroutinefunction(getattr(threads, name))]
    assert hasattr(tasks, "__aiter__")
    assert not hasattr(tasks, "__iter__")
    assert hasattr(threads, "__iter__")
    assert not hasattr(threads, "__aiter__")


@pytest.mark.parametrize("value", VALUES)
def test_nothing_of_a_value_waits_and_one_with_serves_both(value: type) -> None:
    assert not [name for name in public(value) if inspect.iscoroutinefunction(getattr(value, name))]
    if value is not PendingCheckpoint:
        assert hasattr(value, "__enter__")
        assert hasattr(value, "__aenter__")


async def wrong_kinds_for_mypy(consumer: Consumer[bytes], threads: SyncConsumer[int], batch: Batch[bytes]) -> None:
    """Each line is a finding of mypy, or it says that the comment is not used."""
    consumer.prepare(batch)  # type: ignore[unused-coroutine]
    await threads.prepare(batch)  # type: ignore[misc]
    for _ in consumer:  # type: ignore[attr-defined]
        pass
    async for _ in threads:  # type: ignore[attr-defined]
        pass
    with consumer:  # type: ignore[attr-defined]
        pass
    async with threads:  # type: ignore[attr-defined]
        pass
    for value in (await consumer.getmany())[0].values:
        needs_int(value)  # type: ignore[arg-type]
    for one in threads.records():
        needs_int(one.value)


def needs_int(value: int) -> None:
    """For the types above."""


async def test_the_wrong_kind_of_iteration_or_block_is_an_error() -> None:
    tasks: Any = Consumer("orders", application="billing")
    threads: Any = SyncConsumer("orders", application="billing")
    wrong: list[Callable[[], Any]] = [lambda: iter(tasks), lambda: aiter(threads)]
    for one in wrong:
        with pytest.raises(TypeError):
            one()
    with pytest.raises(TypeError), tasks:
        raise AssertionError("not reached")
    threads.close()
