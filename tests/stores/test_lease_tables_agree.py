"""Any series of writes ends the same way in SQL's columns as in the rows that the writes are defined on."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardway.core.leases import Checkpoint, LeaseRow, Write, writes
from shardway.stores.memory import MemoryLeaseTable
from shardway.stores.sqlite import SqliteLeaseTable
from tests.stores.lease_kit import at, full_row

if TYPE_CHECKING:
    from pathlib import Path

NAMES = st.sampled_from(["w1", "w2", "ü\n'\"x"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["take", "renew", "checkpoint", "prepare", "give", "free", "ask", "metadata", "delete", "create", "end"]
        ),
        NAMES,
        st.integers(0, 9),
        st.integers(0, 2),
        st.one_of(st.none(), st.binary(max_size=4)),
    ),
    max_size=14,
)
Step = tuple[str, str, int, int, bytes | None]
FIRST = st.sampled_from([full_row("a"), LeaseRow(key="a"), LeaseRow(key="a", owner="w1", checkpoint=Checkpoint.LATEST)])


def write_of(seen: LeaseRow, step: Step) -> Write:
    """A write as a worker makes it that saw this row."""
    what, name, number, sub, state = step
    to = max(at(number, sub), seen.checkpoint)
    match what:
        case "take":
            return writes.take(seen, name)
        case "checkpoint":
            return writes.checkpoint(seen, to, number / 7)
        case "end":
            return writes.checkpoint(seen, Checkpoint.SHARD_END)
        case "prepare":
            return writes.prepare(seen, to, state)
        case "give":
            return writes.give(seen, name, to if number % 2 else None)
        case "free":
            return writes.free(seen, to if number % 2 else None)
        case "ask" if seen.owner is not None and seen.checkpoint_owner is None:
            return writes.ask_handoff(seen, name)
        case "metadata":
            return writes.metadata("a", children=frozenset({name, "b"}), hash_range=(number, 2**128 - 1))
        case "delete":
            return writes.delete(seen)
    return writes.renew(seen, number / 3)


@settings(max_examples=60)
@given(first=FIRST, steps=STEPS)
def test_sqlite_does_what_the_writes_say(
    tmp_path_factory: pytest.TempPathFactory, first: LeaseRow, steps: list[Step]
) -> None:
    folder = tmp_path_factory.mktemp("agree")

    asyncio.run(_compare(folder, first, steps))


async def _compare(folder: Path, first: LeaseRow, steps: list[Step]) -> None:
    memory, sqlite = MemoryLeaseTable(), SqliteLeaseTable(folder / "leases.sqlite")
    await sqlite.ensure()
    seen = [first]
    assert await memory.create(first) == await sqlite.create(first)
    for step in steps:
        row = seen[-1 - step[2] % min(3, len(seen))]  # now and then an old one
        if step[0] == "create":
            again = replace(first, counter=step[2])
            assert await memory.create(again) == await sqlite.create(again)
        else:
            write = write_of(row, step)
            assert await memory.write(write) == await sqlite.write(write)
        now = await memory.get("a")
        assert await sqlite.get("a") == now
        if now is not None:
            seen.append(now)
    await sqlite.close()
