"""Signal handlers that raise in the middle of a producer: each record that was taken has its outcome, `flush` and
`close` end, and the bound does not leak.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math
import random
import signal
import time
import warnings
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from shardway.errors import BufferFullError
from shardway.model import OutRecord, PutResult
from shardway.options import ProducerOptions
from shardway.runtime.producer.handles import PutHandle
from shardway.runtime.producer.producer import Producer
from shardway.runtime.producer.sync_producer import SyncProducer
from tests.interrupting import ROOT, TASKS, THREADS, InterruptedAt, InterruptedByTestError, MemorySink

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator
    from types import FrameType

    from shardway.core.producer.chunk import Chunk


def _run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(main())


pytestmark = pytest.mark.timeout(300, method="thread")  # the other way takes SIGALRM, which these tests take for them
WAIT_S = 20.0
OPTIONS: dict[str, Any] = {"linger_s": 0.0, "retry_base_s": 0.001, "retry_cap_s": 0.002, "record_ttl_s": 10.0}


@pytest.fixture(autouse=True)
def nothing_is_left_to_the_next_test() -> Iterator[None]:
    """A coroutine that an interruption kept from becoming a task is told of when it is collected: here, not later."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gc.collect()


class Watched:
    """A producer, and every chunk that it took: what a caller was not told of counts as well."""

    def __init__(self, producer: Producer[OutRecord] | SyncProducer[OutRecord]) -> None:
        self.session = producer._session
        self.chunks: dict[int, Chunk] = {}
        take_in = self.session.driver.take_in

        def noting(records_max: float = math.inf) -> bool:
            self.note()
            has_more = take_in(records_max)
            self.note()
            return has_more

        self.session.driver.take_in = noting  # type: ignore[method-assign]

    def note(self) -> None:
        for chunk in [*list(self.session.intake.queue), *list(self.session.batcher.settling.live.values())]:
            self.chunks[id(chunk)] = chunk

    def check(self, sink: MemorySink, where: str) -> None:
        room = self.session.intake.room
        assert (room.free, room.claimed, len(room.waiting)) == (room.bytes_max, 0, 0), where
        assert not self.session.intake.queue, where
        assert not self.session.intake.open.pairs, where
        assert not self.session.batcher.settling.live, where
        for chunk in self.chunks.values():
            outcomes = chunk.outcomes
            assert len(outcomes) == chunk.records, where
            assert None not in outcomes, where
            assert chunk.unsettled == 0, where
            assert chunk.bytes_left == 0, where


def record(number: int) -> OutRecord:
    return OutRecord(b"%d" % number, f"key-{number % 5}", number if number % 7 == 3 else None)


def outcomes_of(handles: list[Any], sink: MemorySink, where: str) -> None:
    """All are told, and what is told as written is."""
    for number, handle in handles:
        assert handle.done(), where
        outcome = handle._chunk.outcomes[handle._index]
        written = sink.written[b"%d" % number]
        assert written if isinstance(outcome, PutResult) else outcome.may_be_written or not written, where


class Threads:
    """One scene of a `SyncProducer`, whose caller is interrupted once."""

    def __init__(self, *, small: bool, **options: Any) -> None:
        self.sink = MemorySink()
        if small:
            options |= {"record_bytes_max": 1_024, "buffer_bytes_max": 4_096}
        self.producer = SyncProducer[OutRecord](self.sink, options=ProducerOptions(**OPTIONS, **options))
        self.watched = Watched(self.producer)
        self.handles: list[Any] = []

    def work(self) -> None:
        producer = self.producer
        for number in range(6):
            with contextlib.suppress(BufferFullError):
                self.handles.append((number, producer.put_nowait(record(number))))
        with contextlib.suppress(BufferFullError):
            self.handles.append((10, producer.put_nowait(record(10), record_ttl_s=9)))
        puts = producer.put_many([(f"key-{number}", b"%d" % number) for number in range(20, 24)])
        producer.put_many([record(number) for number in range(24, 30)], record_ttl_s=9)
        producer.put(record(31), record_ttl_s=9)
        producer.put(record(32))
        handle = producer.put_nowait(record(33))
        self.handles.append((33, handle))
        handle.withdraw()
        producer.put_many([record(number) for number in range(34, 40)]).withdraw()
        puts.wait(WAIT_S)
        producer.flush(WAIT_S)
        producer.metrics()
        producer.close(WAIT_S)

    def end(self, where: str) -> None:
        self.producer.close(WAIT_S)
        self.watched.check(self.sink, where)
        outcomes_of(self.handles, self.sink, where)


