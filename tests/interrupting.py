"""Raises in the middle of the package's own code, where a signal handler could; and a stream in memory to put to."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import dis
import gc
import queue
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import shardway
from shardway.core.aggregation.reader import open_aggregate
from shardway.core.hashkeys import HASH_KEY_MAX, even_ranges
from shardway.core.sequence import shard_id_of
from shardway.model import ListedShard
from tests.put_entries import Answer, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import CodeType, FrameType

ROOT = str(Path(shardway.__file__).parent)
THREADS = (threading.__file__, concurrent.futures._base.__file__, queue.__file__)
"""Python's own events, conditions, futures and queues."""
TASKS = tuple(f"{ROOT}/{name}.py" for name in ("tasks", "reply", "waiting"))
"""How a thread starts work on a loop, gets its outcome and waits for it."""
ENTRY = -1
"""Stands for the instruction before the first one of a frame that was entered, or resumed."""


_MOMENTS: dict[CodeType, dict[int, set[int]]] = {}


class InterruptedByTestError(Exception):
    """As Celery's SoftTimeLimitExceeded: an exception of a signal handler that code may well catch."""


class InterruptedAt:
    """Runs a function, and raises at the ``at``-th moment (from 0) at which a signal handler could, once."""

    def __init__(
        self, at: int, kind: type[BaseException] = InterruptedByTestError, *, within: tuple[str, ...] = (ROOT,)
    ) -> None:
        self.at = at
        self.within = within
        """How the names of the files begin whose code is interrupted."""
        self.kind = kind
        self.moments = 0
        self.reached = ""
        """Where it has raised, or called."""
        self.calls: Callable[[], object] | None = None
        """What is called then, as a signal handler would be that does not raise."""

    def run(self, work: Callable[[], Any]) -> Any:
        with self.listening():
            return work()

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Functions that are called meanwhile are interrupted.

        Nothing is collected meanwhile: Python 3.11 may do so just when it calls a trace function. Where a finalizer is
        interrupted there, that function is freed and called all the same, and the interpreter crashes, then or later.
        """
        before, collects = sys.gettrace(), gc.isenabled()
        gc.disable()
        sys.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(before)
            if collects:
                gc.enable()

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self.within):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        moments, last = _moments_of(frame.f_code), ENTRY

        def look(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal last
            if event == "opcode":
                before, last = last, frame.f_lasti
                if not self.reached and before in moments.get(last, ()):
                    self._moment(frame)
            return look

        return look

    def _moment(self, frame: FrameType) -> None:
        self.moments += 1
        if self.moments > self.at:
            self.reached = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
            if self.calls is None:
                raise self.kind(self.reached)
            self.calls()


def _moments_of(code: CodeType) -> dict[int, set[int]]:
    """Instructions before which the interpreter looks for signals, and those that it comes from when it does: behind a
    call and at the beginning of a function, and where a loop jumps back.

    It must be no other one. An exception that is raised between two instructions where none can be (where a handler of
    exceptions begins) leaves the interpreter's stack in disorder: it crashes, then or later.
    """
    if (found := _MOMENTS.get(code)) is not None:
        return found
    found = _MOMENTS[code] = {}
    instructions = list(dis.get_instructions(code))
    for number, (one, later) in enumerate(pairwise(instructions)):
        comes_from = {one.offset}
        if number and instructions[number - 1].opname in ("EXTENDED_ARG", "PRECALL"):
            comes_from.add(instructions[number - 1].offset)  # both may be one step
        if one.opname == "JUMP_BACKWARD":
            found.setdefault(one.argval, set()).update(comes_from)
        elif one.opname == "RESUME" and (one.arg or 0) & 3 < 2:  # not where an await goes on
            found.setdefault(later.offset, set()).update(comes_from, (ENTRY,))
        elif one.opname in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):
            found.setdefault(later.offset, set()).update(comes_from)
    return found


class MemorySink:
    """A stream of two shards that keeps what was put, and answers at the loop's next turn."""

    stream = "memory"

    def __init__(self) -> None:
        self.written: Counter[bytes] = Counter()

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Entry:
        return Entry(data, partition_key, explicit_hash_key)

    async def shards(self) -> list[ListedShard]:
        return [
            ListedShard(
                shard_id=shard_id_of(number),
                parents=(),
                first_hash_key=first,
                last_hash_key=last,
                first_sequence_number=0,
            )
            for number, (first, last) in enumerate(even_ranges(2))
        ]

    async def put(self, entries: Sequence[Entry]) -> list[Answer]:
        await asyncio.sleep(0)
        answers = []
        for entry in entries:
            aggregate = open_aggregate(entry.data)
            self.written.update([entry.data] if aggregate is None else [record.data for record in aggregate])
            answers.append(Answer(shard_id_of(entry.hash_key > HASH_KEY_MAX // 2), str(len(self.written))))
        return answers

    async def close(self) -> None:
        pass
