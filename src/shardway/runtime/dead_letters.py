"""Dead letters are written to a destination, and read back from there.

A dead letter goes to a stream, a file, or a function. Its record counts as settled once the letter is written there.
`DeadLettersToStream` and `DeadLettersToFile` are choices among a consumer's options; each consumer opens what is
chosen for itself.

A replay reads dead letters back, and hands their records on once more: to a stream, or to a function. It reads the
record again from its stream, at its position. Only where the stream has it no more, the replay takes it from the
letter, if that holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import os
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from shardway.core.feeding.log_cursor import LogCursor, NextStep, Policy, Sign
from shardway.core.feeding.pages import ShardView, opened
from shardway.core.given import Options
from shardway.core.ledger.letter import Letter, NotALetterError
from shardway.core.pacing import full_jitter_s
from shardway.errors import (
    ExpiredIteratorError,
    FlushTimeoutError,
    InvalidArgumentError,
    InvalidRecordError,
    NotFoundError,
    RecordRefusedError,
    ShardwayError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.model import HASH_KEY_MAX, OutRecord
from shardway.tasks import is_cancelled, spawn
from shardway.wiring import ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
        Sequence,
    )

    from shardway.core.feeding.pages import RawRecord, ReadPage
    from shardway.core.ledger.book import DeadLetter
    from shardway.model import Record
    from shardway.ports import RecordSink, RecordSource
    from shardway.runtime.producer.producer import Producer


# --- where letters go -----------------------------------------------------------------------------


class LetterSink(Protocol):
    """Takes dead letters, several at the same time. It is used on one event loop."""

    async def start(self) -> None:
        """Find out whether it works at all. Raises an error that says that it does not."""

    async def write(self, letter: Letter) -> None:
        """Write a letter, and return once it is kept for good. Any error means that it is not kept, and is written
        again later.
        """

    async def close(self) -> None:
        """Close the sink: no more letters come."""


class DeadLettersToStream(Options, frozen=True, kw_only=True):
    """Each dead letter is a record of this stream: a line of JSON, as `Letter.to_json` makes it."""

    stream: str | RecordSink
    """The stream's name or ARN; or a RecordSink, which is closed with the consumer."""
    connection: ConnectionOptions | None = None
    """The way to reach a stream given by name; None: the consumer reaches it like its own."""
    with_data: bool = True
    """The letter holds the record's data and keys too. Without them a record can only be replayed as long as the stream
    that it came from keeps it. Data that is too large for a record of this stream is left out, which the letter says.
    """

    @classmethod
    def _kinds(cls) -> Mapping[str, tuple[type | str, ...]]:
        return {"connection": (ConnectionOptions,)}


class DeadLettersToFile(Options, frozen=True, kw_only=True):
    """Each dead letter is a line of JSON at the end of this file, which is synced to the disk."""

    path: Path | str
    """The path of the file. The file is made if it is not there, for its owner alone to read. Several consumers may
    write to one file of a local disk.
    """
    with_data: bool = True
    """See `DeadLettersToStream.with_data`: it means the same."""

    @classmethod
    def _kinds(cls) -> Mapping[str, tuple[type | str, ...]]:
        return {"path": (Path, str)}


@dataclass(frozen=True)
class DeadLettersTo:
    """A function is called with each dead letter."""

    write: Callable[[Letter], Awaitable[object] | object] = field(repr=False)
    """When it returns (or what it returns was awaited) the letter is kept; an exception means that it is called again
    later. A plain function is called on the event loop and must not block it.
    """


DeadLetterChoice: TypeAlias = DeadLettersToStream | DeadLettersToFile | DeadLettersTo


def open_letters(choice: DeadLetterChoice | None, connection: ConnectionOptions | None) -> LetterSink | None:
    """Return the sink that a consumer writes to. ``connection``: how it reaches its own stream. Raises OptionError."""
    match choice:
        case DeadLettersToStream():
            return StreamLetters(choice, connection)
        case DeadLettersToFile():
            return FileLetters(Path(choice.path), with_data=choice.with_data)
        case DeadLettersTo():
            return CallableLetters(choice.write)
    return None


class StreamLetters:
    """Writes letters to a stream, through a producer."""

    def __init__(self, choice: DeadLettersToStream, connection: ConnectionOptions | None) -> None:
        from shardway.runtime.producer.producer import Producer

        own = choice.connection or (connection if isinstance(choice.stream, str) else None)
        self._producer: Producer[Any] = Producer(choice.stream, connection=own)
        self._with_data = choice.with_data

    async def start(self) -> None:
        """List the stream's shards."""
        await self._producer.start()

    async def write(self, letter: Letter) -> None:
        """Put the letter, and wait until it is written."""
        if not self._with_data:
            letter = letter.without_data()
        try:
            await self._put(letter)
        except (InvalidRecordError, RecordRefusedError):
            if letter.data is None:
                raise
            # Base64 makes the data a third larger than the record was, which the stream may not take.
            await self._put(letter.without_data(left_out=True))

    async def close(self) -> None:
        """Close the producer at once: the caller has given up what is under way."""
        with contextlib.suppress(FlushTimeoutError):
            await self._producer.close(0)

    async def _put(self, letter: Letter) -> None:
        await self._producer.put(OutRecord(letter.to_json(), letter.partition_key or letter.shard_id))