QUIET = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::RuntimeWarning")
"""A coroutine that was made, and not begun before the signal came, warns."""
FORMS = pytest.mark.parametrize("step", [11, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])


@QUIET
@FORMS
@pytest.mark.parametrize("small", [False, True], ids=["room", "full"])
def test_a_thread_that_is_interrupted_at_any_moment(step: int, small: bool) -> None:
    """Moments of the caller's own thread at which Python may run a signal handler."""
    at = 0
    while True:
        scene = Threads(small=small)
        interruption = InterruptedAt(at)
        where = "not interrupted"
        try:
            interruption.run(scene.work)
        except InterruptedByTestError as error:
            where = f"interrupted at {at}, {error}"
        scene.end(where)
        if not interruption.reached:
            break
        at += step
    assert at > 300


@QUIET
def test_a_thread_that_is_interrupted_in_what_it_waits_with() -> None:
    """Python's own conditions leave their lock taken when a signal handler raises just then, and what tells the outcome
    would wait for that lock for ever.
    """
    at, reached = 0, "-"
    while reached:
        scene = Threads(small=True)
        interruption = InterruptedAt(
            at,
            within=(*THREADS, *TASKS, f"{ROOT}/runtime/threads/"),
        )
        with contextlib.suppress(InterruptedByTestError):
            interruption.run(scene.work)
        reached = interruption.reached
        scene.end(f"interrupted at {at}, {reached}")
        at += 3
    assert at > 30


