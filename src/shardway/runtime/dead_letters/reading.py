"""Reads dead letters back from a file or a stream, and reads the record of each again from its own stream."""

from __future__ import annotations

import asyncio
import contextlib
import random
from typing import TYPE_CHECKING, Any

from shardway.core.ledger.letter import Letter, NotALetterError
from shardway.core.log.cursor import LogCursor, Policy
from shardway.core.log.transitions import NextStep, Sign
from shardway.core.log.user_records import ShardView
from shardway.core.pacing import full_jitter_s
from shardway.errors import (
    ExpiredIteratorError,
    InvalidArgumentError,
    NotFoundError,
    ThrottledError,
    TransportError,
    UnavailableError,
)
from shardway.model import HASH_KEY_MAX
from shardway.runtime.feeds.opening import user_records
from shardway.waiting import next_part

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from pathlib import Path

    from shardway.core.log.pages import RawRecord, ReadPage
    from shardway.model import Record
    from shardway.ports import RecordSource


TRIES_MAX = 8
"""The most attempts of a call that is refused or fails: a shard that others read too refuses now and then."""
RECORDS_MAX = 1000
"""The most records that one call reads when dead letters are read back."""
LINE_BYTES_MAX = 64 * 1024 * 1024
"""The most bytes of a line that may be a letter: a record is up to 10 MiB, 14 as base64."""

ORIGINAL = Policy(doubts_end=False)
"""The policy that seeks a single record. Where it does not come the replay ends: it asks for no other place."""

LETTERS = Policy(returns=True)
"""The policy that reads all records of a shard once, also where those that came last are trimmed meanwhile."""


class BadLetter(Exception):  # noqa: N818 - it is a value here
    """A line among the letters is no letter. The message says where it is, and does not show it."""


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
    raises. Any program may put records there: they are opened and read in threads.
    """
    for shard in sorted(await source.shards(), key=lambda shard: shard.shard_id):
        view = ShardView(source.stream, shard.shard_id, 0, HASH_KEY_MAX)
        async with contextlib.aclosing(_pages(source, shard.shard_id)) as pages:
            async for records in pages:
                left = iter(await user_records(view, records))
                while part := await asyncio.to_thread(next_part, left, _letter_of):
                    for letter in part:
                        yield letter


def _letter_of(record: Record) -> Letter | BadLetter:
    return _letter(record.data, f"{record.shard_id}, {record.sequence_number}")


async def _pages(source: RecordSource, shard_id: str) -> AsyncGenerator[Sequence[RawRecord], None]:
    """Iterate over the records of a shard, from the oldest one to the newest. Giving them on may take longer than an
    iterator lasts: another one is asked for then.
    """
    log, iterator = LogCursor(LETTERS), ""
    while True:
        iterator = iterator or await _repeat(source.iterator, shard_id, log.ask())
        try:
            page: ReadPage = await _repeat(source.read, iterator, RECORDS_MAX)
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
        iterator: str = await _repeat(source.iterator, letter.shard_id, log.ask())
    except (NotFoundError, InvalidArgumentError):  # The shard is trimmed; some refuse such a number.
        return None
    while True:
        page: ReadPage = await _repeat(source.read, iterator, 1)
        step = log.page(page.records, behind_ms=page.millis_behind_latest, is_last=page.is_last)
        if step.sign is Sign.MET:
            view = ShardView(source.stream, letter.shard_id, 0, HASH_KEY_MAX)
            return (await user_records(view, page.records[:1])).at(wanted)
        if page.records or page.next_iterator is None or step.does is not NextStep.READ or step.sign is Sign.TIP:
            return None  # Another record came in its place, or none will.
        iterator = page.next_iterator


async def _repeat(call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
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
