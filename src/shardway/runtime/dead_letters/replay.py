"""A replay gives the records of dead letters on once more: to a stream, or to a function.

It reads each record again from its stream, at its position. Only where the stream has it no more, the replay takes it
from the letter, if that holds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from shardway.errors import ShardwayError
from shardway.model import OutRecord
from shardway.runtime.dead_letters.reading import BadLetter, original

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection

    from shardway.core.ledger.letter import Letter
    from shardway.model import Record
    from shardway.ports import RecordSource
    from shardway.runtime.producer.producer import Producer


SOURCES_MAX = 64
"""The most streams that are kept open at a time. A letter may name any."""


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