class FileLetters:
    """Appends letters to a file. Those that come while it is synced go together with the next sync."""

    def __init__(self, path: Path, *, with_data: bool = True) -> None:
        self.path = path
        self._with_data = with_data
        self._descriptor: int | None = None
        self._waiting: list[tuple[bytes, asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the file. Raises OSError."""
        if self._descriptor is None:
            self._descriptor = await asyncio.to_thread(self._open)

    async def write(self, letter: Letter) -> None:
        """Append the letter, and sync. Raises OSError."""
        kept = letter if self._with_data else letter.without_data()
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        self._waiting.append((kept.to_json() + b"\n", done))
        if self._writing is None:
            self._writing = spawn(self._write_all(), self._broke)
        await done

    async def close(self) -> None:
        """Finish what is being written."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            await asyncio.to_thread(os.close, descriptor)

    async def _write_all(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            fault: BaseException | None = None
            try:
                await self.start()
                await asyncio.to_thread(self._append, b"".join(line for line, _ in batch))
            except asyncio.CancelledError:
                fault = OSError("the writing of dead letters was cancelled")
                _answer(batch, fault)
                self._broke(fault)
                raise
            except Exception as error:  # Whatever it is, the letters that wait are to know.
                fault = error
            _answer(batch, fault)
        self._writing = None

    def _broke(self, error: BaseException) -> None:
        self._writing = None
        waiting, self._waiting = self._waiting, []
        _answer(waiting, error)

    def _open(self) -> int:
        is_new = not self.path.exists()
        descriptor = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            if is_new:
                _sync_folder(self.path.parent)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _append(self, lines: bytes) -> None:
        descriptor = self._descriptor
        assert descriptor is not None
        size = os.fstat(descriptor).st_size
        # The process that wrote last may have died, or met the end of the disk, in the middle of a line.
        torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
        text = b"\n" + lines if torn else lines
        written = os.write(descriptor, text)
        if written < len(text):
            raise OSError(f"only {written} of {len(text)} bytes of dead letters could be written to {self.path}")
        os.fsync(descriptor)


def _answer(written: Iterable[tuple[bytes, asyncio.Future[None]]], fault: BaseException | None) -> None:
    for _, done in written:
        if not done.done():
            done.set_exception(fault) if fault is not None else done.set_result(None)


class CallableLetters:
    """Calls a function with each letter."""

    def __init__(self, function: Callable[[Letter], Awaitable[object] | object]) -> None:
        self._function = function

    async def start(self) -> None:
        """Do nothing: there is nothing to find out."""

    async def write(self, letter: Letter) -> None:
        """Call the function, and await what it returns if that can be."""
        result = self._function(letter)
        if hasattr(result, "__await__"):
            await result

    async def close(self) -> None:
        """Do nothing: the function is the user's."""


def _sync_folder(folder: Path) -> None:
    """Sync a folder: a new file is there after a crash only if its folder is synced."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- writing the dead letters of a shard ----------------------------------------------------------

TIMEOUT_S = 60.0
"""The seconds after which a dead letter that is not written is written again: a destination that hangs must not hold a
shard up unnoticed.
"""


class LetterWriter:
    """Writes the dead letters of one shard in one tenure."""

    def __init__(
        self, sink: LetterSink, *, stream: str, shard_id: str, worker: str, token: int, timeout_s: float = TIMEOUT_S
    ) -> None:
        self._sink = sink
        self._stream, self._shard_id, self._worker, self._token = stream, shard_id, worker, token
        self._timeout_s = timeout_s

    async def write(self, dead: DeadLetter[Any]) -> BaseException | None:
        """Write a letter. Returns why it is not known to be written, if it is not; raises only when the task is
        to end.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._sink.write(self._letter(dead))
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            return error  # What the sink waited for was cancelled.
        except Exception as error:  # The user's function, a full disk, a stream that is gone: it stays unsettled.
            return error
        return None

    def _letter(self, dead: DeadLetter[Any]) -> Letter:
        record = getattr(dead.record, "record", dead.record)  # It may be of a part, or of a value.
        return Letter(
            stream=self._stream,
            shard_id=self._shard_id,
            position=dead.position,
            part=dead.part,
            attempts=dead.attempts,
            error_type=dead.error_type,
            error_message=dead.error_message,
            written_at=dt.datetime.now(dt.UTC),
            worker=self._worker,
            token=self._token,
            arrived_at=record.approximate_arrival_timestamp,
            partition_key=record.partition_key,
            explicit_hash_key=record.explicit_hash_key,
            data=record.data,
        )


# --- reading them back ----------------------------------------------------------------------------

TRIES_MAX = 8
"""The most attempts of a call that is refused or fails: a shard that others read too refuses now and then."""
RECORDS_MAX = 1000
"""The most records that one call reads when dead letters are read back."""
LINE_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of a line that may be a letter: a record is up to 10 MiB, 14 as base64."""
SOURCES_MAX = 64
"""The most streams that are kept open at a time. A letter may name any."""
ORIGINAL = Policy(doubts_end=False)
"""The policy that seeks a single record. Where it does not come the replay ends: it asks for no other place."""


LETTERS = Policy(returns=True)
"""The policy that reads all records of a shard once, also where those that came last are trimmed meanwhile."""


class BadLetter(Exception):  # noqa: N818 - it is a value here
    """A line among the letters is no letter. The message says where it is, and does not show it."""


class Target(Protocol):
    """The target that gets the records of a replay: a stream, or a function."""

    async def give(self, record: Record, letter: Letter) -> None:
        """Give a record to the target, and return when it is done. After any error the letter counts as not
        replayed.
        """


@dataclass
class Replayed:
    """The result of a replay."""

    from_stream: int = 0
    """The number of letters whose record was read from its stream."""
    from_letter: int = 0
    """The number of letters that held their record, which the stream has no more."""
    again: int = 0
    """The number of letters of a record that was given already: two letters of one record, or of its parts."""
    gone: list[Letter] = field(default_factory=list)
    """Letters whose record is neither in the stream nor in the letter."""
    failed: list[tuple[Letter, Exception]] = field(default_factory=list)
    """Letters whose record the target refused by an error, or whose stream could not be read; with the error."""
    foreign: list[Letter] = field(default_factory=list)
    """Letters that name another stream than those that were to be read: nothing was read for them."""
    bad: list[str] = field(default_factory=list)
    """The places of what was no letter, with the reason."""

    @property
    def complete(self) -> bool:
        """True when every letter's record was given."""
        return not (self.gone or self.failed or self.foreign or self.bad)


def letters_of_file(path: Path) -> Iterator[Letter | BadLetter]:
    """Iterate over the letters of a file, line by line. Raises OSError."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LINE_BYTES_MAX):
            number += 1
            if line.endswith(b"\n") or len(line) < LINE_BYTES_MAX:
                if not line.isspace():
                    yield _letter(line, f"line {number}")
                continue
            while (rest := file.readline(LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                pass
            yield BadLetter(f"line {number}: it is longer than {LINE_BYTES_MAX} bytes")


async def letters_of_stream(source: RecordSource) -> AsyncIterator[Letter | BadLetter]:
    """Iterate over the letters that a stream holds, shard by shard, up to its tip of now. Raises what reading
    raises.
    """
    for shard in sorted(await source.shards(), key=lambda shard: shard.shard_id):
        view = ShardView(source.stream, shard.shard_id, 0, HASH_KEY_MAX)
        async with contextlib.aclosing(_pages(source, shard.shard_id)) as pages:
            async for records in pages:
                for record in opened(view, records).records:
                    yield _letter(record.data, f"{shard.shard_id}, {record.sequence_number}")


async def _pages(source: RecordSource, shard_id: str) -> AsyncGenerator[Sequence[RawRecord], None]:
    """Iterate over the records of a shard, from the oldest one to the newest. Giving them on may take longer than an
    iterator lasts: another one is asked for then.
    """
    log, iterator = LogCursor(LETTERS), ""
    while True:
        iterator = iterator or await _repeated(source.iterator, shard_id, log.ask())
        try:
            page: ReadPage = await _repeated(source.read, iterator, RECORDS_MAX)
        except ExpiredIteratorError:
            iterator = ""
            continue
        step = log.page(page.records, behind_ms=page.millis_behind_latest, is_last=page.is_last)
        iterator = "" if step.does is NextStep.ASK else page.next_iterator or ""
        if step.does is NextStep.ASK:
            continue
        yield log.unread(page.records, step)
        if not iterator or (log.is_met and page.millis_behind_latest == 0):
            return


def _letter(text: bytes, where: str) -> Letter | BadLetter:
    try:
        return Letter.from_json(text)
    except NotALetterError as fault:
        return BadLetter(f"{where}: {fault}")


async def original(source: RecordSource, letter: Letter) -> Record | None:
    """Read the record of a letter again from its stream; None when it is not there any more."""
    wanted = letter.position
    log = LogCursor(ORIGINAL, anchor=wanted.sequence_number)
    try:
        iterator: str = await _repeated(source.iterator, letter.shard_id, log.ask())
    except (NotFoundError, InvalidArgumentError):  # The shard is trimmed; some refuse such a number.
        return None
    while True:
        page: ReadPage = await _repeated(source.read, iterator, 1)
        step = log.page(page.records, behind_ms=page.millis_behind_latest, is_last=page.is_last)
        if step.sign is Sign.MET:
            found = opened(ShardView(source.stream, letter.shard_id, 0, HASH_KEY_MAX), page.records[:1]).records
            return next((one for one in found if (one.sequence_number, one.sub_sequence_number) == wanted), None)
        if page.records or page.next_iterator is None or step.does is not NextStep.READ or step.sign is Sign.TIP:
            return None  # Another record came in its place, or none will.
        iterator = page.next_iterator


async def _repeated(call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """Call a function, again while that may succeed, at most `TRIES_MAX` times."""
    rng = random.Random()
    for attempt in range(1, TRIES_MAX + 1):
        try:
            return await call(*arguments)
        except (ThrottledError, UnavailableError, TransportError):
            if attempt == TRIES_MAX:
                raise
            await asyncio.sleep(full_jitter_s(attempt, base_s=0.2, cap_s=5.0, rng=rng))
    raise AssertionError("not reached")


async def replay(
    letters: AsyncIterator[Letter | BadLetter],
    target: Target,
    *,
    of: Collection[str],
    open_source: Callable[[str], RecordSource],
    on_left: Callable[[Letter], None] = lambda _letter: None,
    once: bool = False,
) -> Replayed:
    """Give the record of each letter to ``target``, one after the other.

    ``of`` are the streams, as letters name them, whose records are given: a program that can write a letter would else
    choose which stream is read with the caller's credentials, and its records would come into the target.
    ``open_source`` reaches such a stream. ``on_left`` hears of each letter that was not replayed.
    ``once``: a record of several letters (those of its parts, say) is given once.
    """
    result = Replayed()
    sources: dict[str, RecordSource] = {}
    seen: set[tuple[str, str, int, int]] = set()
    try:
        async for letter in letters:
            if isinstance(letter, BadLetter):
                result.bad.append(str(letter))
                continue
            if letter.stream not in of:
                result.foreign.append(letter)
                on_left(letter)
                continue
            key = (letter.stream, letter.shard_id, *letter.position)
            if once and key in seen:
                result.again += 1
                continue
            try:
                source = await _source(sources, letter.stream, open_source)
            except ShardwayError as error:  # The letter names no stream: the others are to be replayed.
                result.failed.append((letter, error))
                on_left(letter)
                continue
            if await _one(letter, target, source, result):
                seen.add(key)
            else:
                on_left(letter)
    finally:
        for source in sources.values():
            await source.close()
    return result


async def _source(
    sources: dict[str, RecordSource], stream: str, open_source: Callable[[str], RecordSource]
) -> RecordSource:
    """Return the source of a stream; the source that was asked for longest ago makes room."""
    source = sources.pop(stream, None) or open_source(stream)
    sources[stream] = source
    if len(sources) > SOURCES_MAX:
        await sources.pop(next(iter(sources))).close()
    return source


async def _one(letter: Letter, target: Target, source: RecordSource, result: Replayed) -> bool:
    try:
        record = await original(source, letter)
    except Exception as error:  # A record may be odd, and it is to be known what was replayed.
        result.failed.append((letter, error))
        return False
    is_original = record is not None
    record = record or letter.record()
    if record is None:
        result.gone.append(letter)
        return False
    try:
        await target.give(record, letter)
    except Exception as error:  # The user's function raised, or one record is odd: others follow.
        result.failed.append((letter, error))
        return False
    if is_original:
        result.from_stream += 1
    else:
        result.from_letter += 1
    return True


class ToCallable:
    """Calls a function with the record and its letter; what it returns is awaited, if that can be."""

    def __init__(self, function: Callable[[Record, Letter], Awaitable[object] | object]) -> None:
        self._function = function

    async def give(self, record: Record, letter: Letter) -> None:
        """Call the function."""
        found = self._function(record, letter)
        if hasattr(found, "__await__"):
            await found


class ToStream:
    """Puts the record into a stream, under its own key."""

    def __init__(self, producer: Producer[Any]) -> None:
        self._producer = producer

    async def give(self, record: Record, letter: Letter) -> None:
        """Put the record, and wait until it is written. Raises PutError."""
        key = record.partition_key or letter.shard_id
        await self._producer.put(OutRecord(record.data, key, record.explicit_hash_key))
