"""The memory of a consumer's fetched records is bounded for all its shards together, and no shard is starved."""

from __future__ import annotations

from functools import partial

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from shardway.core.log.buffer import FIRST_RECORD_BYTES, Buffer, Share
from shardway.core.log.pace import RECORDS_MAX

KIB = 1024
MIB = 1024 * KIB


def shares(buffer: Buffer, count: int) -> tuple[list[Share], list[int]]:
    """So many shares, and the numbers of those that were woken, in order."""
    woken: list[int] = []
    return [buffer.share(partial(woken.append, number)) for number in range(count)], woken


def fetch(share: Share, record_bytes: int, *, behind: bool = True) -> int:
    """A page as large as it may be; how many records it has."""
    records = share.ask(behind=behind) or 0
    if records:
        share.came(records, records * record_bytes)
        share.change(records * record_bytes)
    return records


def learned(share: Share, record_bytes: int) -> None:
    """It knows how large its records are, and holds none."""
    share.ask(behind=False)
    share.came(1, record_bytes)


def test_the_first_page_is_small_and_the_next_one_is_as_large_as_there_is_room() -> None:
    (one,), _ = shares(Buffer(16 * MIB), 1)
    assert one.ask(behind=False) == 8 * MIB // FIRST_RECORD_BYTES
    one.came(10, 10 * KIB)
    assert one.ask(behind=False) == 8 * MIB // KIB
    one.came(0, 0)
    assert one.ask(behind=True) == RECORDS_MAX


def test_a_hundred_shards_that_are_behind_hold_the_bound_together() -> None:
    buffer = Buffer(64 * MIB)
    many, _ = shares(buffer, 100)
    for share in many:
        learned(share, KIB)
    for _ in range(50):
        for share in many:
            fetch(share, KIB)
    assert 48 * MIB < buffer.bytes_held <= 64 * MIB
    assert all(share.held for share in many)


def test_a_shard_whose_handler_hangs_keeps_no_other_one_waiting() -> None:
    buffer = Buffer(8 * MIB)
    (hangs, lives), _ = shares(buffer, 2)
    learned(hangs, KIB)
    learned(lives, KIB)
    while fetch(hangs, KIB):
        pass
    assert hangs.held == 6 * MIB, "its own part and the whole common half"
    for _ in range(3):
        assert fetch(lives, KIB) == 2 * KIB
        lives.change(-lives.held)


def test_at_the_tip_no_room_is_taken_from_shards_that_are_behind() -> None:
    buffer = Buffer(100 * MIB)
    many, _ = shares(buffer, 10)
    for share in many:
        learned(share, 10 * KIB)
        assert share.ask(behind=False) == 5 * MIB // (10 * KIB)
    assert buffer.common_left == 50 * MIB


def test_a_record_that_is_larger_than_any_room_comes_alone() -> None:
    (one,), _ = shares(Buffer(4 * KIB), 1)
    learned(one, MIB)
    assert fetch(one, MIB) == 1
    assert one.ask(behind=True) is None
    one.change(-MIB)
    assert one.ask(behind=True) == 1


def test_the_share_that_waited_first_is_woken_first_when_there_is_room_and_wakes_the_next() -> None:
    buffer = Buffer(8 * MIB)
    (hog, first, second), woken = shares(buffer, 3)
    for share in (hog, first, second):
        learned(share, 100)
    for share in (hog, first, second):
        while fetch(share, 100):
            pass
    assert (hog.waits, first.waits, second.waits, woken) == (True, True, True, [])
    hog.change(-hog.held)
    assert woken == [0]
    assert hog.ask(behind=False) == RECORDS_MAX, "its own part is enough for that"
    assert woken == [0, 1]
    assert first.ask(behind=True) == RECORDS_MAX
    assert woken == [0, 1, 2], "there is more than a page of 1 MB left"


def test_one_shards_own_bound_counts_too() -> None:
    (one,), _ = shares(Buffer(64 * MIB, shard_bytes_max=MIB), 1)
    learned(one, KIB)
    assert fetch(one, KIB) == KIB
    assert one.ask(behind=True) is None
    one.change(-MIB // 2)
    assert one.ask(behind=True) == 512


def test_what_a_shard_had_is_free_when_it_leaves() -> None:
    buffer = Buffer(8 * MIB)
    (one, other), woken = shares(buffer, 2)
    learned(one, KIB)
    learned(other, KIB)
    while fetch(one, KIB):
        pass
    while fetch(other, KIB):
        pass
    one.leave()
    assert (buffer.bytes_held, sorted(woken)) == (other.held, [0, 1])
    one.change(-one.held)
    assert one.ask(behind=True) == RECORDS_MAX, "nothing bounds what is not counted any more"
    assert other.ask(behind=True) is not None


def test_larger_records_are_learned_at_once_and_smaller_ones_slowly() -> None:
    (one,), _ = shares(Buffer(8 * MIB), 1)
    for size, wanted in ((KIB, KIB), (64 * KIB, 64 * KIB), (KIB, int(64 * KIB * 0.7))):
        learned(one, size)
        records = one.ask(behind=False)
        one.came(0, 0)
        assert records == 4 * MIB // wanted


class Buffers(RuleBasedStateMachine):
    """Shards that fetch and settle in any order."""

    bytes_max = 8 * MIB

    @initialize(count=st.integers(1, 8))
    def begin(self, count: int) -> None:
        self.buffer = Buffer(self.bytes_max)
        self.mine = [self.buffer.share(lambda: None) for _ in range(count)]

    def one(self, number: int) -> Share:
        return self.mine[number % len(self.mine)]

    @rule(number=st.integers(0, 7), behind=st.booleans(), part=st.floats(0, 1), each=st.integers(300, 64 * KIB))
    def page(self, number: int, behind: bool, part: float, each: int) -> None:
        share = self.one(number)
        records = share.ask(behind=behind)
        if records is None:
            assert share.held
            assert share.waits
            return
        assert 1 <= records <= RECORDS_MAX
        got = int(records * part)
        # A page whose records are larger than those before it may pass the bound by that; here none is.
        taken = min(got * each, share.reserved)
        share.came(got, taken)
        share.change(taken)

    @rule(number=st.integers(0, 7), behind=st.booleans())
    def asks(self, number: int, behind: bool) -> None:
        self.one(number).ask(behind=behind)

    @rule(number=st.integers(0, 7), part=st.floats(0, 1))
    def settle(self, number: int, part: float) -> None:
        share = self.one(number)
        share.change(-int(share.held * part))

    @rule(number=st.integers(0, 7))
    def leave(self, number: int) -> None:
        if len(self.mine) > 1:
            self.mine.pop(number % len(self.mine)).leave()

    @invariant()
    def the_bound_holds(self) -> None:
        alone = len(self.mine) * FIRST_RECORD_BYTES  # a shard that holds nothing may have one record all the same
        assert self.buffer.bytes_held <= self.bytes_max + alone
        assert self.buffer.bytes_held == sum(share.held + share.reserved for share in self.mine)

    @invariant()
    def what_is_left_adds_up(self) -> None:
        part = self.buffer.part_bytes
        beyond = sum(max(0, share.held + share.reserved - part) for share in self.mine)
        assert self.buffer.common_left == max(0, self.bytes_max // 2 - beyond)


TestBuffers = Buffers.TestCase
TestBuffers.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
