"""Dead letters read back, and their records handed on once more: to a stream, or to a function.

The replay reads the record again from its stream, at its position. Only where the stream has it no more, the replay
takes it from the letter, if that holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from penstock.core.feeding.log_cursor import Does, LogCursor, Policy, Sign
from penstock.core.feeding.pages import ShardView, opened
from penstock.core.ledger.letter import Letter, NotALetterError
from penstock.core.pacing import full_jitter_s
from penstock.errors import (
    ExpiredIteratorError,
    InvalidArgumentError,
    NotFoundError,
    PenstockError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from penstock.model import HASH_KEY_MAX, OutRecord

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from pathlib import Path
    from typing import Any

    from penstock.core.feeding.pages import RawRecord, ReadPage
    from penstock.model import Record
    from penstock.ports import RecordSource
    from penstock.runtime.producer.producer import Producer

TRIES_MAX = 8
"""Of a call that is refused or fails: a shard that others read too refuses now and then."""
RECORDS_MAX = 1000
LINE_BYTES_MAX = 64 * 1024 * 1024
"""A longer line is no letter: a record is up to 10 MiB, 14 as base64."""
SOURCES_MAX = 64
"""Streams that are kept open at a time. A letter may name any."""
ORIGINAL = Policy(doubts_end=False)
"""A single record is sought. Where it does not come the replay ends: it asks for no other place."""


LETTERS = Policy(returns=True)
"""All records of a shard are read once, also where those that came last are trimmed meanwhile."""


class BadLetter(Exception):  # noqa: N818 - it is a value here
    """A line among the letters is no letter. The message says where it is, and does not show it."""


class Target(Protocol):
    """What gets the records of a replay: a stream, or a function."""

    async def give(self, record: Record, letter: Letter) -> None:
        """Returns when it is done. Whatever it raises, the letter counts as not replayed."""


@dataclass
class Replayed:
    """How a replay ended."""

    from_stream: int = 0
    """Letters whose record was read from its stream."""
    from_letter: int = 0
    """Letters whose record was in them, and in the stream no more."""
    again: int = 0
    """Letters of a record that was given already: two letters of one record, or of its parts."""
    gone: list[Letter] = field(default_factory=list)
    """Letters whose record is neither in the stream nor in the letter."""
    failed: list[tuple[Letter, Exception]] = field(default_factory=list)
    """Letters whose record the target refused by an error, or whose stream could not be read; with the error."""
    bad: list[str] = field(default_factory=list)
    """What was no letter, by where it was."""

    @property
    def complete(self) -> bool:
        """True when every letter's record was given."""
        return not (self.gone or self.failed or self.bad)


# --- letters ------------------------------------------------------------------------------------------------


def letters_of_file(path: Path) -> Iterator[Letter | BadLetter]:
    """The letters of a file, line by line. Raises OSError."""
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
    """The letters that a stream holds, shard by shard, up to what there is now. Raises what reading raises."""
    for shard in sorted(await source.shards(), key=lambda shard: shard.shard_id):
        view = ShardView(source.stream, shard.shard_id, 0, HASH_KEY_MAX)
        async with contextlib.aclosing(_pages(source, shard.shard_id)) as pages:
            async for records in pages:
                for record in opened(view, records).records:
                    yield _letter(record.data, f"{shard.shard_id}, {record.sequence_number}")


