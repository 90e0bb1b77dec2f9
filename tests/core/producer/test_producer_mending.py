"""A step that is broken off in the middle, at each moment at which a signal handler may raise: no record is lost sight
of, and what is told of it afterwards is what happened to it.
"""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardway.core.hashkeys import HASH_KEY_MAX
from shardway.core.producer.mending import mend
from shardway.core.producer.request import Failure
from shardway.errors import PutError, RecordExpiredError, RecordRefusedError, RecordWithdrawnError
from tests.core.producer.producer_kit import THROTTLED, Kit, error_of, halves_of, keys_of, make_shard
from tests.interrupting import InterruptedAt, InterruptedByTestError
from tests.put_entries import Entry

if TYPE_CHECKING:
    from collections.abc import Callable

    from shardway.core.producer.batcher import Batcher

PARENT = make_shard(0, 0, HASH_KEY_MAX)
LEFT, RIGHT = halves_of(PARENT, 1)
(A, C), (B,) = keys_of(LEFT, 2), keys_of(RIGHT, 1)

FORMS: dict[str, dict[str, Any]] = {
    "plain": {},
    "aggregated": {"aggregate": True},
    "ordered": {"ordered_by_key": True, "request_records_max": 2},
}
LATER_S = 100.0


def expire(batcher: Batcher) -> None:
    batcher.expire(LATER_S)


def refuse(batcher: Batcher) -> None:
    batcher.give_up_waiting("ResourceNotFoundException", LATER_S)


def close(batcher: Batcher) -> None:
    batcher.close(LATER_S)


def interrupted_at_each_moment(
    make: Callable[[], Kit], step: Callable[[Batcher], None], check: Callable[[Kit, str], None]
) -> None:
    """``step(batcher)`` is broken off, mended, and done again."""
    at, reached = 0, "-"
    while reached:
        kit = make()
        interruption = InterruptedAt(at)
        with contextlib.suppress(InterruptedByTestError):
            interruption.run(partial(step, kit.batcher))
        reached = interruption.reached
        if reached:
            mend(kit.batcher, ())
            kit.batcher.recount()
            kit.batcher.set_shards([LEFT, RIGHT], LATER_S)
        step(kit.batcher)
        check(kit, reached)
        at += 1
    assert at > 10


def fates_of(kit: Kit) -> list[tuple[type[PutError], bool]]:
    errors = [error_of(chunk, index) for chunk in kit.chunks for index in range(chunk.records)]
    return [(type(error), error.may_be_written) for error in errors]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
@pytest.mark.parametrize(
    ("step", "kind"),
    [(expire, RecordExpiredError), (refuse, RecordRefusedError), (close, RecordWithdrawnError)],
    ids=["expire", "refuse", "close"],
)
@pytest.mark.parametrize("met", ["nothing", "refused", "lost"])
def test_what_was_never_sent_is_not_told_as_perhaps_written(
    form: dict[str, Any], step: Callable[[Batcher], None], kind: type[PutError], met: str
) -> None:
    """And what was sent, and may have been written, always is."""

    def make() -> Kit:
        kit = Kit([LEFT, RIGHT], linger_s=0.0, **form)
        kit.put((A, b"1"), (B, b"2"), (A, b"3"), (C, b"4"), record_ttl_s=1.0)
        kit.put((A, b"5"), (B, b"6"), record_ttl_s=0.5)
        if met != "nothing":
            request = kit.send()
            if met == "refused":
                kit.answer(request, errors=dict.fromkeys(range(len(request.entries)), THROTTLED))
            else:
                kit.batcher.handle_failure(request, Failure.UNKNOWN, "lost", 0.0)
        return kit

    whole = make()
    step(whole.batcher)

    def check(kit: Kit, reached: str) -> None:
        assert fates_of(kit) == fates_of(whole), reached
        assert {found for found, _ in fates_of(kit)} == {kind}, reached
        assert all(chunk.unsettled == 0 for chunk in kit.chunks), reached

    interrupted_at_each_moment(make, step, check)


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_a_record_of_which_no_entry_is_made_has_one_outcome(form: dict[str, Any]) -> None:
    """The others of its request are sent, however often the sending was broken off."""

    class Refusing(Kit):
        def __init__(self) -> None:
            super().__init__([LEFT, RIGHT], linger_s=0.0, **form)
            for lane in self.batcher.lanes:
                lane.make_entry = self.make_entry

        def make_entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Entry:
            if data in {b"2", b"3"}:
                raise ValueError("no such record")
            return Entry(data, partition_key, explicit_hash_key)

    def make() -> Kit:
        kit = Refusing()
        kit.put((A, b"1"), (A, b"2"), (C, b"3"), (C, b"4"))
        return kit

    def step(batcher: Batcher) -> None:
        for now_s in range(0, 1_000, 100):
            if (request := batcher.next_request(now_s)) is not None:
                batcher.handle_failure(request, Failure.DENIED, "told", now_s)

    def check(kit: Kit, reached: str) -> None:
        (chunk,) = kit.chunks
        told = [index for indices in chunk._fates[::2] for index in indices]
        assert sorted(told) == sorted(set(told)), reached
        assert chunk.unsettled == 0, reached

    interrupted_at_each_moment(make, step, check)