class Loop:
    """One scene of a `Producer`, on whose loop a signal handler raises once."""

    def __init__(self, **options: Any) -> None:
        self.sink = MemorySink()
        self.options = ProducerOptions(**OPTIONS, **options)
        self.handles: list[Any] = []

    async def main(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
        self.producer = producer = Producer[OutRecord](self.sink, options=self.options, rng=random.Random(1))
        self.watched = Watched(producer)
        try:
            self.handles += [(number, producer.put_nowait(record(number))) for number in range(40, 43)]
            await producer.start()
            for number in range(8):
                self.handles.append((number, producer.put_nowait(record(number))))
            self.handles.append((10, producer.put_nowait(record(10), record_ttl_s=9)))
            await asyncio.sleep(0)
            puts = await producer.put_many([(f"key-{number}", b"%d" % number) for number in range(20, 24)])
            self.handles.append((31, handle := producer.put_nowait(record(31))))
            handle.withdraw()
            await producer.put(record(32))
            await puts.settled()
            await producer.flush()
        finally:
            try:
                await producer.close()
            except (InterruptedByTestError, KeyboardInterrupt):
                await producer.close()
                raise

    def run(self) -> None:
        asyncio.run(self.main())


@QUIET
@pytest.mark.parametrize("kind", [InterruptedByTestError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "options", [{}, {"aggregation": True}, {"ordered_by_key": True}], ids=["plain", "aggregated", "ordered"]
)
@pytest.mark.parametrize("step", [61, pytest.param(3, marks=pytest.mark.slow)], ids=["some", "many"])
def test_a_loop_that_is_interrupted_at_any_moment(
    step: int, options: dict[str, Any], kind: type[BaseException]
) -> None:
    """Moments of the loop's callbacks and tasks: an exception ends one of them, a KeyboardInterrupt the loop."""
    at = 0
    while True:
        scene = Loop(**options)
        interruption = InterruptedAt(at, kind)
        with contextlib.suppress(InterruptedByTestError, KeyboardInterrupt):
            interruption.run(scene.run)
        where = f"{kind.__name__} at {at}, {interruption.reached}"
        if hasattr(scene, "watched"):
            scene.watched.check(scene.sink, where)
            outcomes_of(scene.handles, scene.sink, where)
        if not interruption.reached:
            break
        at += step
    assert at > 1_000


@QUIET
@pytest.mark.parametrize("options", [{}, {"ordered_by_key": True}], ids=["plain", "ordered"])
async def test_a_withdrawal_that_is_interrupted_at_any_moment(options: dict[str, Any]) -> None:
    """The record is taken back or sent: one that is known as withdrawn, and has no outcome, would stay for ever."""
    at, reached = 0, "-"
    while reached:
        sink = MemorySink()
        producer = Producer[OutRecord](sink, options=ProducerOptions(**OPTIONS, **options))
        watched = Watched(producer)
        await producer.start()
        handle = producer.put_nowait(record(1))
        watched.note()
        interruption = InterruptedAt(at)
        with contextlib.suppress(InterruptedByTestError):
            interruption.run(handle.withdraw)
        reached = interruption.reached
        await producer.close(WAIT_S)
        watched.check(sink, reached)
        outcomes_of([(1, handle)], sink, reached)
        at += 1
    assert at > 30


@QUIET
@pytest.mark.parametrize("options", [{}, {"ordered_by_key": True}], ids=["plain", "ordered"])
async def test_a_withdrawal_of_many_that_is_interrupted_at_any_moment(options: dict[str, Any]) -> None:
    """Some of them were sent, some wait behind those of the same key, and some are taken back already."""
    at, reached = 0, "-"
    while reached:
        sink = MemorySink()
        producer = Producer[OutRecord](
            sink, options=ProducerOptions(**OPTIONS, request_records_max=2, requests_in_flight_max=1, **options)
        )
        watched = Watched(producer)
        await producer.start()
        puts = [await producer.put_many([record(number) for number in range(first, first + 6)]) for first in (0, 6)]
        handles = [(number, PutHandle(puts[number // 6]._chunks[0], number % 6)) for number in range(12)]
        watched.note()
        await asyncio.sleep(0)
        handles[5][1].withdraw()
        interruption = InterruptedAt(at)
        with contextlib.suppress(InterruptedByTestError):
            interruption.run(puts[0].withdraw)
        reached = interruption.reached
        await producer.close(WAIT_S)
        watched.check(sink, reached)
        outcomes_of(handles, sink, reached)
        at += 1
    assert at > 100


@QUIET
@pytest.mark.parametrize("step", [13, pytest.param(1, marks=pytest.mark.slow)], ids=["some", "all"])
def test_a_first_listing_that_is_interrupted_at_any_moment(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of the records: all that were taken are written."""
    monkeypatch.setattr("shardway.runtime.producer.listing.REFRESH_MIN_S", 0.001)
    at, reached = 0, "-"
    while reached:
        sink, handles = MemorySink(), list[Any]()

        async def main(sink: MemorySink = sink, handles: list[Any] = handles) -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: None)
            producer = Producer[OutRecord](sink, options=ProducerOptions(**OPTIONS))
            for number in range(4):
                with contextlib.suppress(InterruptedByTestError):
                    handles.append((number, producer.put_nowait(record(number))))
            with contextlib.suppress(InterruptedByTestError):
                await producer.flush()
            await producer.close()

        interruption = InterruptedAt(at)
        with contextlib.suppress(InterruptedByTestError):
            interruption.run(partial(_run, main))
        reached = interruption.reached
        if "close" not in reached and "_end" not in reached and "_leave" not in reached:
            for number, handle in handles:
                assert handle.done(), reached
                assert isinstance(handle._chunk.outcomes[handle._index], PutResult), reached
                assert sink.written[b"%d" % number], reached
        at += step
    assert at > 300


class OnceInterrupted(MemorySink):
    """A signal comes while the first entry is made."""

    raised = False

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Any:
        if not self.raised:
            self.raised = True
            raise InterruptedByTestError("entry")
        return super().entry(data, partition_key, explicit_hash_key)


@pytest.mark.parametrize(
    "options", [{}, {"aggregation": True}, {"ordered_by_key": True}], ids=["plain", "aggregated", "ordered"]
)
async def test_a_signal_while_an_entry_is_made(options: dict[str, Any]) -> None:
    """It is no fault of the records: all are written. The loop tells of the error."""
    told: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    sink = OnceInterrupted()
    async with Producer[OutRecord](sink, options=ProducerOptions(**OPTIONS, **options)) as producer:
        puts = await producer.put_many([record(number) for number in range(20)])
        (await puts.settled()).raise_failure()
    assert [sink.written[b"%d" % number] for number in range(20)] == [1] * 20
    assert [type(error) for error in told] == [InterruptedByTestError]


class Alarm:
    """A real signal after a random while, whose handler raises once; on a loop only out of the package's own code, as
    an exception out of the loop's makes Python forget a callback.
    """

    def __init__(self, *, own_code: bool, within_s: float) -> None:
        self._own_code = own_code
        self._within_s = within_s
        self._armed = False
        self._round_raised = 0
        self.raised = 0

    def __enter__(self) -> Alarm:
        self._before = signal.signal(signal.SIGALRM, self._raise)
        return self

    def __exit__(self, *_: object) -> None:
        self.disarm()
        signal.signal(signal.SIGALRM, self._before)

    def arm(self, rng: random.Random) -> None:
        """For one more scene. How long scenes last changes with the machine's load: signals that come too late are
        followed by earlier ones, so that two of three come while a scene lasts.
        """
        self._within_s *= 1.02 if self.raised > self._round_raised else 0.96
        self._round_raised = self.raised
        self._armed = True
        signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.00002, max(0.0001, self._within_s)), 0.0002)

    def disarm(self) -> None:
        self._armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        if not self._armed or frame is None or frame.f_code.co_filename == __file__:
            return  # not in what arms and disarms, or the test would fail by itself
        if not self._own_code or frame.f_code.co_filename.startswith(ROOT):
            self.disarm()
            self.raised += 1
            raise InterruptedByTestError(f"{frame.f_code.co_qualname}:{frame.f_lineno}")


def lasting_s(scene: Callable[[], None]) -> float:
    """How long a scene lasts on this machine now: signals come while one does, or shortly after it."""
    lasted = []
    for _ in range(5):
        began_s = time.perf_counter()
        scene()
        lasted.append(time.perf_counter() - began_s)
    return sorted(lasted)[2]


ROUNDS = pytest.mark.parametrize("rounds", [40, pytest.param(4_000, marks=pytest.mark.slow)], ids=["short", "long"])


@QUIET
@ROUNDS
def test_random_signals_to_a_thread(rounds: int) -> None:
    """Every round prints its seed; moments differ from run to run, as the machine's times do."""
    within_s = 1.5 * lasting_s(lambda: Threads(small=True).work())
    with Alarm(own_code=False, within_s=within_s) as alarm:
        for seed in range(rounds):
            rng = random.Random(seed)
            scene = Threads(small=rng.random() < 0.5, aggregation=rng.random() < 0.5)
            where = f"seed {seed}"
            alarm.arm(rng)
            try:
                scene.work()
            except InterruptedByTestError as error:
                where += f", in {error}"
            except RuntimeError as error:  # Python's own Condition, broken off with its lock released
                if not isinstance(error.__context__, InterruptedByTestError):
                    raise
                where += f", in {error.__context__}"
            finally:
                alarm.disarm()
            print(where)
            scene.end(where)
    assert alarm.raised > rounds // 10


@QUIET
@ROUNDS
def test_random_signals_to_a_loop(rounds: int) -> None:
    within_s = 1.5 * lasting_s(lambda: Loop(aggregation=True).run())
    with Alarm(own_code=True, within_s=within_s) as alarm:
        for seed in range(rounds):
            rng = random.Random(seed)
            scene = Loop(aggregation=rng.random() < 0.5, ordered_by_key=rng.random() < 0.3)
            alarm.arm(rng)
            with contextlib.suppress(InterruptedByTestError):
                scene.run()
            alarm.disarm()
            where = f"seed {seed}"
            print(where)
            if hasattr(scene, "watched"):
                scene.watched.check(scene.sink, where)
                outcomes_of(scene.handles, scene.sink, where)
    assert alarm.raised > rounds // 10


@pytest.mark.parametrize("aggregation", [False, True])
async def test_a_program_that_cancels_all_tasks(aggregation: bool) -> None:
    """As many programs do to end, and `asyncio.run` when SIGTERM raises SystemExit: a close that follows still ends."""
    sink = MemorySink()
    options = ProducerOptions(**OPTIONS, aggregation=aggregation)
    producer = Producer[OutRecord](sink, options=options)
    await producer.start()
    puts = await producer.put_many([(f"key-{number}", b"%d" % number) for number in range(2_000)])
    await asyncio.sleep(0)
    assert producer._session.driver.tasks
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await producer.close()
    puts.raise_failure()
    assert all(sink.written[b"%d" % number] for number in range(2_000))
    assert producer.metrics().buffer_bytes == 0
