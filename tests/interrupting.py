"""Raises in the middle of the package's own code, where a signal handler could; and a stream in memory to put to."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dis
import sys
import threading
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import penstock
from penstock.core.aggregation import open_aggregate
from penstock.core.hashkeys import HASH_KEY_MAX, even_ranges
from penstock.core.sequence import shard_id_of
from penstock.model import Shard
from put_entries import Answer, Entry

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType

ROOT = str(Path(penstock.__file__).parent)
THREADS = (threading.__file__, concurrent.futures._base.__file__)
"""Python's own events, conditions and futures."""
CHECKED = ("CALL", "RESUME", "JUMP_BACKWARD")
"""After these instructions the interpreter runs signal handlers."""


_AFTER: dict[CodeType, set[int]] = {}


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
        """Where it has raised."""

    def run(self, work: Callable[[], Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self._enter)
        try:
            return work()
        finally:
            sys.settrace(before)

    def _enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self.within):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._look

    def _look(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "opcode" and not self.reached and frame.f_lasti in self._moments(frame.f_code):
            self.moments += 1
            if self.moments > self.at:
                self.reached = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                raise self.kind(self.reached)
        return self._look

    def _moments(self, code: CodeType) -> set[int]:
        """The instructions of a function that stand behind one at which the interpreter looks for signals."""
        found = _AFTER.get(code)
        if found is None:
            instructions = list(dis.get_instructions(code))
            found = _AFTER[code] = {
                later.offset
                for earlier, later in pairwise(instructions)
                if earlier.opname.startswith(CHECKED) and not later.opname.startswith("CACHE")
            }
        return found


class MemorySink:
    """A stream of two shards that keeps what was put, and answers at the loop's next turn."""

    stream = "memory"

    def __init__(self) -> None:
        self.written: Counter[bytes] = Counter()

    def entry(self, data: bytes, partition_key: str, explicit_hash_key: str | None) -> Entry:
        return Entry(data, partition_key, explicit_hash_key)

    async def shards(self) -> list[Shard]:
        return [
            Shard(
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