async def _pages(source: RecordSource, shard_id: str) -> AsyncGenerator[Sequence[RawRecord], None]:
    """The records of a shard, from the oldest one to the newest. Giving them on may take longer than an iterator lasts:
    another one is asked for then.
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
        iterator = "" if step.does is Does.ASK else page.next_iterator or ""
        if step.does is Does.ASK:
            continue
        yield log.unread(page.records, step)
        if not iterator or (log.is_met and page.millis_behind_latest == 0):
            return


def _letter(text: bytes, where: str) -> Letter | BadLetter:
    try:
        return Letter.from_json(text)
    except NotALetterError as fault:
        return BadLetter(f"{where}: {fault}")


# --- their records ------------------------------------------------------------------------------------------


async def original(source: RecordSource, letter: Letter) -> Record | None:
    """The record of a letter, read again from its stream; None when it is not there any more."""
    wanted = letter.position
    log = LogCursor(ORIGINAL, anchor=wanted.sequence_number)
    try:
        iterator: str = await _repeated(source.iterator, letter.shard_id, log.ask())
    except (NotFoundError, InvalidArgumentError):  # the shard is trimmed; some refuse a number that is
        return None
    while True:
        page: ReadPage = await _repeated(source.read, iterator, 1)
        step = log.page(page.records, behind_ms=page.millis_behind_latest, is_last=page.is_last)
        if step.sign is Sign.MET:
            found = opened(ShardView(source.stream, letter.shard_id, 0, HASH_KEY_MAX), page.records[:1]).records
            return next((one for one in found if (one.sequence_number, one.sub_sequence_number) == wanted), None)
        if page.records or page.next_iterator is None or step.does is not Does.READ or step.sign is Sign.TIP:
            return None  # another record came in its place, or none will
        iterator = page.next_iterator


async def _repeated(call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
    """A call, repeated while it may succeed."""
    rng = random.Random()
    for attempt in range(1, TRIES_MAX + 1):
        try:
            return await call(*arguments)
        except (ThrottledError, UnavailableError, TransportError):
            if attempt == TRIES_MAX:
                raise
            await asyncio.sleep(full_jitter_s(attempt, base_s=0.2, cap_s=5.0, rng=rng))
    raise AssertionError("not reached")


# --- replaying ----------------------------------------------------------------------------------------------


async def replay(
    letters: AsyncIterator[Letter | BadLetter],
    target: Target,
    *,
    open_source: Callable[[str], RecordSource],
    on_left: Callable[[Letter], None] = lambda _letter: None,
    once: bool = False,
) -> Replayed:
    """Give the record of each letter to ``target``, one after the other.

    ``open_source`` reaches the stream that a letter names. ``on_left`` hears of each letter that was not replayed.
    ``once``: a record of several letters (its parts', say) is given once.
    """
    result = Replayed()
    sources: dict[str, RecordSource] = {}
    seen: set[tuple[str, str, int, int]] = set()
    try:
        async for letter in letters:
            if isinstance(letter, BadLetter):
                result.bad.append(str(letter))
                continue
            key = (letter.stream, letter.shard_id, *letter.position)
            if once and key in seen:
                result.again += 1
                continue
            try:
                source = await _source(sources, letter.stream, open_source)
            except PenstockError as error:  # the letter names what is no stream: the others are to be replayed
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
    """The source of a stream; the one that was asked for longest ago makes room."""
    source = sources.pop(stream, None) or open_source(stream)
    sources[stream] = source
    if len(sources) > SOURCES_MAX:
        await sources.pop(next(iter(sources))).close()
    return source


async def _one(letter: Letter, target: Target, source: RecordSource, result: Replayed) -> bool:
    try:
        record = await original(source, letter)
    except Exception as error:  # one may be odd, and it is to be known what was replayed
        result.failed.append((letter, error))
        return False
    is_original = record is not None
    record = record or letter.record()
    if record is None:
        result.gone.append(letter)
        return False
    try:
        await target.give(record, letter)
    except Exception as error:  # of a function of the user's, or of one record: the others are to be replayed
        result.failed.append((letter, error))
        return False
    if is_original:
        result.from_stream += 1
    else:
        result.from_letter += 1
    return True


class ToCallable:
    """A function of the record and its letter; what it returns is awaited, if that can be."""

    def __init__(self, function: Callable[[Record, Letter], Awaitable[object] | object]) -> None:
        self._function = function

    async def give(self, record: Record, letter: Letter) -> None:
        """Call it."""
        found = self._function(record, letter)
        if hasattr(found, "__await__"):
            await found


class ToStream:
    """Puts the record into a stream, under its own key."""

    def __init__(self, producer: Producer[Any]) -> None:
        self._producer = producer

    async def give(self, record: Record, letter: Letter) -> None:
        """Put it, and wait until it is written. Raises PutError."""
        key = record.partition_key or letter.shard_id
        await self._producer.put(OutRecord(record.data, key, record.explicit_hash_key))
