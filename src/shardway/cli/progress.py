"""Show on a terminal how far a command is that puts records."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

from shardway.cli.output import of_bytes
from shardway.tasks import drop, logged, spawn

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from shardway.events.producer_snapshot import ProducerSnapshot
    from shardway.runtime.producer.producer import Producer


REFRESH_S = 0.25
RATE_OVER_S = 3.0


class Rate:
    """How fast a number grew lately, per second."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def note(self, now_s: float, value: int) -> float:
        """Note the number now, and return its rate over the last `RATE_OVER_S` seconds."""
        self._samples.append((now_s, value))
        while len(self._samples) > 2 and now_s - self._samples[0][0] > RATE_OVER_S:
            self._samples.popleft()
        passed_s = now_s - self._samples[0][0]
        return (value - self._samples[0][1]) / passed_s if passed_s > 0 else 0.0


def describe(snapshot: ProducerSnapshot, records_per_s: float) -> str:
    """Return the text beside the bar."""
    return (
        f"{snapshot.user_records_put:,} records  {of_bytes(snapshot.user_bytes_put)}  {records_per_s:,.0f}/s  "
        f"{snapshot.records_refused:,} refused  {snapshot.user_records_pending:,} under way"
    )


@contextlib.asynccontextmanager
async def progress(
    producer: Producer[Any], read_bytes: Callable[[], int], total_bytes: int | None, console: Console | None = None
) -> AsyncIterator[None]:
    """Show what is done until the block ends, if the console (standard error) is a terminal; with a bar, if the total
    is known.
    """
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    bar = Progress(
        SpinnerColumn(), BarColumn(bar_width=24), TextColumn("{task.description}"), console=console, transient=True
    )
    with bar:
        task = bar.add_task("", total=total_bytes)
        rate = Rate()

        def show() -> None:
            snapshot = producer.metrics()
            text = describe(snapshot, rate.note(time.monotonic(), snapshot.user_records_put))
            bar.update(task, description=text, completed=read_bytes())

        async def follow() -> None:
            while True:
                show()
                await asyncio.sleep(REFRESH_S)

        following = spawn(follow(), logged("the progress is not shown any more"))
        try:
            yield
        finally:
            drop(following)
            show()
